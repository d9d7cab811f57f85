// Presence: who is inside the engine from outside: guests (threads that wait for a run, look at
// one), completions of external lanes that are being carried out, and holds on the lanes.
//
// All three are counts in one word, so that a completion enters and leaves with one atomic
// operation each, and learns as it leaves whether the lanes are held at that very moment.
//
// Thread safety: every member may be called from any thread.
//
// Invariants
//   (1) While a completion is inside it is also a guest, and the engine's destructor waits for it.
//   (2) Of a hold that begins and a completion that leaves, at least one sees the other: either
//       leave_completion() finds the lanes held and calls `held`, or whoever asks completions()
//       after the hold no longer counts this one.
#pragma once

#include <atomic>
#include <cstdint>

namespace strata::graph {

class Presence {
 public:
  void enter_guest() noexcept { word_.fetch_add(kGuest, std::memory_order_acq_rel); }
  void leave_guest() noexcept { word_.fetch_sub(kGuest, std::memory_order_acq_rel); }
  [[nodiscard]] bool any_guest() const noexcept {
    // Acquire: what the guests did is over.
    return (word_.load(std::memory_order_acquire) & kGuestMask) != 0;
  }

  void enter_completion() noexcept {
    word_.fetch_add(kCompletion + kGuest, std::memory_order_acq_rel);
  }
  /// If the lanes are held, calls held() when the completion no longer counts, still as a guest.
  template <class Held>
  void leave_completion(Held&& held) {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    while (word < kHold) {
      if (word_.compare_exchange_weak(word, word - kCompletion - kGuest, std::memory_order_acq_rel,
                                      std::memory_order_relaxed)) {
        return;
      }
    }
    word_.fetch_sub(kCompletion, std::memory_order_acq_rel);
    held();
    leave_guest();
  }
  /// Completions inside.
  [[nodiscard]] std::uint64_t completions() const noexcept {
    return (word_.load(std::memory_order_acquire) % kHold) / kCompletion;
  }

  void begin_hold() noexcept { word_.fetch_add(kHold, std::memory_order_acq_rel); }
  void end_hold() noexcept { word_.fetch_sub(kHold, std::memory_order_acq_rel); }

 private:
  static constexpr std::uint64_t kGuest = 1;
  static constexpr std::uint64_t kGuestMask = (std::uint64_t{1} << 24) - 1;
  static constexpr std::uint64_t kCompletion = kGuestMask + 1;
  static constexpr std::uint64_t kHold = kCompletion << 24;

  std::atomic<std::uint64_t> word_{0};
};

}  // namespace strata::graph
