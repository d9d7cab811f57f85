// Mailbox: how a parent gives tasks to one worker process and gets their ends back.
//
// Two rings in one memfd (mailbox_layout.hpp): submissions from the parent, completions from the
// worker. Each has one producer and one consumer, needs no lock, and no system call while the other
// side is awake. A frame's payload and its sequence word share a cache line, and there are no
// shared indices: as the parent never has more than `slots` frames in flight, the slot that comes
// next is free by construction, in both rings.
//
// Thread safety
//   MailboxParent: one thread at a time pushes, one at a time pops; a pusher and a popper may be
//     distinct threads at the same time. cancel() and the reports may be called by any thread.
//   MailboxWorker: one thread waits, takes and completes; interrupt() and cancelled() may be called
//     by any thread, interrupt() from a signal handler too.
//
// Invariants
//   (1) Frames are taken in the order in which they were pushed, and completed in that order.
//   (2) What the parent did before push() happens before the return of the take() of that frame;
//       what the worker did before complete() happens before the return of the pop().
//   (3) No wake-up is lost, see below. An idle side makes no system call and uses no CPU.
//   (4) A side makes a system call to wake the other only if that one sleeps or is about to, and
//       one per sleep.
//   (5) Whatever the other side writes, a side never crashes, never reads outside the mailbox and
//       never loops for ever; what can't be right is reported as `broken`, for good.
//   (6) The arena's room of a frame is used again only after its completion was popped.
//
// Why no wake-up is lost. A producer publishes (store-release of the sequence), passes a
// sequentially consistent fence, and then reads the consumer's asleep word. A consumer announces
// (stores 1 there), passes such a fence, and then looks at the sequence word once more. The two
// fences are totally ordered: if the producer's comes first, the consumer's look sees the frame and
// it does not sleep; if the consumer's comes first, the producer reads 1 and wakes. The wake is not
// lost either: the producer sets the word to 0 *before* it wakes. A worker's futex_wait refuses to
// sleep once the word is 0; a parent's eventfd stays readable until it is read. interrupt() is a
// producer whose frame is a flag. An exchange that is late meets the next sleep and costs a stray
// wake; the consumer looks again and announces again. tests/model/mailbox.pml is this protocol,
// with store buffers, in a form that a model checker goes through.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "ipc/frame.hpp"
#include "ipc/mailbox_layout.hpp"
#include "ipc/spinner_budget.hpp"
#include "os/mapping.hpp"
#include "os/unique_fd.hpp"

namespace strata::ipc {

struct MailboxOptions {
  std::uint32_t slots = 64;             ///< Frames in flight; rounded up to a power of two.
  std::size_t arena_bytes = 1U << 20U;  ///< Rounded up to a power of two of at least a page.
  std::uint64_t first = 0;              ///< Number of the first frame; for tests of what wraps.
};

/// The memory of a new mailbox. Throws InvalidArgument or SystemError.
[[nodiscard]] os::UniqueFd make_mailbox(const MailboxOptions& options = {});

/// The parent's end.
class MailboxParent {
 public:
  /// Names a frame in flight.
  struct Ticket {
    std::uint64_t number = 0;
    friend bool operator==(Ticket, Ticket) = default;
  };
  enum class PushResult : std::uint8_t {
    pushed,
    ring_full,   ///< As many frames in flight as there are slots: pop first.
    arena_full,  ///< No room for its length until earlier frames are completed: pop first.
    too_long,    ///< Longer than the arena, or a count above a frame's limits: never.
  };
  struct Pushed {
    PushResult result = PushResult::pushed;
    Ticket ticket = {};  ///< Of a frame that was pushed.
  };
  enum class PopResult : std::uint8_t {
    nothing,
    completion,
    broken,  ///< See broken(); what is in flight will get no completion.
  };
  struct Popped {
    PopResult result = PopResult::nothing;
    Ticket ticket = {};
    CompletionFrame frame = {};
  };

  /// Maps the mailbox, whose memory must come from make_mailbox. Throws SystemError.
  explicit MailboxParent(int memfd);

  [[nodiscard]] std::size_t slots() const noexcept { return layout_.slots; }
  /// Frames pushed and not popped. Exact for the threads that push and pop.
  [[nodiscard]] std::size_t in_flight() const noexcept {
    return static_cast<std::size_t>(pushed_.load(std::memory_order_relaxed) -
                                    popped_.load(std::memory_order_relaxed));
  }

  /// Publishes a frame and wakes the worker if it sleeps.
  [[nodiscard]] Pushed push(const Submission& submission) noexcept {
    const Pushed pushed = push_quietly(submission);
    if (pushed.result == PushResult::pushed) wake();
    return pushed;
  }
  /// Publishes a frame; the worker may sleep on until wake(). For several frames at a time.
  [[nodiscard]] Pushed push_quietly(const Submission& submission) noexcept;
  /// Wakes the worker if it sleeps.
  void wake() noexcept;

  /// The next completion, if it is there.
  [[nodiscard]] Popped pop() noexcept;
  /// Whether pop() would return something else than `nothing`. For the popper.
  [[nodiscard]] bool can_pop() const noexcept;
  /// Announces that the popper is about to sleep until the eventfd is written. False if there is
  /// something to pop: then it must not sleep, and nothing is announced. The eventfd may still be
  /// written once for an announcement that was withdrawn.
  [[nodiscard]] bool arm() noexcept;
  /// Withdraws the announcement.
  void disarm() noexcept;

  /// Asks the task of a frame to end; of no effect once it is completed.
  void cancel(Ticket ticket) noexcept;
  /// Whether the worker had begun with the frame. Final once the worker is dead.
  [[nodiscard]] bool begun(Ticket ticket) const noexcept;
  /// Why the worker's end of the mailbox is broken, or empty. Set by the popper.
  [[nodiscard]] std::string_view broken() const noexcept {
    const char* reason = broken_.load(std::memory_order_acquire);
    return reason == nullptr ? std::string_view{} : reason;
  }

 private:
  /// What the parent keeps of a frame in flight. Written by push before `pushed_`, read by pop.
  struct Record {
    std::uint64_t dispatch = 0;
    std::uint64_t arena_end = 0;  ///< Where the arena is free up to when this frame is completed.
  };
  enum class Look : std::uint8_t { nothing, there, broken };
  [[nodiscard]] Look look(std::uint64_t number) const noexcept;
  struct Room {
    bool found = false;
    std::uint64_t begin = 0;  ///< As a count of all bytes ever given.
  };
  /// Room of `bytes` in the arena; `empty`: nothing is in flight.
  [[nodiscard]] Room arena_room(std::size_t bytes, bool empty) noexcept;
  [[nodiscard]] Popped report_broken(const char* reason) noexcept;

  os::Mapping mapping_;
  MailboxLayout layout_;
  std::uint64_t first_ = 0;
  std::uint64_t mask_ = 0;
  MailboxHeader* header_ = nullptr;
  SubmissionSlot* submissions_ = nullptr;
  CompletionSlot* completions_ = nullptr;
  std::byte* arena_ = nullptr;
  std::vector<Record> records_;  ///< By slot.

  // The pusher writes these ...
  alignas(kCacheLine) std::atomic<std::uint64_t> pushed_;  ///< Release; pop reads it (acquire).
  std::uint64_t arena_head_ = 0;                           ///< End of the newest room.
  std::uint64_t arena_base_ = 0;  ///< Everything before it is free, whatever arena_tail_ says.
  // ... and the popper these.
  alignas(kCacheLine) std::atomic<std::uint64_t> popped_;  ///< Release; push reads (acquire).
  std::atomic<std::uint64_t> arena_tail_{0};               ///< Before popped_.
  std::atomic<const char*> broken_{nullptr};
};

/// The worker's end.
class MailboxWorker {
 public:
  enum class WaitResult : std::uint8_t {
    frame,        ///< take() will find one.
    interrupted,  ///< interrupt() was called since the last wait() that returned this.
    broken,       ///< See broken().
  };
  enum class TakeResult : std::uint8_t {
    nothing,
    frame,
    broken,  ///< The parent's end is broken, or the frame is malformed: see broken().
  };
  struct Taken {
    TakeResult result = TakeResult::nothing;
    std::uint64_t number = 0;   ///< For cancelled().
    SubmissionView frame = {};  ///< Valid until the next take().
  };

  /// Maps the mailbox. `completion_fd` is the eventfd that wakes the parent; both it and `budget`
  /// outlive this object. Without a budget wait() never spins. Throws SystemError, or Error for
  /// memory that is no mailbox.
  MailboxWorker(int memfd, int completion_fd, SpinnerBudget* budget);

  /// Returns once there is a frame to take, or an interruption: spins for some microseconds if the
  /// budget has a place, then sleeps. Of two reasons it says `interrupted`.
  [[nodiscard]] WaitResult wait() noexcept;
  /// Makes wait() return, now or when it is next called. Async-signal-safe.
  void interrupt() noexcept;

  /// Takes the next frame, if it is there; it counts as begun. May allocate for a frame that is
  /// longer than all before it.
  [[nodiscard]] Taken take();
  /// Completes the oldest frame that was taken and not completed, which must be `frame.dispatch`,
  /// and wakes the parent if it sleeps.
  void complete(const CompletionFrame& frame) noexcept;
  /// Whether the parent asked for the frame to be cancelled.
  [[nodiscard]] bool cancelled(std::uint64_t number) const noexcept {
    return header_->cancel[number & mask_].load(std::memory_order_acquire) == cancel_mark(number);
  }
  /// Why the parent's end is broken, or empty. For the thread that takes.
  [[nodiscard]] std::string_view broken() const noexcept { return broken_; }

 private:
  static constexpr std::string_view kBrokenRing =
      "its submission ring holds a number that no frame has";
  enum class Look : std::uint8_t { nothing, there, broken };
  [[nodiscard]] Look look() const noexcept;
  [[nodiscard]] bool spin() noexcept;
  [[nodiscard]] bool parent_comes() const noexcept;
  /// Makes copy_ that large.
  void make_room(std::size_t bytes);
  [[nodiscard]] Taken report_broken(std::string_view reason) noexcept;

  os::Mapping mapping_;
  MailboxLayout layout_;
  std::uint64_t first_ = 0;
  std::uint64_t mask_ = 0;
  MailboxHeader* header_ = nullptr;
  const SubmissionSlot* submissions_ = nullptr;
  CompletionSlot* completions_ = nullptr;
  const std::byte* arena_ = nullptr;
  int completion_fd_ = -1;
  SpinnerBudget* budget_ = nullptr;

  std::uint64_t taken_ = 0;      ///< Number of the next frame to take.
  std::uint64_t completed_ = 0;  ///< Number of the next frame to complete.
  std::string_view broken_;
  /// The frame in hand, copied before it is checked.
  std::unique_ptr<std::uint64_t[]> copy_;
  std::size_t copy_bytes_ = 0;

  std::atomic<bool> interrupted_{false};
};

}  // namespace strata::ipc
