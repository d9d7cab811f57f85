// Core pools under random load: all shapes at once, few CPUs, cancellation at any time. What is
// asserted is exact: counts, meetings, who is in the same cluster; never how long it took.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "chip/cores/core_pool.hpp"
#include "support/guard.hpp"
#include "support/on_cpus.hpp"
#include "support/pool_rig.hpp"
#include "support/random.hpp"

namespace strata::chip {
namespace {

using test::Guard;
using test::PoolRig;
using test::Random;
using Counter = std::atomic<std::uint64_t>;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kScale = 1;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
constexpr int kScale = 1;
#else
constexpr int kScale = 5;
#endif
#else
constexpr int kScale = 5;
#endif

/// What all kernels of one test report to.
struct Tally {
  Counter lanes{0};
  Counter wrong{0};
  std::atomic<int> running{0};  ///< Between waits.
  std::atomic<int> most{0};
  void enter() {
    const int now = ++running;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
  }
  void leave() { --running; }
};

void plain(const Kernel& kernel) {
  auto* const tally = kernel.scalar<Tally*>(0);
  tally->enter();
  ++tally->lanes;
  tally->leave();
}
/// Each lane hands its cluster round; all must agree.
void talk(const Kernel& kernel) {
  auto* const tally = kernel.scalar<Tally*>(0);
  if (kernel.lane() == ClusterLane::aic) {
    for (std::uint32_t i = 0; i < 6; ++i) {
      const std::uint32_t message[2] = {kernel.cluster(), i};
      kernel.push(i % 2, std::span(message));
    }
    kernel.wait_flag(0);
    kernel.wait_flag(0);
  } else {
    const unsigned mine = kernel.vector_lane();
    for (std::uint32_t i = mine; i < 6; i += 2) {
      std::uint32_t message[2] = {};
      kernel.pop(mine, std::span(message));
      if (message[0] != kernel.cluster() || message[1] != i) ++tally->wrong;
    }
    kernel.set_flag(ClusterLane::aic, 0);
  }
  ++tally->lanes;
}
void meet(const Kernel& kernel) {
  auto* const tally = kernel.scalar<Tally*>(0);
  auto* const here = kernel.scalar<Counter*>(1);
  const std::uint64_t all = std::uint64_t{kernel.blocks()} * kernel.info().lanes;
  for (std::uint64_t round = 1; round <= 3; ++round) {
    ++*here;
    kernel.barrier();
    if (*here < round * all) ++tally->wrong;
    kernel.barrier();
  }
  ++tally->lanes;
}

/// Starts a random task; returns how many lanes it has.
std::uint64_t start_random(PoolRig& rig, Random& random, Tally& tally, Counter& meeting,
                           std::uint32_t clusters) {
  const auto few = static_cast<std::uint32_t>(1 + random.below(clusters));
  switch (random.below(7)) {
    case 0:
      rig.run(rig.aic(plain), &tally);
      return 1;
    case 1:
      rig.run(rig.aiv(plain).blocks(3 * few), &tally);
      return 3 * few;
    case 2:
      rig.run(rig.mixed(talk, talk, talk).blocks(few), &tally);
      return 3 * few;
    case 3:
      rig.run(rig.mixed(meet, nullptr, meet).blocks(few).together(), &tally, &meeting);
      return 2 * few;
    case 4:
      rig.run(rig.aiv(meet).blocks(few).together(), &tally, &meeting);
      return few;
    case 5:
      rig.run(rig.mixed(meet, meet, meet).blocks(few).together(), &tally, &meeting);
      return 3 * few;
    default:
      rig.run(rig.aiv(plain), &tally);
      return 1;
  }
}

void run_random(const CorePoolOptions& options, std::uint64_t seed, int tasks) {
  PoolRig rig(options);
  Random random(seed);
  Tally tally;
  std::vector<Counter> meetings(static_cast<std::size_t>(tasks));
  std::uint64_t lanes = 0;
  for (int i = 0; i < tasks; ++i) {
    lanes += start_random(rig, random, tally, meetings[static_cast<std::size_t>(i)],
                          options.platform.clusters);
    if (random.chance(5)) (void)rig.pool().status();
    if (random.chance(5)) rig.pool().wake_waits();
    if (random.chance(10)) (void)rig.pool().run_one();
    if (random.chance(2)) rig.wait_all();
  }
  rig.wait_all();
  EXPECT_EQ(tally.lanes, lanes) << "seed " << seed;
  EXPECT_EQ(tally.wrong, 0U) << "seed " << seed;
}

TEST(CorePoolStress, RandomTasksOfAllShapesRunExactlyOnceAndMeet) {
  Guard guard("random tasks");
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(10 * kScale); ++seed) {
    guard.restart("random tasks, seed " + std::to_string(seed));
    const char* const platforms[] = {"a2a3sim:clusters=1", "a2a3sim:clusters=3", "a2a3sim",
                                     "cpu:clusters=2", "cpu:clusters=5"};
    run_random({.platform = Platform::parse(platforms[seed % 5]),
                .threads = static_cast<unsigned>(1 + seed % 4)},
               seed, 120);
  }
}

TEST(CorePoolStress, EightChipsOf24ClustersReachTheEndOnOneCpu) {
  Guard guard("eight chips on one CPU", std::chrono::seconds(600));
  const test::OnCpus one({sched_getcpu()});
  std::vector<std::thread> chips;
  chips.reserve(8);
  for (std::uint64_t chip = 0; chip < 8; ++chip) {
    chips.emplace_back([chip] {
      run_random({.platform = Platform::parse("a2a3sim"), .threads = 1}, 1000 + chip, 8 * kScale);
    });
  }
  for (std::thread& chip : chips)
    chip.join();
}

TEST(CorePoolStress, NoMoreThreadsRunThanMayWhileNothingWaits) {
  Guard guard("threads that may run");
  for (unsigned threads = 1; threads <= 4; ++threads) {
    PoolRig rig("a2a3sim", threads);
    Tally tally;
    Random random(threads);
    std::uint64_t lanes = 0;
    for (int i = 0; i < 2000 * kScale; ++i) {
      const auto blocks = static_cast<std::uint32_t>(1 + random.below(6));
      rig.run(random.chance(50) ? rig.aic(plain).blocks(blocks) : rig.aiv(plain).blocks(blocks),
              &tally);
      lanes += blocks;
      if (random.chance(20)) (void)rig.pool().run_one();
    }
    rig.wait_all();
    EXPECT_EQ(tally.lanes, lanes);
    EXPECT_LE(tally.most, static_cast<int>(threads));
  }
}

TEST(CorePoolStress, CancellationAtAnyTimeEndsAllWaits) {
  Guard guard("cancellation");
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(40 * kScale); ++seed) {
    guard.restart("cancellation, seed " + std::to_string(seed));
    Random random(seed);
    PoolRig rig(seed % 2 == 0 ? "a2a3sim:clusters=3" : "cpu:clusters=3",
                static_cast<unsigned>(1 + seed % 3));
    Signal never{};
    std::vector<PoolRig::Task*> tasks;
    const auto wait_signal = [](const Kernel& kernel) {
      kernel.wait_until(*kernel.scalar<Signal*>(0), Compare::equal, 1);
    };
    const auto wait_flag = [](const Kernel& kernel) { kernel.wait_flag(2); };
    const auto wait_pop = [](const Kernel& kernel) { kernel.pop(3, std::span<int>()); };
    const auto wait_barrier = [](const Kernel& kernel) {
      if (kernel.block() == 0) kernel.wait_until(*kernel.scalar<Signal*>(0), Compare::equal, 1);
      kernel.barrier();
    };
    for (int i = 0; i < 6; ++i) {
      switch (random.below(3)) {
        case 0:
          tasks.push_back(&rig.run(rig.mixed(wait_signal, wait_flag, wait_pop), &never));
          break;
        case 1:
          tasks.push_back(&rig.run(rig.aiv(wait_barrier).blocks(3).together(), &never));
          break;
        default:
          tasks.push_back(&rig.run(rig.aic(wait_signal).blocks(9), &never));
          break;
      }
    }
    for (auto yields = random.below(30); yields > 0; --yields)
      std::this_thread::yield();
    random.shuffle(tasks);
    for (PoolRig::Task* const task : tasks) {
      task->cancelled = true;
      rig.pool().wake_waits();
      if (random.chance(50)) std::this_thread::yield();
    }
    for (const PoolRig::Task* const task : tasks) {
      PoolRig::wait(*task);
      ASSERT_NE(task->error, nullptr);
      EXPECT_THROW(std::rethrow_exception(task->error), Cancelled);
    }
    EXPECT_EQ(never.waiters, 0U);
  }
}

}  // namespace
}  // namespace strata::chip
