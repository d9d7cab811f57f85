// Deadline: a point on CLOCK_MONOTONIC by which something must have happened, or never.
//
// The clock is one for all processes of the machine, so a Deadline may be sent to another process
// (monotonic_ns, from_monotonic_ns). It is what std::chrono::steady_clock is in both standard
// libraries that we build with.
//
// Thread safety: a value.
//
// Invariants
//   (1) Nothing overflows: what is later than the clock can say is never, what is earlier has
//       passed.
//   (2) A wait for remaining() or poll_timeout_ms() never ends before the deadline by rounding.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>

namespace strata::os {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// Never: has not passed and will not.
  constexpr Deadline() noexcept = default;
  [[nodiscard]] static constexpr Deadline never() noexcept { return Deadline(); }

  /// That long from now. Zero or less has passed at once.
  template <class Rep, class Period>
  [[nodiscard]] static Deadline after(std::chrono::duration<Rep, Period> time) noexcept {
    return after_ns(saturated_ns(time));
  }
  [[nodiscard]] static Deadline at(Clock::time_point point) noexcept {
    return point == Clock::time_point::max() ? never()
                                             : Deadline(saturated_ns(point.time_since_epoch()));
  }

  /// Nanoseconds on CLOCK_MONOTONIC; the largest value means never.
  [[nodiscard]] static constexpr Deadline from_monotonic_ns(std::int64_t ns) noexcept {
    return Deadline(ns);
  }
  [[nodiscard]] constexpr std::int64_t monotonic_ns() const noexcept { return ns_; }

  [[nodiscard]] constexpr bool is_never() const noexcept { return ns_ == kNever; }
  [[nodiscard]] bool passed() const noexcept;
  /// Time until then: zero once it has passed, nanoseconds::max() for never.
  [[nodiscard]] std::chrono::nanoseconds remaining() const noexcept;
  /// The same for poll() and epoll_wait(): milliseconds, rounded up; -1 for never.
  [[nodiscard]] int poll_timeout_ms() const noexcept;
  /// For waits of the standard library; time_point::max() for never.
  [[nodiscard]] Clock::time_point time_point() const noexcept;

  /// Orders by time; never is last.
  friend constexpr auto operator<=>(const Deadline&, const Deadline&) noexcept = default;

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  constexpr explicit Deadline(std::int64_t ns) noexcept : ns_(ns) {}
  static Deadline after_ns(std::int64_t ns) noexcept;

  template <class Rep, class Period>
  static constexpr std::int64_t saturated_ns(std::chrono::duration<Rep, Period> time) noexcept {
    using std::chrono::duration;
    using std::chrono::duration_cast;
    using std::chrono::nanoseconds;
    // Compared as floating point, which is coarse but can't overflow; 9.2e18 fits in 64 bits.
    const double ns = duration_cast<duration<double, std::nano>>(time).count();
    if (ns >= 9.2e18) return kNever;
    if (ns <= -9.2e18) return std::numeric_limits<std::int64_t>::min();
    return duration_cast<nanoseconds>(time).count();
  }

  std::int64_t ns_ = kNever;
};

/// The earlier of two.
[[nodiscard]] constexpr Deadline earlier(Deadline a, Deadline b) noexcept { return a < b ? a : b; }

/// CLOCK_MONOTONIC now, in nanoseconds.
[[nodiscard]] std::int64_t monotonic_now_ns() noexcept;

}  // namespace strata::os
