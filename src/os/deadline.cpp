#include "os/deadline.hpp"

#include <time.h>

namespace strata::os {

std::int64_t monotonic_now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // Can't fail for this clock.
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Deadline Deadline::after_ns(std::int64_t ns) noexcept {
  const std::int64_t now = monotonic_now_ns();  // Not negative, so only one side can overflow.
  return Deadline(ns > kNever - now ? kNever : now + ns);
}

bool Deadline::passed() const noexcept { return !is_never() && monotonic_now_ns() >= ns_; }

std::chrono::nanoseconds Deadline::remaining() const noexcept {
  using std::chrono::nanoseconds;
  if (is_never()) return nanoseconds::max();
  const std::int64_t now = monotonic_now_ns();
  return nanoseconds(ns_ <= now ? 0 : ns_ - now);
}

int Deadline::poll_timeout_ms() const noexcept {
  if (is_never()) return -1;
  constexpr std::int64_t kNsPerMs = 1'000'000;
  const std::int64_t left = remaining().count();
  const std::int64_t ms = left / kNsPerMs + (left % kNsPerMs != 0 ? 1 : 0);
  // 24 days; whoever waits looks again.
  constexpr std::int64_t kLongest = std::numeric_limits<int>::max();
  return static_cast<int>(ms < kLongest ? ms : kLongest);
}

Deadline::Clock::time_point Deadline::time_point() const noexcept {
  if (is_never()) return Clock::time_point::max();
  return Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(ns_)));
}

}  // namespace strata::os
