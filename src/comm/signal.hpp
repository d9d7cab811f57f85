// Signals: words in shared memory that one side changes and the other waits for, asleep if need be.
//
//   who changes                          who waits
//     value = new        (seq_cst)         ++waiters              (seq_cst)
//     if (waiters != 0)  (seq_cst)         if (value is still old)   (seq_cst)
//       futex wake                           futex wait while it is old
//                                          --waiters
//
// In the one order of all sequentially consistent operations either the store comes before the
// waiter's load, which then sees it, or the waiter's increment comes before the load of `waiters`,
// which then is not zero; so no wake-up is lost, and nobody makes a system call for a side that
// does not sleep. The store is a release and every load an acquire, which is what orders the data.
//
// Thread safety: every function may be called from any thread of any process that maps the signal.
#pragma once

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include "os/futex.hpp"
#include "strata/kernel.hpp"

namespace strata::comm {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

[[nodiscard]] inline std::atomic<std::uint32_t>& value_of(Signal& signal) noexcept {
  return reinterpret_cast<std::atomic<std::uint32_t>&>(signal.value);
}
[[nodiscard]] inline std::atomic<std::uint32_t>& waiters_of(Signal& signal) noexcept {
  return reinterpret_cast<std::atomic<std::uint32_t>&>(signal.waiters);
}

[[nodiscard]] inline std::uint32_t load(Signal& signal) noexcept {
  return value_of(signal).load(std::memory_order_acquire);
}

/// Changes the value. True if someone may sleep, whom the caller has to wake.
[[nodiscard]] inline bool change(Signal& signal, SignalOp op, std::uint32_t value) noexcept {
  if (op == SignalOp::set) {
    value_of(signal).store(value, std::memory_order_seq_cst);
  } else {
    value_of(signal).fetch_add(value, std::memory_order_seq_cst);
  }
  return waiters_of(signal).load(std::memory_order_seq_cst) != 0;
}
inline void wake(Signal& signal) noexcept {
  (void)os::futex_wake_shared(value_of(signal), INT_MAX);
}

/// Sleeps while the value is `seen`, at most until the deadline, or for no reason at all.
inline void sleep_while(Signal& signal, std::uint32_t seen, os::Deadline deadline) noexcept {
  waiters_of(signal).fetch_add(1, std::memory_order_seq_cst);
  if (value_of(signal).load(std::memory_order_seq_cst) == seen)
    (void)os::futex_wait_shared(value_of(signal), seen, deadline);
  waiters_of(signal).fetch_sub(1, std::memory_order_relaxed);
}

[[nodiscard]] constexpr std::string_view sign_of(Compare compare) noexcept {
  constexpr std::string_view kSigns[] = {"==", "!=", ">", ">=", "<", "<="};
  const auto index = static_cast<std::size_t>(compare);
  return index < std::size(kSigns) ? kSigns[index] : "?";
}

/// As numbers, whatever the types: a negative one is below every unsigned one.
template <class A, class B>
[[nodiscard]] constexpr bool holds(A a, Compare compare, B b) noexcept {
  switch (compare) {
    case Compare::equal:
      return std::cmp_equal(a, b);
    case Compare::not_equal:
      return std::cmp_not_equal(a, b);
    case Compare::greater:
      return std::cmp_greater(a, b);
    case Compare::greater_or_equal:
      return std::cmp_greater_equal(a, b);
    case Compare::less:
      return std::cmp_less(a, b);
    case Compare::less_or_equal:
      return std::cmp_less_equal(a, b);
  }
  return false;
}

}  // namespace strata::comm
