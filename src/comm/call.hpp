// Call: one collective under way on one rank: its number, the agreement of all ranks on what it
// is, and the steps that its algorithm takes with them.
//
// Every collective begins with a *post*: each rank stores a record of what it calls, with a small
// input right beside it, and then the call's number. It goes on when it has the posts of all and
// they agree. So a collective with small inputs is one store and one look at each other rank.
// Algorithms that go on use *steps*: a count of each rank, which only grows.
//
//     post   record, data -> sequence = n      | all others: sequence == n -> record, data
//     step   what was written -> progress = k  | who needs it: progress >= k -> read it
//
// Thread safety: belongs to the calling thread. One call at a time on each channel of a rank.
//
// Invariants
//   (1) Posts of even and odd calls have places of their own. A rank overwrites a post of two calls
//       ago: it has seen all posts of the call before, which each rank made after it was done with
//       the older one.
//   (2) If the records disagree, all ranks come to that verdict, by the same records, and none has
//       touched its output or taken a step: the channel can be used further.
//   (3) If a call ends by an exception after the posts agreed, or before, while waiting, then all
//       words that others may wait for have the gone bit; no other rank waits for this one for
//       ever.
//   (4) Staging memory is written only after all posts were seen: nobody still reads what the call
//       before has left there.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "comm/channel.hpp"
#include "strata/domain_context.hpp"

namespace strata::comm {

/// Who waits, in what, for messages. `kind` none means a message and not a collective.
struct WaitReason {
  detail::CollectiveKind kind;
  std::uint32_t sequence;
  std::uint32_t channel;
  std::uint32_t peer;
};

/// "all_reduce", ...
[[nodiscard]] std::string_view name_of(detail::CollectiveKind kind) noexcept;
/// "rank 2 of domain 'tp' waits in all_reduce #3 on channel 0 for rank 0"
[[nodiscard]] std::string describe(const DomainContext& domain, const WaitReason& reason);
/// The same, and where not all ranks are there yet, all that are not, and whose call is another
/// one: "... for ranks 0 (its last is #2) and 3 (it has called nothing there); rank 1 calls ...".
[[nodiscard]] std::string describe_in_full(const DomainContext& domain, const WaitReason& reason);

/// Waits until the word has come to `target`. Throws CommError if its writer is gone before that,
/// and whatever the caller's waits throw. What a rank did before it was gone is still good.
void await(const DomainContext& domain, const detail::CommWaits& waits, Signal& word,
           std::uint32_t target, const WaitReason& reason);
/// Stores a word of this rank and wakes who waits for it.
void publish(const detail::CommWaits& waits, Signal& word, std::uint32_t value);

/// Remembers why this rank, or that one, has given up; the first reason stays.
void note_fault(const DomainContext& domain, std::uint32_t rank, std::string_view why);
/// Sets the gone bit in all words of a rank on a channel and wakes who waits for them.
void mark_channel_gone(const DomainContext& domain, std::uint32_t rank, std::uint32_t channel);

class Call {
 public:
  /// Takes the channel. Throws CommError if it is broken or in use.
  Call(const DomainContext& domain, const detail::CommWaits& waits,
       const detail::CollectiveCall& what);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] std::uint32_t rank() const noexcept { return domain_.rank; }
  [[nodiscard]] std::uint32_t size() const noexcept { return domain_.size; }
  [[nodiscard]] const DomainContext& domain() const noexcept { return domain_; }
  [[nodiscard]] const detail::CollectiveCall& what() const noexcept { return what_; }
  /// The number of this call on its channel.
  [[nodiscard]] std::uint32_t sequence() const noexcept { return sequence_; }

  /// Publishes the record, with `data` beside it, or nothing. `data_bytes` is how much goes beside
  /// a record of this call on those ranks that have something (at most the domain's small_bytes).
  void post(const CallRecord& record, std::size_t data_bytes, const void* data);
  /// Waits for the posts of all. Throws CommError if they disagree.
  void meet();
  /// After meet(): what another rank calls, and the data beside that.
  [[nodiscard]] const CallRecord& record(std::uint32_t rank) const noexcept {
    return post_of(rank).call;
  }
  [[nodiscard]] const std::byte* data(std::uint32_t rank) const noexcept {
    return small_ ? post_of(rank).data : channel_.small(rank, parity());
  }

  /// One step is done; what was written for it can be read by all.
  void step();
  /// Waits until `rank` has done all steps that this rank has done.
  void wait_for(std::uint32_t rank);
  /// Waits until `rank` has done as many steps of this call as `steps`.
  void wait_for(std::uint32_t rank, std::uint32_t steps);
  /// step(), and waits for all.
  void meet_at_step();

  [[nodiscard]] std::byte* staging(std::uint32_t rank) const noexcept {
    return channel_.staging(rank);
  }
  /// The call ends by an exception with this text.
  void abandon(std::string_view why) noexcept;

 private:
  [[nodiscard]] std::uint32_t parity() const noexcept { return sequence_ & 1U; }
  [[nodiscard]] Post& post_of(std::uint32_t rank) const noexcept {
    return channel_.control(rank).posts[parity()];
  }
  void await_step(std::uint32_t rank, std::uint32_t target);
  [[nodiscard]] bool agree(std::uint32_t rank) const noexcept;
  [[nodiscard]] std::string disagreement() const;
  [[nodiscard]] WaitReason reason(std::uint32_t peer) const noexcept {
    return {what_.kind, sequence_, what_.channel, peer};
  }

  const DomainContext& domain_;
  const detail::CommWaits& waits_;
  const detail::CollectiveCall& what_;
  Channel channel_;
  ChannelControl& own_;
  std::uint32_t sequence_ = 0;
  std::uint32_t first_step_ = 0;
  bool small_ = false;  ///< The data is so small that it lies in the post itself.
};

}  // namespace strata::comm
