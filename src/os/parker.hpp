// Parker: how one thread sleeps until another has something for it.
//
// Each thread that may have to sleep owns one. Others put a token into it with unpark(); park()
// takes the token, and sleeps only while there is none. There is room for one token: a hundred
// unparks before a park make that park, and only that one, return at once. So a waiter loops over
// its condition,
//
//     while (!ready.load(std::memory_order_acquire)) parker.park();
//
// and a waker makes the condition true and then unparks. No wake-up is lost, whatever the timing,
// and the condition needs no lock and no sequentially consistent access of its own.
//
// Thread safety: park() and park_until() are for the owning thread only; unpark() for any thread.
//
// Invariants
//   (1) park() returns only with a token, which it takes. An unpark() that comes after a park() has
//       returned leaves its token for the next one.
//   (2) All that a thread did before unpark() happens before the return of the park that takes the
//       token, and so for *every* unpark() that was folded into that token.
//   (3) unpark() makes a system call only if the owner sleeps or is about to, and one per sleep,
//       however many threads unpark at once.
//   (4) unpark() touches no memory of the Parker after its token can be taken: the owner may
//       destroy the Parker as soon as it knows that no further unpark() will begin.
//
// Who writes, who reads. `state_` is the only shared word. Wakers write kToken with release and the
// owner takes it with acquire; both are always read-modify-writes, even where the value stays the
// same, since a release sequence that runs through every waker's exchange is what gives (2). The
// owner's other writes (kSleeping, kEmpty) publish nothing. Only the owner writes kEmpty and
// kSleeping.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "os/futex.hpp"

namespace strata::os {

class Parker {
 public:
  Parker() = default;
  Parker(const Parker&) = delete;
  Parker& operator=(const Parker&) = delete;

  /// Takes the token; sleeps until there is one.
  void park() noexcept {
    if (!begin_sleep()) return;
    do {
      futex_wait(state_, kSleeping);
    } while (state_.load(std::memory_order_relaxed) == kSleeping);  // A stray wake.
    (void)take();
  }

  /// The same, until the deadline. True if it took a token; with a deadline that has passed it
  /// takes one that is there, and never sleeps.
  [[nodiscard]] bool park_until(std::chrono::steady_clock::time_point deadline) noexcept {
    if (!begin_sleep()) return true;
    while (state_.load(std::memory_order_relaxed) == kSleeping) {
      if (!futex_wait_until(state_, kSleeping, deadline)) break;
    }
    return take();  // Not always false after a time-out: a token may have come in between.
  }

  /// Leaves a token, and wakes the owner if it sleeps.
  void unpark() noexcept {
    // Release: pairs with the acquire in take() and begin_sleep().
    if (state_.exchange(kToken, std::memory_order_release) == kSleeping) futex_wake_one(state_);
  }

 private:
  static constexpr std::uint32_t kEmpty = 0;
  static constexpr std::uint32_t kToken = 1;     ///< unpark() was here.
  static constexpr std::uint32_t kSleeping = 2;  ///< The owner sleeps or is about to; wake it.

  /// Takes the token if there is one; otherwise announces the sleep and returns true.
  bool begin_sleep() noexcept {
    std::uint32_t seen = kEmpty;
    // Relaxed where it succeeds: the announcement publishes nothing. Where it fails a token is
    // there, and take() is what acquires.
    if (state_.compare_exchange_strong(seen, kSleeping, std::memory_order_relaxed)) return true;
    return !take();
  }

  /// Back to kEmpty. True if there was a token. Acquire: pairs with the release in unpark().
  bool take() noexcept { return state_.exchange(kEmpty, std::memory_order_acquire) == kToken; }

  std::atomic<std::uint32_t> state_{kEmpty};
};

}  // namespace strata::os
