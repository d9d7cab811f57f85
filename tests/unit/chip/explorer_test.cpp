// Exploring schedules: one lane at a time, in an order that the seed alone decides.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "chip/cores/core_pool.hpp"
#include "support/pool_rig.hpp"

namespace strata::chip {
namespace {

using test::PoolRig;

/// What happened, in order; and that nothing happened at the same time.
struct Story {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::atomic<int> inside{0};
  std::atomic<int> overlaps{0};
  void tell(const Kernel& kernel, const char* what) {
    if (inside++ != 0) ++overlaps;
    {
      const std::lock_guard lock(mutex);
      lines.push_back(std::to_string(kernel.scalar<int>(1)) + what + std::to_string(kernel.core()) +
                      "." + std::to_string(kernel.block()));
    }
    --inside;
  }
};
void tell(const Kernel& kernel) { kernel.scalar<Story*>(0)->tell(kernel, "at"); }
void tell_and_meet(const Kernel& kernel) {
  kernel.scalar<Story*>(0)->tell(kernel, "before");
  kernel.barrier();
  kernel.scalar<Story*>(0)->tell(kernel, "after");
}
void feed(const Kernel& kernel) {
  for (int i = 0; i < 7; ++i) {
    kernel.scalar<Story*>(0)->tell(kernel, "feeds");
    kernel.push(0, std::span<const int>(&i, 1));
  }
}
void eat(const Kernel& kernel) {
  for (int i = 0; i < 7; ++i) {
    int value = 0;
    kernel.pop(0, std::span<int>(&value, 1));
    kernel.scalar<Story*>(0)->tell(kernel, "eats");
  }
}

std::vector<std::string> explore(std::uint64_t seed, unsigned clusters) {
  PoolRig rig("a2a3sim:clusters=" + std::to_string(clusters));
  Story story;
  rig.pool().explore(seed);
  for (int i = 0; i < 6; ++i)
    rig.run(rig.aiv(tell), &story, i);
  rig.run(rig.aic(tell).blocks(5), &story, 6);
  rig.run(rig.mixed(feed, eat), &story, 7);
  rig.run(rig.mixed(feed, eat), &story, 8);
  rig.run(rig.aiv(tell_and_meet).blocks(3).together(), &story, 9);
  // A task that the end of another makes ready.
  auto& first = rig.make(&story, 10);
  first.then = [&] { rig.run(rig.aiv(tell), &story, 11); };
  rig.start(first, rig.aic(tell));
  EXPECT_TRUE(story.lines.empty()) << "only run_one() starts anything";
  while (rig.pool().run_one()) {
  }
  rig.wait_all();
  rig.pool().stop_exploring();
  EXPECT_EQ(story.overlaps, 0);
  return story.lines;
}

TEST(Explorer, ASeedGivesOneOrder) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<std::string> once = explore(seed, 3);
    EXPECT_EQ(once.size(), 6U + 5 + 2 * 14 + 6 + 2);
    EXPECT_EQ(explore(seed, 3), once) << seed;
  }
}

TEST(Explorer, SeedsDifferInWhatGoesFirstAndInWhere) {
  std::set<std::vector<std::string>> orders;
  std::set<std::string> firsts;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const std::vector<std::string> order = explore(seed, 3);
    orders.insert(order);
    firsts.insert(order.front());
  }
  EXPECT_GE(orders.size(), 55U);
  EXPECT_GE(firsts.size(), 12U);
}

TEST(Explorer, SeedZeroIsTheOrderOfSubmission) {
  PoolRig rig("a2a3sim:clusters=3");
  Story story;
  rig.pool().explore(0);
  rig.run(rig.aiv(tell), &story, 0);
  rig.run(rig.aic(tell).blocks(2), &story, 1);
  rig.run(rig.mixed(tell, tell), &story, 2);
  rig.run(rig.aiv(tell), &story, 3);
  while (rig.pool().run_one()) {
  }
  rig.wait_all();
  rig.pool().stop_exploring();
  EXPECT_EQ(story.lines,
            (std::vector<std::string>{"0at1.0", "1at0.0", "1at0.1", "2at0.0", "2at1.0", "3at1.0"}));
}

TEST(Explorer, OneClusterIsEnough) {
  PoolRig rig("a2a3sim:clusters=1");
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Story story;
    rig.pool().explore(seed);
    rig.run(rig.mixed(tell_and_meet, tell_and_meet, tell_and_meet), &story, 0);
    rig.run(rig.aiv(tell_and_meet).blocks(2).together(), &story, 1);
    rig.run(rig.mixed(feed, nullptr, eat).blocks(4), &story, 2);
    while (rig.pool().run_one()) {
    }
    rig.wait_all();
    rig.pool().stop_exploring();
    EXPECT_EQ(story.lines.size(), 6U + 4 + 4 * 14);
    // Back to threads as usual.
    rig.run(rig.aiv(tell).blocks(10), &story, 3);
    rig.wait_all();
    EXPECT_EQ(story.lines.size(), 66U + 10);
  }
}

TEST(Explorer, ALaneThatWaitsForAnotherTaskIsPassedBy) {
  PoolRig rig("a2a3sim:clusters=1");
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Signal signal{};
    Story story;
    rig.pool().explore(seed);
    rig.run(rig.aic([](const Kernel& kernel) {
      kernel.wait_until(*kernel.scalar<Signal*>(2), Compare::equal, 1);
      tell(kernel);
    }),
            &story, 0, &signal);
    rig.run(rig.aiv([](const Kernel& kernel) {
      tell(kernel);
      kernel.notify(*kernel.scalar<Signal*>(2), 1);
    }),
            &story, 1, &signal);
    while (rig.pool().run_one()) {
    }
    rig.wait_all();
    rig.pool().stop_exploring();
    ASSERT_EQ(story.lines.size(), 2U);
    EXPECT_EQ(story.lines[1][0], '0');
  }
}

TEST(Explorer, ASignalFromOutsideEndsAWaitWhileNobodyConducts) {
  PoolRig rig("a2a3sim:clusters=2");
  PoolRig other("a2a3sim:clusters=1");
  Story story;
  Signal signal{};
  rig.pool().explore(3);
  rig.run(rig.mixed(
              [](const Kernel& kernel) {
                kernel.wait_until(*kernel.scalar<Signal*>(2), Compare::equal, 1);
                kernel.set_flag(ClusterLane::aiv0, 0);
              },
              [](const Kernel& kernel) { kernel.wait_flag(0); }),
          &story, 0, &signal);
  while (rig.pool().run_one()) {
  }
  other.run(other.aiv([](const Kernel& kernel) { kernel.notify(*kernel.scalar<Signal*>(0), 1); }),
            &signal);
  rig.wait_all();
  // The threads are as good as before.
  for (int i = 0; i < 20; ++i)
    rig.run(rig.mixed(feed, eat), &story, i);
  while (rig.pool().run_one()) {
  }
  rig.wait_all();
  EXPECT_EQ(story.lines.size(), 20U * 14);
  rig.pool().stop_exploring();
}

TEST(Explorer, CancellationEndsWaitsWhileNobodyConducts) {
  PoolRig rig("a2a3sim:clusters=2");
  Story story;
  Signal signal{};
  rig.pool().explore(3);
  auto& lanes = rig.run(rig.mixed(
                            [](const Kernel& kernel) {
                              kernel.wait_until(*kernel.scalar<Signal*>(2), Compare::equal, 1);
                            },
                            [](const Kernel& kernel) { kernel.wait_flag(0); },
                            [](const Kernel& kernel) { kernel.wait_flag(1); }),
                        &story, 0, &signal);
  while (rig.pool().run_one()) {
  }
  EXPECT_FALSE(lanes.ended);
  EXPECT_EQ(rig.pool().status().size(), 3U);
  lanes.cancelled = true;
  rig.pool().wake_waits();
  PoolRig::wait(lanes);
  EXPECT_THROW(std::rethrow_exception(lanes.error), Cancelled);
  for (int i = 0; i < 20; ++i)
    rig.run(rig.mixed(feed, eat), &story, i);
  while (rig.pool().run_one()) {
  }
  rig.wait_all();
  EXPECT_EQ(story.lines.size(), 20U * 14);
  rig.pool().stop_exploring();
}

}  // namespace
}  // namespace strata::chip
