#include "os/cpu.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <thread>

namespace strata::os {
namespace {

using Clock = std::chrono::steady_clock;

TEST(Cpu, AllowedCpusFollowsTheThreadsAffinity) {
  const int before = allowed_cpus();
  EXPECT_GE(before, 1);
  // In a thread of its own, whose mask dies with it.
  std::thread([] {
    const int here = sched_getcpu();
    ASSERT_GE(here, 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(here), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(allowed_cpus(), 1);
  }).join();
  EXPECT_EQ(allowed_cpus(), before);
}

TEST(Cpu, CycleCountNeverRunsBackwardsInAThread) {
  std::uint64_t last = cycle_count();
  for (int i = 0; i < 10000; ++i) {
    const std::uint64_t now = cycle_count();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Cpu, CycleCountAgreesWithTheClock) {
  const double rate = cycles_per_ns();
  ASSERT_GT(rate, 0.0);
  EXPECT_EQ(rate, cycles_per_ns());  // Measured once.
  // The clock is read outside the counter and then inside it, so that a preemption can't fail this.
  const auto outer_begin = Clock::now();
  const std::uint64_t begin = cycle_count();
  const auto inner_begin = Clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto inner_end = Clock::now();
  const std::uint64_t end = cycle_count();
  const auto outer_end = Clock::now();
  using Nanoseconds = std::chrono::duration<double, std::nano>;
  const double elapsed = static_cast<double>(end - begin) / rate;
  EXPECT_GT(elapsed, 0.99 * Nanoseconds(inner_end - inner_begin).count());
  EXPECT_LT(elapsed, 1.01 * Nanoseconds(outer_end - outer_begin).count());
}

TEST(Cpu, SpinningPaysOnlyWithASecondCpu) {
  EXPECT_EQ(spinning_pays(), allowed_cpus() > 1);
  cpu_relax();
}

}  // namespace
}  // namespace strata::os
