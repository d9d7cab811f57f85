#include <cassert>
#include <utility>

#include "ipc/mailbox.hpp"
#include "ipc/mailbox_memory.hpp"
#include "os/cpu.hpp"
#include "os/event_fd.hpp"
#include "os/futex.hpp"

namespace strata::ipc {
namespace {

/// How long wait() spins: 2 to 4 us for time stamp counters of 4 to 2 GHz. Their exact rate takes
/// 10 ms to measure, which is too much for the start of a process.
constexpr std::uint64_t kSpinCycles = 8000;
/// Looks, each after a pause of some 15 ns, before it asks for a place, and between two readings of
/// the counter.
constexpr int kBriefLooks = 16;
constexpr int kLooksAtOnce = 4;
/// How long a worker gives a parent that sleeps, or has yet to look, to turn up: some 2 us.
constexpr int kPatientLooks = 100;

}  // namespace

MailboxWorker::MailboxWorker(int memfd, int completion_fd, SpinnerBudget* budget)
    : completion_fd_(completion_fd), budget_(budget) {
  MappedMailbox mailbox = map_mailbox(memfd);
  layout_ = mailbox.layout;
  first_ = mailbox.first;
  mask_ = layout_.slots - 1;
  header_ = mailbox.header();
  submissions_ = mailbox.submissions();
  completions_ = mailbox.completions();
  arena_ = mailbox.arena();
  mapping_ = std::move(mailbox.mapping);
  taken_ = first_;
  completed_ = first_;
  make_room(SubmissionSlot::kFrameBytes);
}

void MailboxWorker::make_room(std::size_t bytes) {
  if (bytes <= copy_bytes_) return;
  // Of 64-bit words, so that it is aligned as a frame's parts are.
  copy_ = std::make_unique<std::uint64_t[]>((bytes + 7) / 8);
  copy_bytes_ = bytes;
}

// ---- Waiting ------------------------------------------------------------------------------------

MailboxWorker::Look MailboxWorker::look() const noexcept {
  const std::uint64_t sequence =
      submissions_[taken_ & mask_].sequence.load(std::memory_order_acquire);
  if (sequence == taken_ + 1) return Look::there;
  const bool first_lap = taken_ - first_ < layout_.slots;
  const std::uint64_t before = first_lap ? 0 : taken_ + 1 - layout_.slots;
  return sequence == before ? Look::nothing : Look::broken;
}

bool MailboxWorker::spin() noexcept {
  const auto found = [this](int looks) {
    for (; looks > 0; --looks) {
      os::cpu_relax();
      if (look() != Look::nothing || interrupted_.load(std::memory_order_relaxed)) return true;
    }
    return false;
  };
  if (budget_ == nullptr) return false;
  // So short a time that no place need be asked for: an answer that is under way comes now.
  if (budget_->limit() > 0 && found(kBriefLooks)) return true;
  const SpinnerBudget::Place place = budget_->try_begin();
  if (!place) return false;
  const std::uint64_t begin = os::cycle_count();
  bool there = false;
  do {
    there = found(kLooksAtOnce);
  } while (!there && os::cycle_count() - begin < kSpinCycles);
  budget_->end(place);
  return there;
}

MailboxWorker::WaitResult MailboxWorker::wait() noexcept {
  for (;;) {
    // Acquire: what was done before interrupt() happens before the return.
    if (interrupted_.load(std::memory_order_relaxed) &&
        interrupted_.exchange(false, std::memory_order_acquire)) {
      return WaitResult::interrupted;
    }
    switch (look()) {
      case Look::there:
        return WaitResult::frame;
      case Look::broken:
        (void)report_broken(kBrokenRing);
        return WaitResult::broken;
      case Look::nothing:
        break;
    }
    if (spin()) continue;
    header_->worker_asleep.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (look() == Look::nothing && !interrupted_.load(std::memory_order_relaxed)) {
      (void)os::futex_wait_shared(header_->worker_asleep, 1);
    }
    header_->worker_asleep.store(0, std::memory_order_relaxed);
  }
}

void MailboxWorker::interrupt() noexcept {
  interrupted_.store(true, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (header_->worker_asleep.load(std::memory_order_relaxed) != 0 &&
      header_->worker_asleep.exchange(0, std::memory_order_relaxed) != 0) {
    os::futex_wake_shared(header_->worker_asleep);
  }
}

// ---- Taking and completing ----------------------------------------------------------------------

MailboxWorker::Taken MailboxWorker::report_broken(std::string_view reason) noexcept {
  if (broken_.empty()) broken_ = reason;  // The first reason stays.
  return {.result = TakeResult::broken};
}

MailboxWorker::Taken MailboxWorker::take() {
  if (!broken_.empty()) return {.result = TakeResult::broken};
  switch (look()) {
    case Look::nothing:
      return {};
    case Look::broken:
      return report_broken(kBrokenRing);
    case Look::there:
      break;
  }
  const std::uint64_t number = taken_;
  const SubmissionSlot& slot = submissions_[number & mask_];
  struct {
    std::uint32_t bytes, arena_offset;
  } place;
  copy_once(&place, &slot.bytes, sizeof place);
  const std::byte* from = slot.frame;
  if (place.arena_offset == SubmissionSlot::kInline) {
    if (place.bytes > SubmissionSlot::kFrameBytes) {
      return report_broken("a frame is longer than its slot");
    }
  } else {
    if (place.arena_offset > layout_.arena_bytes ||
        place.bytes > layout_.arena_bytes - place.arena_offset) {
      return report_broken("a frame lies outside the arena");
    }
    from = arena_ + place.arena_offset;
    make_room(place.bytes);
  }
  copy_once(copy_.get(), from, place.bytes);
  Taken taken{.result = TakeResult::frame, .number = number};
  const std::string_view problem =
      taken.frame.decode({reinterpret_cast<const std::byte*>(copy_.get()), place.bytes});
  if (!problem.empty()) return report_broken(problem);
  header_->taken.store(number + 1, std::memory_order_release);
  taken_ = number + 1;
  return taken;
}

void MailboxWorker::complete(const CompletionFrame& frame) noexcept {
  assert(completed_ != taken_ && "nothing was taken that is not completed");
  CompletionSlot& slot = completions_[completed_ & mask_];
  // One that comes soon, so that its store does not keep the fence waiting.
  __builtin_prefetch(&completions_[(completed_ + 4) & mask_], 1);
  slot.frame = frame;
  ++completed_;
  slot.sequence.store(completed_, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (header_->parent_asleep.load(std::memory_order_relaxed) != 0 && !parent_comes() &&
      header_->parent_asleep.exchange(0, std::memory_order_relaxed) != 0) {
    os::EventFd::signal(completion_fd_);
  }
}

/// Whether the parent turns up by itself. One that has just submitted a task often waits for it a
/// moment later, and then withdraws its announcement: that is worth a moment of ours, if there is
/// nothing else to do, since a wake costs both sides more. It is the announcement that is looked at
/// again, so no wake-up is lost.
bool MailboxWorker::parent_comes() const noexcept {
  if (budget_ == nullptr || budget_->limit() == 0) return false;
  for (int looks = kPatientLooks; looks > 0 && look() == Look::nothing; --looks) {
    if (header_->parent_asleep.load(std::memory_order_relaxed) == 0) return true;
    os::cpu_relax();
  }
  return false;
}

}  // namespace strata::ipc
