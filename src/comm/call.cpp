#include "comm/call.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "comm/signal.hpp"
#include "os/cpu.hpp"
#include "strata/comm_error.hpp"

namespace strata::comm {
namespace {

using detail::CollectiveKind;
using detail::CommWaits;

/// How long a wait spins if there is a CPU for each rank, some 2 us. Not longer: the one that is
/// waited for may be on this very CPU, since another program, or the parent that looks for the end
/// of its tasks, has the other; then every microsecond is one that it can't run.
constexpr std::uint64_t kSpinCycles = 5'000;
/// Looks between two readings of the cycle counter; and all that there are with more ranks than
/// CPUs, where the one that is waited for may need this very CPU.
constexpr int kLooks = 32;

/// How long a wait may go on yielding, some 20 ms: nobody looks at cancellation meanwhile.
constexpr std::uint64_t kYieldCycles = 60'000'000;

bool cpu_for_each(std::uint32_t ranks) noexcept {
  static const auto cpus = static_cast<std::uint32_t>(os::allowed_cpus());
  return ranks <= cpus;
}

/// Looks for a while. True if `word` is no longer `seen`.
bool spin_while(Signal& word, std::uint32_t seen, std::uint32_t ranks) noexcept {
  const auto look = [&] {
    for (int i = 0; i < kLooks; ++i) {
      if (load(word) != seen) return true;
      os::cpu_relax();
    }
    return false;
  };
  if (look()) return true;
  if (!cpu_for_each(ranks)) return false;
  const std::uint64_t begin = os::cycle_count();
  do {
    if (look()) return true;
  } while (os::cycle_count() - begin < kSpinCycles);
  return false;
}

/// Gives the CPU to whoever wants it and looks again, so often. Costs a microsecond each where
/// nobody does.
///
/// Why not sleep at once: on a busy machine a thread that is woken may wait for milliseconds until
/// the one that has its CPU is at the end of its slice. Meanwhile its waker has nothing to do and
/// sleeps too, and so they go on taking turns. Threads that stay runnable get their slices at about
/// the same time.
bool yield_while(Signal& word, std::uint32_t seen, std::uint32_t times) noexcept {
  const std::uint64_t begin = os::cycle_count();
  for (; times > 0 && os::cycle_count() - begin < kYieldCycles; --times) {
    sched_yield();
    if (load(word) != seen) return true;
  }
  return false;
}

/// Shows in the window what a rank waits for, as long as this lives.
class ShownWait {
 public:
  ShownWait(const DomainContext& domain, const WaitReason& reason) noexcept
      : note_(Channel(domain, reason.channel).control(domain.rank).note) {
    note_.sequence.store(reason.sequence, std::memory_order_relaxed);
    note_.peer.store(reason.peer, std::memory_order_relaxed);
    note_.kind.store(static_cast<std::uint32_t>(reason.kind), std::memory_order_relaxed);
    note_.waiting.store(1, std::memory_order_relaxed);
  }
  ~ShownWait() { note_.waiting.store(0, std::memory_order_relaxed); }
  ShownWait(const ShownWait&) = delete;
  ShownWait& operator=(const ShownWait&) = delete;

 private:
  WaitNote& note_;
};

std::string fault_of(const DomainContext& domain, std::uint32_t rank) {
  const WindowHeader& header = header_of(domain, rank);
  if (header.fault_state.load(std::memory_order_acquire) != 2) return "it gives no reason";
  return {header.fault_text, std::min<std::size_t>(header.fault_bytes, sizeof header.fault_text)};
}

[[noreturn]] void throw_gone(const DomainContext& domain, const WaitReason& reason) {
  throw CommError(CommError::Cause::rank_left,
                  fmt::format("{}, which has given up: {}", describe(domain, reason),
                              fault_of(domain, reason.peer)));
}

std::string describe_record(const CallRecord& record) {
  if (record.kind == CollectiveKind::refused) return "a call that is refused there, see its error";
  if (record.kind == CollectiveKind::barrier) return "barrier";
  std::string text =
      fmt::format("{} of {} x {}", name_of(record.kind), record.count, name_of(record.dtype));
  const bool reduces = record.kind == CollectiveKind::all_reduce ||
                       record.kind == CollectiveKind::reduce_scatter ||
                       record.kind == CollectiveKind::reduce;
  if (reduces) text += fmt::format(", {}", name_of(record.op));
  if (record.kind == CollectiveKind::broadcast || record.kind == CollectiveKind::reduce)
    text += fmt::format(", root {}", record.root);
  if (record.algorithm != CollectiveAlgorithm::automatic)
    text += fmt::format(", by {}", name_of(record.algorithm));
  return text;
}

/// Where their memory is may differ.
bool same_call(const CallRecord& a, const CallRecord& b) noexcept {
  constexpr std::size_t kAgreed = offsetof(CallRecord, in);
  return std::memcmp(&a, &b, kAgreed) == 0;
}

}  // namespace

std::string_view name_of(CollectiveKind kind) noexcept {
  switch (kind) {
    case CollectiveKind::none:
      return "a message";
    case CollectiveKind::refused:
      return "a refused call";
    case CollectiveKind::barrier:
      return "barrier";
    case CollectiveKind::all_reduce:
      return "all_reduce";
    case CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::broadcast:
      return "broadcast";
    case CollectiveKind::all_to_all:
      return "all_to_all";
    case CollectiveKind::reduce:
      return "reduce";
  }
  return "?";
}

namespace {

/// "rank 2 of domain 'tp' waits in all_reduce #3 on channel 0 for"
std::string who_waits(const DomainContext& domain, const WaitReason& reason) {
  const std::string what =
      reason.kind == CollectiveKind::none
          ? fmt::format("in the exchange of messages on channel {}", reason.channel)
          : fmt::format("in {} #{} on channel {}", name_of(reason.kind), reason.sequence,
                        reason.channel);
  return fmt::format("rank {} of domain '{}' waits {} for", domain.rank, domain.name, what);
}

/// Who has come to the call with this number on a channel, and to which. A look from aside: of
/// calls that go on meanwhile it may be wrong.
class Arrivals {
 public:
  Arrivals(const DomainContext& domain, std::uint32_t channel, std::uint32_t sequence)
      : channel_(domain, channel), size_(domain.size), sequence_(sequence) {}

  [[nodiscard]] bool is_there(std::uint32_t rank) const {
    return reached(load(post(rank, sequence_).sequence) & kCountMask, sequence_);
  }
  /// "0 (its last call there is #2) and 3 (it has called nothing there)"; "" if all are there.
  [[nodiscard]] std::string missing() const {
    std::vector<std::string> names;
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      if (!is_there(rank)) names.push_back(fmt::format("{} ({})", rank, last_of(rank)));
    }
    if (names.empty()) return "";
    const std::string last = std::move(names.back());
    names.pop_back();
    if (names.empty()) return "rank " + last;
    return fmt::format("ranks {} and {}", fmt::join(names, ", "), last);
  }
  /// "; rank 1 calls barrier as #3, and this one all_reduce of 8 x float32, sum"; "" if all agree.
  [[nodiscard]] std::string others_than(std::uint32_t me) const {
    std::string text;
    if (!is_there(me)) return text;
    const CallRecord& own = post(me, sequence_).call;
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      Post& theirs = post(rank, sequence_);
      // One that is further was in agreement with all when it passed here.
      if (!is_there(rank) || (load(theirs.sequence) & kCountMask) != sequence_ ||
          same_call(theirs.call, own))
        continue;
      text +=
          fmt::format("; rank {} calls {} as #{}", rank, describe_record(theirs.call), sequence_);
    }
    return text.empty() ? text : fmt::format("{}, and this one {}", text, describe_record(own));
  }

 private:
  [[nodiscard]] Post& post(std::uint32_t rank, std::uint32_t sequence) const {
    return channel_.control(rank).posts[sequence & 1U];
  }
  /// Its two posts are of its last two calls.
  [[nodiscard]] std::string last_of(std::uint32_t rank) const {
    const std::uint32_t even = load(post(rank, 0).sequence) & kCountMask;
    const std::uint32_t odd = load(post(rank, 1).sequence) & kCountMask;
    const std::uint32_t last = reached(even, odd) ? even : odd;
    return last == 0 ? "it has called nothing there"
                     : fmt::format("its last call there is #{}", last);
  }

  Channel channel_;
  std::uint32_t size_;
  std::uint32_t sequence_;
};

}  // namespace

std::string describe(const DomainContext& domain, const WaitReason& reason) {
  return fmt::format("{} rank {}", who_waits(domain, reason), reason.peer);
}

std::string describe_in_full(const DomainContext& domain, const WaitReason& reason) {
  if (reason.kind == CollectiveKind::none) return describe(domain, reason);
  const Arrivals arrivals(domain, reason.channel, reason.sequence);
  const std::string missing = arrivals.missing();
  if (missing.empty()) return describe(domain, reason) + arrivals.others_than(domain.rank);
  return fmt::format("{} {}{}", who_waits(domain, reason), missing,
                     arrivals.others_than(domain.rank));
}

namespace {
/// Sleeps as the caller of the collective sleeps.
void sleep_on(const DomainContext& domain, const CommWaits& waits, Signal& word, std::uint32_t seen,
              const WaitReason& reason) {
  const ShownWait shown(domain, reason);
  switch (waits.wait(waits, &word, Compare::not_equal, seen)) {
    case CommWaits::End::satisfied:
      return;
    case CommWaits::End::cancelled:
      throw Cancelled(describe_in_full(domain, reason) + ": cancelled");
    case CommWaits::End::deadline:
      throw DeadlineExceeded(describe_in_full(domain, reason) + ": its deadline has passed");
  }
}
}  // namespace

void await(const DomainContext& domain, const CommWaits& waits, Signal& word, std::uint32_t target,
           const WaitReason& reason) {
  for (std::uint32_t value = load(word); !reached(value, target); value = load(word)) {
    if ((value & kGoneBit) != 0) throw_gone(domain, reason);
    if (spin_while(word, value, domain.size) || yield_while(word, value, waits.yields)) continue;
    sleep_on(domain, waits, word, value, reason);
  }
}

void publish(const CommWaits& waits, Signal& word, std::uint32_t value) {
  if (change(word, SignalOp::set, value)) waits.notify(waits, &word, SignalOp::set, value);
}

void note_fault(const DomainContext& domain, std::uint32_t rank, std::string_view why) {
  WindowHeader& header = header_of(domain, rank);
  std::uint32_t state = 0;
  if (!header.fault_state.compare_exchange_strong(state, 1, std::memory_order_relaxed)) return;
  constexpr std::string_view kMore = " ... (all of it is in that rank's own error)";
  constexpr std::size_t kRoom = sizeof header.fault_text;
  std::string text(why);
  if (text.size() > kRoom) text.replace(kRoom - kMore.size(), std::string::npos, kMore);
  std::memcpy(header.fault_text, text.data(), text.size());
  header.fault_bytes = static_cast<std::uint32_t>(text.size());
  header.fault_state.store(2, std::memory_order_release);
}

void mark_channel_gone(const DomainContext& domain, std::uint32_t rank, std::uint32_t channel) {
  const Channel view(domain, channel);
  // Whatever the waits of that rank are, others may sleep on any of its words: all are woken.
  const auto mark = [](Signal& word) {
    value_of(word).fetch_or(kGoneBit, std::memory_order_seq_cst);
    wake(word);
  };
  ChannelControl& control = view.control(rank);
  for (Post& post : control.posts)
    mark(post.sequence);
  mark(control.progress.count);
  for (std::uint32_t other = 0; other < domain.size; ++other) {
    mark(view.lines(rank, other).sent.count);
    mark(view.lines(rank, other).taken.count);
  }
}

Call::Call(const DomainContext& domain, const CommWaits& waits, const detail::CollectiveCall& what)
    : domain_(domain),
      waits_(waits),
      what_(what),
      channel_(domain, what.channel),
      own_(channel_.control(domain.rank)) {
  if ((load(own_.progress.count) & kGoneBit) != 0) {
    throw CommError(
        CommError::Cause::rank_left,
        fmt::format(
            "{} on channel {} of domain '{}': this rank, {}, has given up an "
            "earlier call there ({}). A collective of all ranks as a task (strata::barrier, "
            "for instance) makes the channel as new.",
            name_of(what.kind), what.channel, domain.name, domain.rank,
            fault_of(domain, domain.rank)));
  }
  // No more than a check for misuse, so it need not be exact.
  if (own_.own.busy.load(std::memory_order_relaxed) != 0) {
    throw CommError(CommError::Cause::misuse,
                    fmt::format("{} on channel {} of domain '{}': another call of rank {} is under "
                                "way on this channel. Give each its own.",
                                name_of(what.kind), what.channel, domain.name, domain.rank));
  }
  own_.own.busy.store(1, std::memory_order_relaxed);
  own_.own.sequence = (own_.own.sequence + 1) & kCountMask;
  sequence_ = own_.own.sequence;
  first_step_ = own_.own.steps;
}

Call::~Call() { own_.own.busy.store(0, std::memory_order_relaxed); }

void Call::post(const CallRecord& record, std::size_t data_bytes, const void* data) {
  Post& post = post_of(rank());
  post.call = record;
  small_ = data_bytes <= kInlineBytes;
  if (data != nullptr && data_bytes != 0)
    std::memcpy(small_ ? post.data : channel_.small(rank(), parity()), data, data_bytes);
  publish(waits_, post.sequence, sequence_);
}

bool Call::agree(std::uint32_t rank) const noexcept {
  return same_call(record(rank), record(domain_.rank));
}

void Call::meet() {
  bool agreed = record(rank()).kind != CollectiveKind::refused;
  for (std::uint32_t other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    await(domain_, waits_, post_of(other).sequence, sequence_, reason(other));
    agreed = agreed && agree(other);
  }
  if (!agreed) throw CommError(CommError::Cause::mismatch, disagreement());
}

std::string Call::disagreement() const {
  std::string text = fmt::format(
      "the ranks of domain '{}' do not call the same as #{} on channel {}:", domain_.name,
      sequence_, what_.channel);
  for (std::uint32_t other = 0; other < size(); ++other)
    text +=
        fmt::format("{} rank {}: {}", other == 0 ? "" : ";", other, describe_record(record(other)));
  return text + ". Nothing was done; all ranks get this error.";
}

void Call::step() {
  own_.own.steps = (own_.own.steps + 1) & kCountMask;
  publish(waits_, own_.progress.count, own_.own.steps);
}

void Call::await_step(std::uint32_t rank, std::uint32_t target) {
  if (rank == domain_.rank) return;
  await(domain_, waits_, channel_.control(rank).progress.count, target, reason(rank));
}

void Call::wait_for(std::uint32_t rank) { await_step(rank, own_.own.steps); }

void Call::wait_for(std::uint32_t rank, std::uint32_t steps) {
  await_step(rank, (first_step_ + steps) & kCountMask);
}

void Call::meet_at_step() {
  step();
  for (std::uint32_t other = 0; other < size(); ++other)
    wait_for(other);
}

void Call::abandon(std::string_view why) noexcept {
  note_fault(domain_, rank(),
             fmt::format("in {} #{} on channel {}: {}", name_of(what_.kind), sequence_,
                         what_.channel, why));
  mark_channel_gone(domain_, rank(), what_.channel);
}

}  // namespace strata::comm
