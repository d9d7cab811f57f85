#include "os/deadline.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <thread>

namespace strata::os {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

TEST(Deadline, NeverHasNotPassedAndIsLast) {
  const Deadline never = Deadline::never();
  EXPECT_TRUE(never.is_never());
  EXPECT_FALSE(never.passed());
  EXPECT_EQ(never.remaining(), nanoseconds::max());
  EXPECT_EQ(never.poll_timeout_ms(), -1);
  EXPECT_EQ(never.time_point(), Deadline::Clock::time_point::max());
  EXPECT_EQ(Deadline::at(Deadline::Clock::time_point::max()), never);
  EXPECT_EQ(Deadline(), never);
  EXPECT_LT(Deadline::after(24h * 365 * 100), never);
}

// Invariant (1)
TEST(Deadline, WhatIsTooLateForTheClockIsNever) {
  EXPECT_TRUE(Deadline::after(nanoseconds::max()).is_never());
  EXPECT_TRUE(Deadline::after(std::chrono::hours::max()).is_never());
  EXPECT_TRUE(Deadline::after(std::chrono::milliseconds::max()).is_never());
  EXPECT_TRUE(Deadline::after(std::chrono::duration<double>(1e300)).is_never());
}

// Invariant (1)
TEST(Deadline, WhatIsEarlierThanTheClockHasPassed) {
  EXPECT_TRUE(Deadline::after(nanoseconds::min()).passed());
  EXPECT_TRUE(Deadline::after(std::chrono::hours::min()).passed());
  EXPECT_TRUE(Deadline::after(0ns).passed());
  EXPECT_TRUE(Deadline::after(-1ns).passed());
  EXPECT_TRUE(Deadline::at(Deadline::Clock::time_point::min()).passed());
  EXPECT_TRUE(Deadline::from_monotonic_ns(std::numeric_limits<std::int64_t>::min()).passed());
  EXPECT_EQ(Deadline::after(-1h).remaining(), 0ns);
  EXPECT_EQ(Deadline::after(-1h).poll_timeout_ms(), 0);
}

// Invariant (2)
TEST(Deadline, PollTimeoutIsRoundedUpAndBounded) {
  EXPECT_GE(Deadline::after(10s).poll_timeout_ms(), 9'000);
  EXPECT_LE(Deadline::after(10s).poll_timeout_ms(), 10'000);
  EXPECT_EQ(Deadline::after(24h * 365).poll_timeout_ms(), std::numeric_limits<int>::max());
  // Whatever part of a millisecond is left, the wait is no shorter.
  for (int us = 1; us < 3000; us += 7) {
    const Deadline deadline = Deadline::after(std::chrono::microseconds(us));
    const int timeout = deadline.poll_timeout_ms();
    const auto left = deadline.remaining();
    EXPECT_GE(std::chrono::milliseconds(timeout), left);
  }
}

TEST(Deadline, IsAPointOnTheSteadyClock) {
  const auto before = Deadline::Clock::now();
  const Deadline deadline = Deadline::after(1h);
  const auto after = Deadline::Clock::now();
  EXPECT_GE(deadline.time_point(), before + 1h);
  EXPECT_LE(deadline.time_point(), after + 1h);
  EXPECT_EQ(Deadline::at(deadline.time_point()), deadline);
  EXPECT_EQ(Deadline::from_monotonic_ns(deadline.monotonic_ns()), deadline);
}

TEST(Deadline, PassesAndStaysPassed) {
  const Deadline deadline = Deadline::after(5ms);
  std::this_thread::sleep_until(deadline.time_point());
  EXPECT_TRUE(deadline.passed());
  EXPECT_EQ(deadline.remaining(), 0ns);
  EXPECT_EQ(deadline.poll_timeout_ms(), 0);
}

TEST(Deadline, EarlierOfTwo) {
  const Deadline soon = Deadline::after(1s);
  const Deadline late = Deadline::after(1h);
  EXPECT_EQ(earlier(soon, late), soon);
  EXPECT_EQ(earlier(late, soon), soon);
  EXPECT_EQ(earlier(Deadline::never(), late), late);
}

}  // namespace
}  // namespace strata::os
