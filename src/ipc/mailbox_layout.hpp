// The memory of a mailbox: what lies where in the memfd that a parent and a worker share.
//
//   header        one page: fixed facts, the words by which the two sides sleep and wake, and the
//                 cancel words
//   completions   `slots` cache lines
//   submissions   `slots` slots of 512 bytes
//   arena         for submission frames that do not fit their slot
//
// No pointers: the two sides map it at different addresses. A page is touched when it is first
// used, so that a mailbox costs what is used of it.
//
// Frames are counted from `first`, in 64 bits. Frame number n lies in slot n % slots, and is there
// once the slot's sequence word holds n + 1. Before, the word holds n + 1 - slots, or 0 in the
// first lap; any other value was not written by this code.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "ipc/frame.hpp"

namespace strata::ipc {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::uint64_t kMailboxMagic = 0x786f626c69616d53;  // "Smailbox"
inline constexpr std::uint32_t kMailboxVersion = 1;
inline constexpr std::uint32_t kMaxSlots = 256;

struct alignas(kCacheLine) MailboxHeader {
  // ---- Written by make_mailbox, never again ----
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t slots;        ///< A power of two, up to kMaxSlots.
  std::uint64_t arena_bytes;  ///< A power of two.
  std::uint64_t first;        ///< Number of the first frame.

  /// 1 while the worker sleeps or is about to: a futex. The worker writes 1 and 0; the parent, and
  /// the worker's other threads, exchange it to 0 and then wake. All relaxed: what orders it with
  /// the sequence words are the fences that mailbox.hpp explains.
  alignas(kCacheLine) std::atomic<std::uint32_t> worker_asleep;

  /// How many frames the worker has begun (plus `first`). The worker writes it (release) before it
  /// reads the frame's task; the parent reads it (acquire) after the worker's death or for a
  /// report. On a line that nobody else touches, so it costs the worker a store into its own cache.
  alignas(kCacheLine) std::atomic<std::uint64_t> taken;

  /// 1 while the parent sleeps in epoll or is about to. The parent writes 1 and 0, the worker
  /// exchanges it to 0 and then writes the eventfd. Relaxed, as worker_asleep.
  alignas(kCacheLine) std::atomic<std::uint32_t> parent_asleep;

  /// cancel[n % slots] == cancel_mark(n) asks for frame n to be cancelled. The parent writes it
  /// (release), the worker's task polls it (acquire). Needs no reset: the slot's next frame has
  /// another number.
  alignas(kCacheLine) std::atomic<std::uint64_t> cancel[kMaxSlots];
};
/// Never 0, which is what the words hold at first.
constexpr std::uint64_t cancel_mark(std::uint64_t number) noexcept { return (number << 1U) | 1U; }
inline constexpr std::size_t kMailboxHeaderBytes = 4096;
static_assert(sizeof(MailboxHeader) <= kMailboxHeaderBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

/// Written by the parent, read by the worker once `sequence` says that the frame is there.
struct alignas(kCacheLine) SubmissionSlot {
  static constexpr std::size_t kBytes = 512;
  static constexpr std::size_t kFrameBytes = kBytes - 16;
  static constexpr std::uint32_t kInline = std::numeric_limits<std::uint32_t>::max();
  std::atomic<std::uint64_t> sequence;  ///< The parent's release, the worker's acquire.
  std::uint32_t bytes;                  ///< Length of the frame.
  std::uint32_t arena_offset;           ///< Where in the arena it lies, or kInline: below.
  std::byte frame[kFrameBytes];
};
static_assert(sizeof(SubmissionSlot) == SubmissionSlot::kBytes);
static_assert(16 + kSubmissionHeaderBytes == kCacheLine);

/// Written by the worker, read by the parent once `sequence` says that the frame is there.
struct alignas(kCacheLine) CompletionSlot {
  std::atomic<std::uint64_t> sequence;  ///< The worker's release, the parent's acquire.
  CompletionFrame frame;
};
static_assert(sizeof(CompletionSlot) == kCacheLine);

/// Where the parts begin, and how long it all is. Computed by each side from facts that it checked.
struct MailboxLayout {
  std::uint32_t slots = 0;
  std::size_t arena_bytes = 0;

  [[nodiscard]] constexpr std::size_t completions() const noexcept { return kMailboxHeaderBytes; }
  [[nodiscard]] constexpr std::size_t submissions() const noexcept {
    return completions() + page_multiple(slots * sizeof(CompletionSlot));
  }
  [[nodiscard]] constexpr std::size_t arena() const noexcept {
    return submissions() + page_multiple(slots * sizeof(SubmissionSlot));
  }
  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return arena() + arena_bytes; }

 private:
  static constexpr std::size_t page_multiple(std::size_t n) noexcept {
    return (n + 4095) / 4096 * 4096;
  }
};

}  // namespace strata::ipc
