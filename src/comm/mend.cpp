#include "comm/mend.hpp"

#include <atomic>

#include "comm/channel.hpp"
#include "comm/signal.hpp"

namespace strata::comm {
namespace {

bool is_gone(Signal& word) noexcept { return (load(word) & kGoneBit) != 0; }

/// Not the count of sleepers: whoever sleeps takes himself off it.
void clear(Signal& word) noexcept { value_of(word).store(0, std::memory_order_release); }

void clear(MessageLines& lines) noexcept {
  clear(lines.sent.count);
  clear(lines.taken.count);
}

bool is_given_up(const Channel& channel, std::uint32_t rank, std::uint32_t size) noexcept {
  if (is_gone(channel.control(rank).progress.count)) return true;
  // Who gives up an exchange of messages marks no more than that.
  for (std::uint32_t other = 0; other < size; ++other) {
    MessageLines& lines = channel.lines(rank, other);
    if (is_gone(lines.sent.count) || is_gone(lines.taken.count)) return true;
  }
  return false;
}

void make_new(const Channel& channel, std::uint32_t size) noexcept {
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    ChannelControl& control = channel.control(rank);
    for (Post& post : control.posts)
      clear(post.sequence);
    clear(control.progress.count);
    control.own.sequence = 0;
    control.own.steps = 0;
    control.own.busy.store(0, std::memory_order_relaxed);
    for (std::uint32_t other = 0; other < size; ++other)
      clear(channel.lines(rank, other));
  }
}

/// Whether the messages from one rank to another are in a state that no exchange leaves.
bool is_amiss(const Channel& channel, std::uint32_t from, std::uint32_t to) noexcept {
  const std::uint32_t sent = load(channel.lines(from, to).sent.count);
  const std::uint32_t taken = load(channel.lines(to, from).taken.count);
  return sent != taken || (sent & kGoneBit) != 0;
}

}  // namespace

void mend(const DomainContext& domain) {
  bool given_up = false;
  // Whoever gives up notes why. That line is written by nobody else, so the look costs nothing.
  for (std::uint32_t rank = 0; rank < domain.size; ++rank) {
    given_up = given_up || header_of(domain, rank).fault_state.load(std::memory_order_acquire) != 0;
  }
  if (!given_up) return;
  for (std::uint32_t index = 0; index < domain.channels; ++index) {
    const Channel channel(domain, index);
    bool broken = false;
    for (std::uint32_t rank = 0; rank < domain.size; ++rank)
      broken = broken || is_given_up(channel, rank, domain.size);
    if (broken) make_new(channel, domain.size);
  }
  for (std::uint32_t rank = 0; rank < domain.size; ++rank)
    header_of(domain, rank).fault_state.store(0, std::memory_order_release);
}

void mend_messages(const DomainContext& domain, std::uint32_t channel, std::uint32_t a,
                   std::uint32_t b) {
  const Channel view(domain, channel);
  if (!is_amiss(view, a, b) && !is_amiss(view, b, a)) return;
  clear(view.lines(a, b));
  clear(view.lines(b, a));
}

}  // namespace strata::comm
