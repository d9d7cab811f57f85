#include <algorithm>
#include <string>

#include "ipc/mailbox.hpp"
#include "ipc/mailbox_memory.hpp"
#include "os/futex.hpp"

namespace strata::ipc {
namespace {

/// Rooms of the arena begin on cache lines.
constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t to) noexcept {
  return (n + to - 1) / to * to;
}

}  // namespace

MailboxParent::MailboxParent(int memfd) {
  MappedMailbox mailbox = map_mailbox(memfd);
  layout_ = mailbox.layout;
  first_ = mailbox.first;
  mask_ = layout_.slots - 1;
  header_ = mailbox.header();
  submissions_ = mailbox.submissions();
  completions_ = mailbox.completions();
  arena_ = mailbox.arena();
  mapping_ = std::move(mailbox.mapping);
  records_.resize(layout_.slots);
  pushed_.store(first_, std::memory_order_relaxed);
  popped_.store(first_, std::memory_order_relaxed);
}

// ---- Pushing ------------------------------------------------------------------------------------

MailboxParent::Room MailboxParent::arena_room(std::size_t bytes, bool empty) noexcept {
  const std::uint64_t arena = layout_.arena_bytes;
  if (empty) {
    // Begin anew at offset 0, where the pages have been used before.
    arena_head_ = round_up(arena_head_, arena);
    arena_base_ = arena_head_;
  }
  // Acquire: pairs with the release in pop(). The worker's reads of what lies before the tail
  // happened before its completion was popped.
  const std::uint64_t tail = std::max(arena_tail_.load(std::memory_order_acquire), arena_base_);
  const std::uint64_t size = round_up(bytes, kCacheLine);
  std::uint64_t begin = arena_head_;
  const std::uint64_t to_end = arena - begin % arena;
  if (to_end < size) begin += to_end;  // A room is in one piece.
  if (begin + size - tail > arena) return {};
  arena_head_ = begin + size;
  return {.found = true, .begin = begin};
}

MailboxParent::Pushed MailboxParent::push_quietly(const Submission& submission) noexcept {
  const std::uint64_t number = pushed_.load(std::memory_order_relaxed);
  // Acquire: the slot's last frame was read by the worker before its completion was popped.
  const std::uint64_t popped = popped_.load(std::memory_order_acquire);
  if (number - popped >= layout_.slots) return {.result = PushResult::ring_full};
  const SubmissionWriter writer(submission);
  if (!writer.possible()) return {.result = PushResult::too_long};
  SubmissionSlot& slot = submissions_[number & mask_];
  // The next one, so that its store does not keep wake()'s fence waiting.
  __builtin_prefetch(&submissions_[(number + 4) & mask_], 1);
  if (writer.bytes() <= SubmissionSlot::kFrameBytes) {
    slot.arena_offset = SubmissionSlot::kInline;
    writer.write(slot.frame);
  } else {
    if (writer.bytes() > layout_.arena_bytes) return {.result = PushResult::too_long};
    const Room room = arena_room(writer.bytes(), number == popped);
    if (!room.found) return {.result = PushResult::arena_full};
    const std::uint64_t offset = room.begin % layout_.arena_bytes;
    slot.arena_offset = static_cast<std::uint32_t>(offset);
    writer.write(arena_ + offset);
  }
  slot.bytes = static_cast<std::uint32_t>(writer.bytes());
  records_[number & mask_] = {.dispatch = submission.header.dispatch, .arena_end = arena_head_};
  // Before the frame is published: a popper that sees its completion must see that it was pushed.
  pushed_.store(number + 1, std::memory_order_release);
  slot.sequence.store(number + 1, std::memory_order_release);
  return {.result = PushResult::pushed, .ticket = {number}};
}

void MailboxParent::wake() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Looked at before it is exchanged: the line is the worker's, and mostly says that it is awake.
  if (header_->worker_asleep.load(std::memory_order_relaxed) == 0) return;
  if (header_->worker_asleep.exchange(0, std::memory_order_relaxed) != 0) {
    os::futex_wake_shared(header_->worker_asleep);
  }
}

void MailboxParent::cancel(Ticket ticket) noexcept {
  header_->cancel[ticket.number & mask_].store(cancel_mark(ticket.number),
                                               std::memory_order_release);
}

bool MailboxParent::begun(Ticket ticket) const noexcept {
  const std::uint64_t taken = header_->taken.load(std::memory_order_acquire) - first_;
  // A count that can't be right comes from a worker that wrote where it should not: who knows what
  // it has begun.
  if (taken > pushed_.load(std::memory_order_acquire) - first_) return true;
  return ticket.number - first_ < taken;
}

// ---- Popping ------------------------------------------------------------------------------------

MailboxParent::Look MailboxParent::look(std::uint64_t number) const noexcept {
  const std::uint64_t sequence =
      completions_[number & mask_].sequence.load(std::memory_order_acquire);
  if (sequence == number + 1) {
    // Acquire: only so that it is not read before the sequence.
    return number == pushed_.load(std::memory_order_acquire) ? Look::broken : Look::there;
  }
  const bool first_lap = number - first_ < layout_.slots;
  const std::uint64_t before = first_lap ? 0 : number + 1 - layout_.slots;
  return sequence == before ? Look::nothing : Look::broken;
}

MailboxParent::Popped MailboxParent::report_broken(const char* reason) noexcept {
  const char* none = nullptr;  // The first reason stays.
  broken_.compare_exchange_strong(none, reason, std::memory_order_release,
                                  std::memory_order_relaxed);
  return {.result = PopResult::broken};
}

MailboxParent::Popped MailboxParent::pop() noexcept {
  if (broken_.load(std::memory_order_relaxed) != nullptr) return {.result = PopResult::broken};
  const std::uint64_t number = popped_.load(std::memory_order_relaxed);
  switch (look(number)) {
    case Look::nothing:
      return {};
    case Look::broken:
      return report_broken("its completion ring holds a number that no frame has");
    case Look::there:
      break;
  }
  Popped popped{.result = PopResult::completion, .ticket = {number}};
  copy_once(&popped.frame, &completions_[number & mask_].frame, sizeof popped.frame);
  if (const char* why = check_completion(popped.frame)) return report_broken(why);
  const Record& record = records_[number & mask_];
  if (popped.frame.dispatch != record.dispatch) {
    return report_broken("it completed another task than the one whose turn it was");
  }
  arena_tail_.store(record.arena_end, std::memory_order_release);
  popped_.store(number + 1, std::memory_order_release);
  return popped;
}

bool MailboxParent::can_pop() const noexcept {
  return broken_.load(std::memory_order_relaxed) != nullptr ||
         look(popped_.load(std::memory_order_relaxed)) != Look::nothing;
}

bool MailboxParent::arm() noexcept {
  header_->parent_asleep.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!can_pop()) return true;
  disarm();
  return false;
}

void MailboxParent::disarm() noexcept {
  header_->parent_asleep.store(0, std::memory_order_relaxed);
}

}  // namespace strata::ipc
