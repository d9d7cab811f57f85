// futex_wait, futex_wake: sleeping on a word of memory, and waking whoever sleeps there.
//
// A thin layer over the futex system call. It adds types, absolute deadlines and nothing else;
// Parker and AdaptiveMutex are what most code wants. The plain functions use private futexes: every
// thread that waits on or wakes a word is of one process. Those called _shared are for a word in
// memory that processes share; all who use such a word must use them.
//
// Thread safety: every function may be called by any thread at any time.
//
// Invariants
//   (1) A wait sleeps only if the word held `expected` at the instant at which the kernel queued
//       the caller. So a waker that changes the word *before* it wakes is never missed.
//   (2) A wait may return for no reason (a signal, a stray wake). The caller looks at the word
//       again.
//   (3) futex_wait_until returns false only once its deadline has passed.
//   (4) A wake uses the word's address and never its contents. A word that is gone by the time of
//       the wake costs a stray wake of whoever sleeps at that address now, which (2) allows.
//
// Memory order: none is promised here. What the woken thread may read is settled by the atomic
// operations on the word, which the callers of these functions choose.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "os/deadline.hpp"

namespace strata::os {

/// Sleeps while `word` holds `expected`, until a wake or for no reason.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept;

/// The same with a deadline. False if it passed; true if the caller should look at the word.
[[nodiscard]] bool futex_wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                                    std::chrono::steady_clock::time_point deadline) noexcept;

/// Wakes one thread that sleeps on `word`, if there is one. Returns how many it woke.
int futex_wake_one(const std::atomic<std::uint32_t>& word) noexcept;

/// Wakes all threads that sleep on `word`. Returns how many it woke.
int futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept;

/// futex_wait between processes. False if the deadline passed.
bool futex_wait_shared(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                       Deadline deadline = Deadline::never()) noexcept;

/// Sleeps while `shared`, which is for processes, and `own`, which is for this one, both hold what
/// is expected; until a wake of either, or for no reason. Where the kernel can't wait for two words
/// (before Linux 5.16) it sleeps on `shared` alone, and returns after `patience`.
void futex_wait_two(const std::atomic<std::uint32_t>& shared, std::uint32_t expected_shared,
                    const std::atomic<std::uint32_t>& own, std::uint32_t expected_own,
                    std::chrono::milliseconds patience) noexcept;

/// Wakes up to `count` threads, of any process, that sleep on `word`. Returns how many it woke.
int futex_wake_shared(const std::atomic<std::uint32_t>& word, int count = 1) noexcept;

}  // namespace strata::os
