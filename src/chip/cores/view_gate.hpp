// ViewGate: lets one thread look at what another uses, at no cost for the user but one atomic
// operation when it is done.
//
// The user opens the gate when there is something to see and closes it before that goes away. A
// viewer that finds it open keeps it so until the end of its look; close() waits for that.
//
// Thread safety: open() and close() are for one thread at a time, the user's; begin_view() and
// end_view() for any, and one viewer at a time gets in.
//
// Invariants
//   (1) What happened before open() happens before a begin_view() that returns true.
//   (2) What a viewer read was read before close() returns.
//   (3) open() and close() make no system call where no viewer is.
#pragma once

#include <atomic>
#include <cstdint>

#include "os/futex.hpp"

namespace strata::chip {

class ViewGate {
 public:
  /// Requires that it is closed. Release: (1).
  void open() noexcept { word_.store(kOpen, std::memory_order_release); }

  void close() noexcept {
    std::uint32_t seen = kOpen;
    // Acquire: pairs with the release of end_view(), (2).
    if (!word_.compare_exchange_strong(seen, kClosed, std::memory_order_acquire,
                                       std::memory_order_relaxed)) [[unlikely]] {
      close_viewed();
    }
  }

  /// False if there is nothing to see, or another looks.
  [[nodiscard]] bool begin_view() noexcept {
    std::uint32_t seen = kOpen;
    return word_.compare_exchange_strong(seen, kViewed, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  /// Whether somebody looks now.
  [[nodiscard]] bool is_viewed() const noexcept {
    return word_.load(std::memory_order_relaxed) >= kViewed;
  }
  void end_view() noexcept {
    if (word_.exchange(kOpen, std::memory_order_release) == kAwaited) os::futex_wake_one(word_);
  }

 private:
  static constexpr std::uint32_t kClosed = 0;
  static constexpr std::uint32_t kOpen = 1;
  static constexpr std::uint32_t kViewed = 2;
  static constexpr std::uint32_t kAwaited = 3;  ///< Viewed, and close() sleeps.

  void close_viewed() noexcept {
    for (;;) {
      std::uint32_t seen = kViewed;
      (void)word_.compare_exchange_strong(seen, kAwaited, std::memory_order_relaxed);
      os::futex_wait(word_, kAwaited);
      seen = kOpen;
      if (word_.compare_exchange_strong(seen, kClosed, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
        return;
      }
    }
  }

  std::atomic<std::uint32_t> word_{kClosed};
};

}  // namespace strata::chip
