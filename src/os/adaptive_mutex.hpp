// AdaptiveMutex: a mutex in four bytes, for critical sections of a few hundred nanoseconds.
//
// Taking it when it is free and giving it back when nobody waits is one atomic operation each. A
// thread that finds it held spins for about a microsecond, if another CPU is there for the holder
// to run on, and then sleeps on a futex. It is not fair: a running thread may take it before one
// that was woken.
//
// Thread safety: it is what it is for. The thread that locks is the one that unlocks; not
// recursive. A Lockable: works with std::lock_guard, std::unique_lock, std::scoped_lock.
//
// Invariants
//   (1) One thread holds it at a time, and what a holder did happens before the next lock()
//       returns.
//   (2) While a thread sleeps, the word is kContended, or a thread that was woken is on its way to
//       make it so. So there is always an unlock to come that makes the next wake.
//   (3) lock() and unlock() make no system call where no two threads meet.
//   (4) unlock() touches no memory of the mutex after it is free: the next holder may destroy it.
//
// Who writes, who reads. `word_` is the only shared word. Every transition into a held state is a
// read-modify-write with acquire; the one transition to kFree is an exchange with release, and the
// acquire that reads kFree pairs with it. Failed attempts read relaxed, since they conclude
// nothing.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>

#include "os/futex.hpp"

namespace strata::os {

class AdaptiveMutex {
 public:
  constexpr AdaptiveMutex() noexcept = default;
  AdaptiveMutex(const AdaptiveMutex&) = delete;
  AdaptiveMutex& operator=(const AdaptiveMutex&) = delete;

  void lock() noexcept {
    if (!try_lock()) lock_contended();
  }

  /// True if the caller holds it now. Never fails while the mutex is free.
  [[nodiscard]] bool try_lock() noexcept {
    std::uint32_t seen = kFree;
    return word_.compare_exchange_strong(seen, kHeld, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }

  /// Requires that the caller holds it.
  void unlock() noexcept {
    const std::uint32_t was = word_.exchange(kFree, std::memory_order_release);
    assert(was != kFree);
    if (was == kContended) futex_wake_one(word_);
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kContended = 2;  ///< Held, and some thread may sleep.

  void lock_contended() noexcept;

  std::atomic<std::uint32_t> word_{kFree};
};

static_assert(sizeof(AdaptiveMutex) == 4);

}  // namespace strata::os
