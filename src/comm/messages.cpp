// send, recv and send_recv: a ring of slots from each rank to each other, in the sender's window.
//
// The sender fills slots and counts them in `sent`; the receiver empties them and counts them in
// its own `taken`. A message takes as many slots as it has pieces, at least one. A large message
// whose data lies in the sender's window takes one slot, which says where: the receiver copies from
// there, and the sender waits until the slot was taken.
//
// Thread safety: one sending and one receiving thread for each pair of ranks on a channel.
//
// Why send_recv can't wait for ever if all ranks do it: piece i is sent before piece i is received,
// and sending it waits for the receipt of piece i - kMessageSlots only. So in the order (sent 0,
// received 0, sent 1, ...) nothing waits for what comes later.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/call.hpp"
#include "comm/services.hpp"
#include "comm/signal.hpp"
#include "strata/comm_error.hpp"

namespace strata::comm {
namespace {

using detail::CollectiveKind;
using detail::CommWaits;
using detail::MessageCall;

std::byte* data_of(MessageSlot& slot) noexcept { return reinterpret_cast<std::byte*>(&slot + 1); }

/// What both directions share.
class End {
 public:
  End(const DomainContext& domain, const CommWaits& waits, std::uint32_t channel,
      std::uint32_t peer) noexcept
      : domain_(domain), waits_(waits), channel_(domain, channel), index_(channel), peer_(peer) {}

 protected:
  [[nodiscard]] const DomainContext& domain() const noexcept { return domain_; }
  [[nodiscard]] const Channel& channel() const noexcept { return channel_; }
  [[nodiscard]] std::uint32_t peer() const noexcept { return peer_; }
  [[nodiscard]] std::uint32_t me() const noexcept { return domain_.rank; }

  /// Waits for a count of the peer. `number`: of the slot, for messages.
  void await_peer(Signal& word, std::uint32_t target) const {
    await(domain_, waits_, word, target & kCountMask,
          {CollectiveKind::none, target & kCountMask, index_, peer_});
  }
  void count_up(Signal& word) const {
    publish(waits_, word, (value_of(word).load(std::memory_order_relaxed) + 1) & kCountMask);
  }

 private:
  const DomainContext& domain_;
  const CommWaits& waits_;
  Channel channel_;
  std::uint32_t index_;
  std::uint32_t peer_;
};

class Sender : End {
 public:
  Sender(const DomainContext& domain, const CommWaits& waits, const MessageCall& what)
      : End(domain, waits, what.channel, what.to),
        data_(static_cast<const std::byte*>(what.out)),
        dtype_(what.dtype),
        count_(what.out_count),
        bytes_(what.out_count * size_of(what.dtype)),
        in_window_(bytes_ > domain.message_bytes && inside_window(domain)) {}

  [[nodiscard]] bool done() const noexcept { return begun_ && (in_window_ || sent_ == bytes_); }

  void send_piece() {
    Signal& sent = channel().lines(me(), peer()).sent.count;
    const std::uint32_t number = value_of(sent).load(std::memory_order_relaxed);
    await_peer(taken(), number + 1 - kMessageSlots);  // There is a free slot.
    MessageSlot& slot = channel().slot(me(), peer(), number);
    slot.count = count_;
    slot.dtype = dtype_;
    slot.first = !begun_;
    slot.window = in_window_ ? offset_ : kPrivate;
    if (!in_window_) {
      const std::size_t now = std::min<std::uint64_t>(bytes_ - sent_, domain().message_bytes);
      if (now != 0) std::memcpy(data_of(slot), data_ + sent_, now);
      sent_ += now;
    }
    begun_ = true;
    count_up(sent);
  }

  /// Until the receiver has copied from this rank's window.
  void wait_until_taken() {
    if (!in_window_) return;
    Signal& sent = channel().lines(me(), peer()).sent.count;
    await_peer(taken(), value_of(sent).load(std::memory_order_relaxed));
  }

 private:
  [[nodiscard]] Signal& taken() const noexcept { return channel().lines(peer(), me()).taken.count; }
  bool inside_window(const DomainContext& domain) noexcept {
    offset_ =
        reinterpret_cast<std::uintptr_t>(data_) - reinterpret_cast<std::uintptr_t>(domain.window());
    return offset_ < domain.window_bytes && bytes_ <= domain.window_bytes - offset_;
  }

  const std::byte* data_;
  DType dtype_;
  std::uint64_t count_;
  std::uint64_t bytes_;
  std::uint64_t offset_ = 0;
  bool in_window_;
  bool begun_ = false;
  std::uint64_t sent_ = 0;
};

class Receiver : End {
 public:
  Receiver(const DomainContext& domain, const CommWaits& waits, const MessageCall& what)
      : End(domain, waits, what.channel, what.from),
        data_(static_cast<std::byte*>(what.in)),
        dtype_(what.dtype),
        count_(what.in_count),
        bytes_(what.in_count * size_of(what.dtype)) {}

  [[nodiscard]] bool done() const noexcept { return begun_ && received_ == bytes_; }

  void receive_piece() {
    Signal& taken = channel().lines(me(), peer()).taken.count;
    const std::uint32_t number = value_of(taken).load(std::memory_order_relaxed);
    await_peer(channel().lines(peer(), me()).sent.count, number + 1);
    MessageSlot& slot = channel().slot(peer(), me(), number);
    check(slot);
    begun_ = true;
    if (slot.window != kPrivate) {
      std::memcpy(data_, domain().windows[peer()] + slot.window, bytes_);
      received_ = bytes_;
    } else {
      const std::size_t now = std::min<std::uint64_t>(bytes_ - received_, domain().message_bytes);
      if (now != 0) std::memcpy(data_ + received_, data_of(slot), now);
      received_ += now;
    }
    count_up(taken);
  }

 private:
  void check(const MessageSlot& slot) const {
    if (slot.first == !begun_ && slot.count == count_ && slot.dtype == dtype_) return;
    throw CommError(
        CommError::Cause::mismatch,
        fmt::format("rank {} of domain '{}' receives {} x {} from rank {}, which sends {} x {}",
                    me(), domain().name, count_, name_of(dtype_), peer(), slot.count,
                    name_of(slot.dtype)));
  }

  std::byte* data_;
  DType dtype_;
  std::uint64_t count_;
  std::uint64_t bytes_;
  bool begun_ = false;
  std::uint64_t received_ = 0;
};

void check_call(const DomainContext& domain, const MessageCall& what) {
  const auto refuse = [&](std::string_view why) {
    throw InvalidArgument(fmt::format("a message on channel {} of domain '{}', rank {}: {}",
                                      what.channel, domain.name, domain.rank, why));
  };
  const auto bad_peer = [&](std::uint32_t peer) {
    return peer != MessageCall::kNobody && (peer >= domain.size || peer == domain.rank);
  };
  if (what.channel >= domain.channels) refuse("the domain has no such channel");
  if (bad_peer(what.to) || bad_peer(what.from))
    refuse("it goes to, or comes from, a rank that the domain has not, or that is this one");
  if ((what.out_count != 0 && what.out == nullptr) || (what.in_count != 0 && what.in == nullptr))
    refuse("its memory is null");
  if (std::max(what.out_count, what.in_count) > (std::uint64_t{1} << 40U))
    refuse("there can't be so many elements");
}

void exchange(const DomainContext& domain, const CommWaits& waits, const MessageCall& what) {
  Sender sender(domain, waits, what);
  Receiver receiver(domain, waits, what);
  const bool sends = what.to != MessageCall::kNobody;
  const bool receives = what.from != MessageCall::kNobody;
  while ((sends && !sender.done()) || (receives && !receiver.done())) {
    if (sends && !sender.done()) sender.send_piece();
    if (receives && !receiver.done()) receiver.receive_piece();
  }
  if (sends) sender.wait_until_taken();
}

/// This rank can't go on with that peer: it shall know.
void abandon(const DomainContext& domain, const MessageCall& what, std::string_view why) noexcept {
  note_fault(domain, domain.rank,
             fmt::format("in an exchange of messages on channel {}: {}", what.channel, why));
  const Channel channel(domain, what.channel);
  for (const std::uint32_t peer : {what.to, what.from}) {
    if (peer == MessageCall::kNobody) continue;
    MessageLines& lines = channel.lines(domain.rank, peer);
    for (Signal* const word : {&lines.sent.count, &lines.taken.count}) {
      value_of(*word).fetch_or(kGoneBit, std::memory_order_seq_cst);
      wake(*word);
    }
  }
}

}  // namespace

void run_message(const DomainContext& domain, const CommWaits& waits, const MessageCall& what) {
  check_call(domain, what);
  try {
    exchange(domain, waits, what);
  } catch (const std::exception& error) {
    abandon(domain, what, error.what());
    throw;
  } catch (...) {
    abandon(domain, what, "its wait ended with an error without a text");
    throw;
  }
}

}  // namespace strata::comm
