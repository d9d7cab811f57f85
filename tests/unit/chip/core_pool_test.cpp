#include "chip/cores/core_pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/pool_rig.hpp"

namespace strata::chip {
namespace {

using test::PoolRig;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Counter = std::atomic<std::uint64_t>;

void count(const Kernel& kernel) { ++*kernel.scalar<Counter*>(0); }

/// Blocks until a test opens it; counts who is inside.
struct Gate {
  std::atomic<bool> open{false};
  std::atomic<unsigned> inside{0};
  std::atomic<unsigned> most{0};
  void pass() {
    const unsigned now = ++inside;
    for (unsigned seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    inside.notify_all();
    open.wait(false);
    --inside;
  }
  void await(unsigned number) {
    for (unsigned now = inside; now < number; now = inside)
      inside.wait(now);
  }
  void let_go() {
    open = true;
    open.notify_all();
  }
};
void pass_gate(const Kernel& kernel) { kernel.scalar<Gate*>(0)->pass(); }

TEST(CorePool, EveryTaskRunsOnceAndItsEndIsToldOnce) {
  for (const unsigned threads : {1U, 2U, 5U}) {
    PoolRig rig("a2a3sim:clusters=4", threads);
    Counter runs{0};
    for (int i = 0; i < 2000; ++i)
      rig.run(i % 3 == 0 ? rig.aic(count) : rig.aiv(count), &runs);
    rig.wait_all();
    EXPECT_EQ(runs, 2000U);
  }
}

struct Blocks {
  std::vector<Counter> runs = std::vector<Counter>(300);
  Counter wrong{0};
};
void note_block(const Kernel& kernel) {
  auto* const blocks = kernel.scalar<Blocks*>(0);
  if (kernel.blocks() != 300) ++blocks->wrong;
  ++blocks->runs.at(kernel.block());
}

TEST(CorePool, MoreBlocksThanCoresRunEachOnce) {
  PoolRig rig("a2a3sim:clusters=2", 3);
  Blocks blocks;
  rig.run(rig.aiv(note_block).blocks(300), &blocks);
  rig.wait_all();
  EXPECT_EQ(blocks.wrong, 0U);
  for (const Counter& runs : blocks.runs)
    EXPECT_EQ(runs, 1U);
}

TEST(CorePool, ATaskOfNoBlocksEndsAtOnce) {
  PoolRig rig("a2a3sim:clusters=2");
  Counter runs{0};
  EXPECT_TRUE(rig.run(rig.aiv(count).blocks(0), &runs).ended);
  EXPECT_EQ(runs, 0U);
}

/// Which cores are in use, each by one block.
struct Cores {
  std::array<std::atomic<int>, 64> inside{};
  Counter collisions{0};
  Counter wrong_cluster{0};
  Counter runs{0};
};
void use_core(const Kernel& kernel) {
  auto* const cores = kernel.scalar<Cores*>(0);
  if (cores->inside.at(kernel.core())++ != 0) ++cores->collisions;
  std::this_thread::yield();
  if (kernel.cluster() != kernel.core() / 3 ||
      static_cast<unsigned>(kernel.lane()) != kernel.core() % 3) {
    ++cores->wrong_cluster;
  }
  --cores->inside.at(kernel.core());
  ++cores->runs;
}

// Invariant (1).
TEST(CorePool, ACoreRunsOneBlockAtATime) {
  PoolRig rig("a2a3sim:clusters=2", 8);
  Cores cores;
  for (int i = 0; i < 300; ++i) {
    rig.run(rig.aiv(use_core).blocks(5), &cores);
    rig.run(rig.aic(use_core), &cores);
    rig.run(rig.mixed(use_core, use_core, use_core).blocks(2), &cores);
    rig.run(rig.mixed(use_core, nullptr, use_core), &cores);
    rig.run(rig.aiv(use_core).blocks(3).together(), &cores);
  }
  rig.wait_all();
  EXPECT_EQ(cores.runs, 300U * (5 + 1 + 6 + 2 + 3));
  EXPECT_EQ(cores.collisions, 0U);
  EXPECT_EQ(cores.wrong_cluster, 0U);
}

TEST(CorePool, NoMoreThreadsRunThanMay) {
  for (const unsigned threads : {1U, 3U}) {
    PoolRig rig("a2a3sim:clusters=8", threads);
    Gate gate;
    for (int i = 0; i < 16; ++i)
      rig.run(rig.aiv(pass_gate), &gate);
    gate.await(threads);
    EXPECT_EQ(rig.pool().thread_count(), threads);
    gate.let_go();
    rig.wait_all();
    EXPECT_EQ(gate.most, threads);
  }
}

TEST(CorePool, ThreadsAreMadeOnlyWhenTheyAreNeeded) {
  PoolRig rig("a2a3sim", 8);
  EXPECT_EQ(rig.pool().thread_count(), 0U);
  Counter runs{0};
  for (int i = 0; i < 50; ++i)
    PoolRig::wait(rig.run(rig.aiv(count), &runs));
  rig.wait_all();
  // One after the other: a second may have been made while the first was on its way to sleep.
  EXPECT_LE(rig.pool().thread_count(), 2U);
}

struct Clusters {
  std::mutex mutex;
  std::vector<std::set<std::uint32_t>> of_block = std::vector<std::set<std::uint32_t>>(40);
  std::vector<std::set<ClusterLane>> lanes = std::vector<std::set<ClusterLane>>(40);
};
void note_cluster(const Kernel& kernel) {
  auto* const clusters = kernel.scalar<Clusters*>(0);
  const std::lock_guard lock(clusters->mutex);
  clusters->of_block[kernel.block()].insert(kernel.cluster());
  clusters->lanes[kernel.block()].insert(kernel.lane());
}
TEST(CorePool, TheLanesOfAMixedBlockAreOfOneCluster) {
  PoolRig rig("a5sim:clusters=5", 4);
  Clusters clusters;
  rig.run(rig.mixed(note_cluster, note_cluster, note_cluster).blocks(40), &clusters);
  rig.wait_all();
  for (std::size_t block = 0; block < 40; ++block) {
    EXPECT_EQ(clusters.of_block[block].size(), 1U) << block;
    EXPECT_EQ(clusters.lanes[block].size(), 3U) << block;
  }
}

TEST(CorePool, AMixedTaskIsNotStarvedBySingleOnes) {
  PoolRig rig("a2a3sim:clusters=1", 3);
  // Both AIVs are always wanted by single tasks; the mixed one needs both and the AIC at once.
  Counter singles{0};
  Counter mixed{0};
  std::atomic<bool> stop{false};
  std::function<void()> again;
  std::mutex mutex;
  again = [&] {
    const std::lock_guard lock(mutex);
    if (stop) return;
    auto& task = rig.make(&singles);
    task.then = again;
    rig.start(task, rig.aiv(count));
  };
  for (int i = 0; i < 4; ++i)
    again();
  PoolRig::Task* last = nullptr;
  for (int i = 0; i < 20; ++i) {
    const std::lock_guard lock(mutex);
    last = &rig.run(rig.mixed(count, count, count), &mixed);
  }
  PoolRig::wait(*last);
  stop = true;
  rig.wait_all();
  EXPECT_EQ(mixed, 60U);
}

// ---- Together -----------------------------------------------------------------------------------

TEST(CorePool, MoreBlocksTogetherThanThereIsRoomForAreRefused) {
  PoolRig rig("a2a3sim:clusters=2");
  Counter runs{0};
  const auto refused = [&](const Launch& launch) {
    try {
      rig.run(launch, &runs);
    } catch (const ChipError& error) {
      EXPECT_EQ(error.code(), ErrorCode::too_many_blocks);
      return std::string(error.what());
    }
    return std::string("was taken");
  };
  EXPECT_THAT(refused(rig.aiv(count).blocks(5).together()),
              AllOf(HasSubstr("'task'"), HasSubstr("5 of an AIV"), HasSubstr("room for 4")));
  EXPECT_THAT(refused(rig.aic(count).blocks(3).together()), HasSubstr("room for 2"));
  EXPECT_THAT(refused(rig.mixed(count, count).blocks(3).together()), HasSubstr("room for 2"));
  rig.run(rig.aiv(count).blocks(4).together(), &runs);
  rig.run(rig.mixed(count, count, count).blocks(2).together(), &runs);
  rig.wait_all();
  EXPECT_EQ(runs, 10U);
}

TEST(CorePool, APlatformWithoutAivsRefusesTheirTasks) {
  PoolRig rig("a2a3sim:clusters=2,aivs=0");
  Counter runs{0};
  EXPECT_THROW(rig.run(rig.aiv(count), &runs), ChipError);
  PoolRig one("a2a3sim:clusters=2,aivs=1");
  EXPECT_THROW(one.run(one.mixed(count, count, count), &runs), ChipError);
  one.run(one.mixed(count, count), &runs);
  one.wait_all();
  EXPECT_EQ(runs, 2U);
}

// ---- Clusters of one core -----------------------------------------------------------------------

struct OneCore {
  std::array<std::atomic<int>, 8> tasks{};
  Counter collisions{0};
  Counter runs{0};
};
void use_whole_cluster(const Kernel& kernel) {
  auto* const cores = kernel.scalar<OneCore*>(0);
  const int mine = kernel.scalar<int>(1);
  int none = 0;
  auto& user = cores->tasks.at(kernel.cluster());
  if (!user.compare_exchange_strong(none, mine) && none != mine) ++cores->collisions;
  if (kernel.core() != kernel.cluster()) ++cores->collisions;
  ++cores->runs;
}
void use_and_leave(const Kernel& kernel) {
  use_whole_cluster(kernel);
  std::this_thread::yield();
  kernel.scalar<OneCore*>(0)->tasks.at(kernel.cluster()) = 0;
}
TEST(CorePool, AClusterOfOneCoreRunsOneTaskAtATime) {
  PoolRig rig("cpu:clusters=2", 6);
  OneCore cores;
  int id = 0;
  for (int i = 0; i < 200; ++i) {
    rig.run(rig.aic(use_and_leave), &cores, ++id);
    rig.run(rig.aiv(use_and_leave), &cores, ++id);
    rig.run(rig.aiv(use_and_leave).blocks(2).together(), &cores, ++id);
  }
  rig.wait_all();
  EXPECT_EQ(cores.runs, 800U);
  EXPECT_EQ(cores.collisions, 0U);
}

// ---- Failure and cancellation -------------------------------------------------------------------

void throw_error(const Kernel& /*kernel*/) { throw std::range_error("too much"); }
void throw_number(const Kernel& /*kernel*/) { throw 7; }

TEST(CorePool, WhatAKernelThrowsIsToldWithAllThatIsKnown) {
  PoolRig rig("a2a3sim:clusters=1");
  const std::array<std::int64_t, 4> dims = {4, 8, 8, 1};
  float data[32] = {};
  auto& task = rig.make();
  task.name = "sum";
  task.tensors.push_back({.data = reinterpret_cast<std::byte*>(data),
                          .dims = dims.data(),
                          .buffer = {},
                          .byte_offset = 0,
                          .dtype = DType::float32,
                          .access = Access::in,
                          .tracking = Tracking::full,
                          .rank = 2,
                          .flags = 0});
  rig.start(task, rig.aiv(throw_error));
  EXPECT_EQ(PoolRig::code_of(task), ErrorCode::kernel_threw);
  EXPECT_THAT(PoolRig::error_of(task),
              AllOf(HasSubstr("[kernel_threw]"), HasSubstr("kernel 'kernel0' of program 'tests'"),
                    HasSubstr("task 1 'sum'"), HasSubstr("block 0 of 1"),
                    HasSubstr("core 1 (cluster 0, AIV 0)"), HasSubstr("std::range_error: too much"),
                    HasSubstr("float32[4, 8] at 0x")));
  EXPECT_THAT(PoolRig::error_of(rig.run(rig.aic(throw_number))), HasSubstr("a value of type int"));
}

void count_and_throw_once(const Kernel& kernel) {
  ++*kernel.scalar<Counter*>(0);
  throw std::runtime_error("block " + std::to_string(kernel.block()));
}
TEST(CorePool, TheFirstErrorIsKeptAndTheOtherBlocksAreDropped) {
  PoolRig rig("a2a3sim:clusters=1", 1);
  Counter runs{0};
  auto& task = rig.run(rig.aiv(count_and_throw_once).blocks(1000), &runs);
  EXPECT_THAT(PoolRig::error_of(task), HasSubstr("block 0"));
  EXPECT_EQ(runs, 1U);
  // The pool goes on.
  rig.run(rig.aiv(count).blocks(10), &runs);
  rig.wait_all();
  EXPECT_EQ(runs, 11U);
}

void throw_cancelled(const Kernel& /*kernel*/) { throw Cancelled("as I please"); }
TEST(CorePool, CancelledPassesThroughAsItself) {
  PoolRig rig("a2a3sim:clusters=1");
  auto& task = rig.run(rig.aiv(throw_cancelled));
  PoolRig::wait(task);
  EXPECT_THROW(std::rethrow_exception(task.error), Cancelled);
  EXPECT_EQ(PoolRig::error_of(task), "as I please");
}

TEST(CorePool, BlocksOfACancelledTaskDoNotBegin) {
  PoolRig rig("a2a3sim:clusters=1", 1);
  Gate gate;
  Counter runs{0};
  rig.run(rig.aiv(pass_gate), &gate);
  gate.await(1);
  auto& task = rig.run(rig.aiv(count).blocks(50), &runs);
  task.cancelled = true;
  rig.pool().wake_waits();
  gate.let_go();
  PoolRig::wait(task);
  EXPECT_THROW(std::rethrow_exception(task.error), Cancelled);
  EXPECT_EQ(runs, 0U);
}

// ---- Control ------------------------------------------------------------------------------------

TEST(CorePool, NothingStartsWhileThePoolIsHeld) {
  PoolRig rig("a2a3sim:clusters=2", 2);
  Counter runs{0};
  rig.pool().hold();
  for (int i = 0; i < 10; ++i)
    rig.run(rig.aiv(count), &runs);
  EXPECT_FALSE(rig.pool().run_one());
  EXPECT_EQ(rig.pool().thread_count(), 0U);
  EXPECT_EQ(runs, 0U);
  rig.pool().release();
  rig.wait_all();
  EXPECT_EQ(runs, 10U);
}

TEST(CorePool, AThreadThatHelpsRunsBlocksAndWakesNobody) {
  PoolRig rig("a2a3sim:clusters=2", 1);
  Counter runs{0};
  ASSERT_TRUE(rig.pool().try_become_helper());
  EXPECT_FALSE(rig.pool().try_become_helper());
  rig.run(rig.aiv(count), &runs);
  EXPECT_EQ(rig.pool().thread_count(), 0U);
  EXPECT_TRUE(rig.pool().run_one());
  EXPECT_EQ(runs, 1U);
  EXPECT_FALSE(rig.pool().run_one());
  EXPECT_EQ(rig.pool().thread_count(), 0U);
  // What it leaves behind is seen to.
  rig.run(rig.aiv(count), &runs);
  rig.pool().stop_helping();
  rig.wait_all();
  EXPECT_EQ(runs, 2U);
}

TEST(CorePool, MoreThreadsRunOnceMoreAreAllowed) {
  PoolRig rig("a2a3sim:clusters=4", 1);
  Gate gate;
  for (int i = 0; i < 4; ++i)
    rig.run(rig.aiv(pass_gate), &gate);
  gate.await(1);
  rig.pool().set_threads(4);
  gate.await(4);
  gate.let_go();
  rig.wait_all();
  EXPECT_EQ(gate.most, 4U);
}

// ---- Reports ------------------------------------------------------------------------------------

TEST(CorePool, TheStatusSaysWhatEachCoreRuns) {
  PoolRig rig("a2a3sim:clusters=2", 1);
  EXPECT_TRUE(rig.pool().status().empty());
  Gate gate;
  auto& task = rig.make(&gate);
  task.name = "slow";
  rig.start(task, rig.aic(pass_gate));
  gate.await(1);
  const std::vector<CoreStatus> status = rig.pool().status();
  ASSERT_EQ(status.size(), 1U);
  EXPECT_EQ(status[0].state, CoreStatus::State::running);
  EXPECT_EQ(status[0].core, 0U);
  EXPECT_NE(status[0].thread, 0);
  EXPECT_THAT(status[0].to_string(),
              AllOf(HasSubstr("core 0 (cluster 0, AIC) runs kernel 'kernel0', task 1 'slow'"),
                    HasSubstr("block 0 of 1")));
  gate.let_go();
  rig.wait_all();
}

struct Description {
  char text[512];
  std::size_t size = 0;
};
void describe(const Kernel& kernel) {
  auto* const description = kernel.scalar<Description*>(0);
  description->size = describe_current_block(description->text, sizeof description->text);
}
TEST(CorePool, TheBlockThatAThreadRunsCanBeDescribed) {
  PoolRig rig("a2a3sim:clusters=1");
  Description description;
  rig.run(rig.aic(describe), &description);
  rig.wait_all();
  EXPECT_EQ(std::string(description.text, description.size),
            "kernel 'kernel0' of program 'tests', task 1 'task', block 0 of 1, core 0 (cluster 0, "
            "AIC); its arguments: none");
  EXPECT_EQ(describe_current_block(description.text, sizeof description.text), 0U);
}

}  // namespace
}  // namespace strata::chip
