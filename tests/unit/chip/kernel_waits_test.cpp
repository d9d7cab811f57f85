// How kernels wait for each other: flags, pipes, barriers, signals; and waits that can't end.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "chip/cores/core_pool.hpp"
#include "support/pool_rig.hpp"

namespace strata::chip {
namespace {

using test::PoolRig;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using Counter = std::atomic<std::uint64_t>;

/// Waits for a report that has the text. The lane that it is about sleeps, and so stays.
void await_status(PoolRig& rig, const std::string& text) {
  for (;;) {
    for (const CoreStatus& core : rig.pool().status()) {
      if (core.to_string().find(text) != std::string::npos) return;
    }
    std::this_thread::yield();
  }
}

// ---- Flags --------------------------------------------------------------------------------------

struct PingPong {
  std::uint64_t rounds = 0;
  std::uint64_t value = 0;  ///< Not atomic: the flags order the lanes.
  Counter wrong{0};
};
void ping(const Kernel& kernel) {
  auto* const game = kernel.scalar<PingPong*>(0);
  for (std::uint64_t i = 0; i < game->rounds; ++i) {
    game->value = 2 * i + 1;
    kernel.set_flag(ClusterLane::aiv0, 3);
    kernel.wait_flag(5);
    if (game->value != 2 * i + 2) ++game->wrong;
  }
}
void pong(const Kernel& kernel) {
  auto* const game = kernel.scalar<PingPong*>(0);
  for (std::uint64_t i = 0; i < game->rounds; ++i) {
    kernel.wait_flag(3);
    if (game->value != 2 * i + 1) ++game->wrong;
    game->value = 2 * i + 2;
    kernel.set_flag(ClusterLane::aic, 5);
  }
}

TEST(KernelWaits, WhatComesBeforeASetFlagHappensBeforeTheWaitReturns) {
  for (const unsigned threads : {1U, 2U, 4U}) {
    for (const char* platform : {"a2a3sim:clusters=2", "cpu:clusters=2"}) {
      PoolRig rig(platform, threads);
      PingPong game{.rounds = 1000};
      EXPECT_EQ(PoolRig::error_of(rig.run(rig.mixed(ping, pong), &game)), "");
      EXPECT_EQ(game.wrong, 0U);
      EXPECT_EQ(game.value, 2000U);
    }
  }
}

void raise_five(const Kernel& kernel) {
  for (int i = 0; i < 5; ++i)
    kernel.set_flag(ClusterLane::aiv1, 0);
}
void lower_five(const Kernel& kernel) {
  for (int i = 0; i < 5; ++i)
    kernel.wait_flag(0);
  ++*kernel.scalar<Counter*>(0);
}
TEST(KernelWaits, FlagsCountAndBeginAtZeroInEveryBlock) {
  PoolRig rig("a2a3sim:clusters=1", 2);
  Counter done{0};
  // One more than is taken is left over in each block; a later block must not see it.
  const auto raise_six = [](const Kernel& kernel) {
    raise_five(kernel);
    kernel.set_flag(ClusterLane::aiv1, 0);
  };
  EXPECT_EQ(PoolRig::error_of(rig.run(rig.mixed(raise_six, nullptr, lower_five).blocks(20), &done)),
            "");
  EXPECT_EQ(done, 20U);
  const auto lower_one = [](const Kernel& kernel) { kernel.wait_flag(0); };
  const auto nothing = [](const Kernel& /*kernel*/) {};
  EXPECT_THAT(PoolRig::error_of(rig.run(rig.mixed(nothing, nullptr, lower_one))),
              HasSubstr("can never go on"));
}

// ---- Pipes --------------------------------------------------------------------------------------

struct Stream {
  std::uint64_t messages = 0;
  std::uint64_t sum = 0;
  Counter wrong{0};
};
void send(const Kernel& kernel) {
  const auto* const stream = kernel.scalar<Stream*>(0);
  std::vector<std::uint64_t> data(100);
  for (std::uint64_t i = 0; i < stream->messages; ++i) {
    std::iota(data.begin(), data.end(), i);
    kernel.push(2, std::span(data));
    std::fill(data.begin(), data.end(), 0);  // A copy was sent.
  }
}
void receive(const Kernel& kernel) {
  auto* const stream = kernel.scalar<Stream*>(0);
  std::vector<std::uint64_t> data(100);
  for (std::uint64_t i = 0; i < stream->messages; ++i) {
    kernel.pop(2, std::span(data));
    for (std::uint64_t j = 0; j < 100; ++j) {
      if (data[j] != i + j) ++stream->wrong;
    }
    stream->sum += data[99];
  }
}
TEST(KernelWaits, APipeBringsEveryMessageOnceAndInOrder) {
  for (const unsigned threads : {1U, 3U}) {
    PoolRig rig("a2a3sim:clusters=2", threads);
    Stream stream{.messages = 2000};
    EXPECT_EQ(PoolRig::error_of(rig.run(rig.mixed(send, receive), &stream)), "");
    EXPECT_EQ(stream.wrong, 0U);
    EXPECT_EQ(stream.sum, 2000U * 1999 / 2 + 2000 * 99);
  }
}

void push_one(const Kernel& kernel) {
  const int value[1] = {7};
  kernel.push(0, std::span(value));
}
void push_for_ever(const Kernel& kernel) {
  for (;;)
    push_one(kernel);
}
void pop_one(const Kernel& kernel) {
  int value[1] = {};
  kernel.pop(0, std::span(value));
}
void pop_double(const Kernel& kernel) {
  double value[1] = {};
  kernel.pop(0, std::span(value));
}
void nothing(const Kernel& /*kernel*/) {}

TEST(KernelWaits, AMessageOfAnotherSizeIsMisuse) {
  PoolRig rig("a2a3sim:clusters=1");
  auto& task = rig.run(rig.mixed(push_one, pop_double));
  EXPECT_EQ(PoolRig::code_of(task), ErrorCode::kernel_misuse);
  EXPECT_THAT(PoolRig::error_of(task),
              AllOf(HasSubstr("pops 8 bytes from pipe 0"), HasSubstr("has 4")));
}

TEST(KernelWaits, APipeHasOneLaneAtEachEnd) {
  PoolRig rig("a2a3sim:clusters=1");
  auto& task = rig.run(rig.mixed(pop_one, push_one, push_for_ever));
  EXPECT_EQ(PoolRig::code_of(task), ErrorCode::kernel_misuse);
  EXPECT_THAT(PoolRig::error_of(task), HasSubstr("pushes into pipe 0, and so does AIV"));
}

TEST(KernelWaits, FlagsAndPipesOfATaskOfOneLaneAreMisuse) {
  PoolRig rig("a2a3sim:clusters=1");
  const auto wait = [](const Kernel& kernel) { kernel.wait_flag(1); };
  for (const KernelFunction kernel : {KernelFunction(push_one), KernelFunction(wait)}) {
    auto& task = rig.run(rig.aic(kernel));
    EXPECT_EQ(PoolRig::code_of(task), ErrorCode::kernel_misuse);
    EXPECT_THAT(PoolRig::error_of(task), AllOf(HasSubstr("mixed()"), HasSubstr("task ")));
  }
}

TEST(KernelWaits, NumbersThatThereAreNotAreMisuse) {
  PoolRig rig("a2a3sim:clusters=1");
  const auto flag = [](const Kernel& kernel) { kernel.wait_flag(kFlagsPerCore); };
  const auto other = [](const Kernel& kernel) { kernel.set_flag(ClusterLane::aiv1, 0); };
  const auto pipe = [](const Kernel& kernel) {
    int value[1] = {};
    kernel.push(kPipesPerCluster, std::span(value));
  };
  EXPECT_THAT(PoolRig::error_of(rig.run(rig.mixed(flag, nothing))), HasSubstr("no flag 16"));
  EXPECT_THAT(PoolRig::error_of(rig.run(rig.mixed(pipe, nothing))), HasSubstr("no pipe 8"));
  EXPECT_THAT(PoolRig::error_of(rig.run(rig.mixed(other, nothing))),
              HasSubstr("AIV 1, which this task does not use"));
  const auto tensor = [](const Kernel& kernel) { (void)kernel.tensor(2); };
  auto& task = rig.run(rig.aiv(tensor));
  EXPECT_EQ(PoolRig::code_of(task), ErrorCode::kernel_misuse);
}

TEST(KernelWaits, AWaitThatNobodyIsLeftToEndIsMisuseAndNoHang) {
  PoolRig rig("a2a3sim:clusters=1", 1);
  const auto wait = [](const Kernel& kernel) { kernel.wait_flag(1); };
  auto& flag = rig.run(rig.mixed(nothing, wait));
  EXPECT_EQ(PoolRig::code_of(flag), ErrorCode::kernel_misuse);
  EXPECT_THAT(PoolRig::error_of(flag),
              AllOf(HasSubstr("its flag 1"), HasSubstr("other lanes of the block have returned")));
  EXPECT_THAT(PoolRig::error_of(rig.run(rig.mixed(pop_one, nothing, nothing))),
              HasSubstr("a message in pipe 0"));
  EXPECT_THAT(PoolRig::error_of(rig.run(rig.mixed(push_for_ever, nothing))),
              HasSubstr("room in pipe 0"));
}

TEST(KernelWaits, LanesThatAllWaitForEachOtherAreMisuseAndNoHang) {
  PoolRig rig("a2a3sim:clusters=1", 1);
  const auto wait = [](const Kernel& kernel) { kernel.wait_flag(1); };
  auto& task = rig.run(rig.mixed(wait, pop_one, wait));
  EXPECT_EQ(PoolRig::code_of(task), ErrorCode::kernel_misuse);
  EXPECT_THAT(PoolRig::error_of(task), HasSubstr("all lanes of the block wait for each other"));
}

void fail(const Kernel& /*kernel*/) { throw std::runtime_error("the cause"); }
TEST(KernelWaits, ALaneThatThrowsEndsTheWaitsOfTheOthersAndIsTheCause) {
  PoolRig rig("a2a3sim:clusters=2", 1);
  const auto wait = [](const Kernel& kernel) { kernel.wait_flag(1); };
  const auto meet = [](const Kernel& kernel) { kernel.barrier(); };
  const auto meet_or_fail = [](const Kernel& kernel) {
    if (kernel.block() == 3) fail(kernel);
    kernel.barrier();
  };
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(PoolRig::error_of(rig.run(rig.mixed(wait, fail, wait))), HasSubstr("the cause"));
    EXPECT_THAT(PoolRig::error_of(rig.run(rig.mixed(meet, meet, fail).blocks(2).together())),
                HasSubstr("the cause"));
    EXPECT_THAT(PoolRig::error_of(rig.run(rig.aiv(meet_or_fail).blocks(4).together())),
                HasSubstr("the cause"));
  }
}

// ---- Barriers -----------------------------------------------------------------------------------

struct Rounds {
  std::uint64_t lanes = 0;
  std::uint64_t rounds = 0;
  Counter arrived{0};
  Counter wrong{0};
};
void meet_often(const Kernel& kernel) {
  auto* const rounds = kernel.scalar<Rounds*>(0);
  for (std::uint64_t i = 1; i <= rounds->rounds; ++i) {
    ++rounds->arrived;
    kernel.barrier();
    if (rounds->arrived < i * rounds->lanes) ++rounds->wrong;
    kernel.barrier();
    if (rounds->arrived > i * rounds->lanes) ++rounds->wrong;
    kernel.barrier();
  }
}
TEST(KernelWaits, NobodyLeavesABarrierBeforeAllHaveCome) {
  for (const unsigned threads : {1U, 2U, 7U}) {
    PoolRig rig("a2a3sim:clusters=4", threads);
    Rounds mixed{.lanes = 12, .rounds = 20};
    Rounds aivs{.lanes = 8, .rounds = 20};
    Rounds one{.lanes = 3, .rounds = 20};
    Rounds alone{.lanes = 1, .rounds = 20};
    auto& a = rig.run(rig.mixed(meet_often, meet_often, meet_often).blocks(4).together(), &mixed);
    auto& b = rig.run(rig.aiv(meet_often).blocks(8).together(), &aivs);
    auto& c = rig.run(rig.mixed(meet_often, meet_often, meet_often), &one);
    auto& d = rig.run(rig.aic(meet_often), &alone);
    for (auto* task : {&a, &b, &c, &d})
      EXPECT_EQ(PoolRig::error_of(*task), "");
    EXPECT_EQ(mixed.wrong + aivs.wrong + one.wrong + alone.wrong, 0U);
    EXPECT_EQ(mixed.arrived, 240U);
  }
}

TEST(KernelWaits, ABarrierOverBlocksThatDoNotStartTogetherIsMisuse) {
  PoolRig rig("a2a3sim:clusters=4");
  auto& task = rig.run(rig.aiv([](const Kernel& kernel) { kernel.barrier(); }).blocks(2));
  EXPECT_EQ(PoolRig::code_of(task), ErrorCode::kernel_misuse);
  EXPECT_THAT(PoolRig::error_of(task), HasSubstr("together()"));
}

TEST(KernelWaits, ABarrierThatALaneDoesNotComeToIsMisuseAndNoHang) {
  PoolRig rig("a2a3sim:clusters=4", 1);
  const auto meet = [](const Kernel& kernel) {
    if (kernel.block() != 2) kernel.barrier();
  };
  auto& task = rig.run(rig.aiv(meet).blocks(4).together());
  EXPECT_EQ(PoolRig::code_of(task), ErrorCode::kernel_misuse);
  EXPECT_THAT(PoolRig::error_of(task), HasSubstr("will not come"));
}

void meet(const Kernel& kernel) { kernel.barrier(); }
void wait_flag_one(const Kernel& kernel) { kernel.wait_flag(1); }

TEST(KernelWaits, ALaneAtTheBarrierAndOneThatWaitsForItsFlagAreMisuseAndNoHang) {
  PoolRig rig("a2a3sim:clusters=2", 1);
  for (const auto& launch :
       {rig.mixed(meet, wait_flag_one), rig.mixed(wait_flag_one, meet),
        rig.mixed(meet, meet, pop_one), rig.mixed(pop_one, meet, wait_flag_one),
        rig.mixed(meet, push_for_ever),
        rig.mixed(meet, wait_flag_one, meet).blocks(2).together()}) {
    auto& task = rig.run(launch);
    EXPECT_EQ(PoolRig::code_of(task), ErrorCode::kernel_misuse);
    EXPECT_THAT(PoolRig::error_of(task), HasSubstr("all lanes of the block wait for each other"));
  }
}

TEST(KernelWaits, ALaneThatMayYetSetAFlagIsNotTakenForOneThatWaits) {
  const auto leads = [](const Kernel& kernel) {
    for (int i = 0; i < 200; ++i) {
      kernel.set_flag(ClusterLane::aiv0, 1);
      kernel.barrier();
      kernel.wait_flag(2);
      kernel.barrier();
    }
  };
  const auto follows = [](const Kernel& kernel) {
    for (int i = 0; i < 200; ++i) {
      kernel.wait_flag(1);
      kernel.barrier();
      kernel.set_flag(ClusterLane::aic, 2);
      kernel.barrier();
    }
  };
  const auto meets = [](const Kernel& kernel) {
    for (int i = 0; i < 400; ++i)
      kernel.barrier();
  };
  for (const unsigned threads : {1U, 2U, 6U}) {
    PoolRig rig("a2a3sim:clusters=2", threads);
    EXPECT_EQ(PoolRig::error_of(rig.run(rig.mixed(leads, follows, meets))), "");
    EXPECT_EQ(PoolRig::error_of(rig.run(rig.mixed(leads, follows, meets).blocks(2).together())),
              "");
  }
}

// ---- Signals ------------------------------------------------------------------------------------

void await_signal(const Kernel& kernel) {
  kernel.wait_until(*kernel.scalar<Signal*>(0), kernel.scalar<Compare>(1),
                    kernel.scalar<std::uint32_t>(2));
}
void add_to_signal(const Kernel& kernel) {
  kernel.notify(*kernel.scalar<Signal*>(0), kernel.scalar<std::uint32_t>(1), SignalOp::add);
}
void set_signal(const Kernel& kernel) {
  kernel.notify(*kernel.scalar<Signal*>(0), kernel.scalar<std::uint32_t>(1));
}

TEST(KernelWaits, ASignalEndsTheWaitOfAnotherChipWhenItCompares) {
  PoolRig waiter("a2a3sim:clusters=1", 1);
  PoolRig notifier("a2a3sim:clusters=1", 1);
  for (int round = 0; round < 200; ++round) {
    Signal signal{};
    auto& task = waiter.run(waiter.aiv(await_signal), &signal, Compare::greater_or_equal, 3U);
    for (int i = 0; i < 3; ++i)
      notifier.run(notifier.aiv(add_to_signal), &signal, 1U);
    EXPECT_EQ(PoolRig::error_of(task), "");
    notifier.wait_all();
    EXPECT_EQ(signal.waiters, 0U);
  }
}

TEST(KernelWaits, EveryComparisonOfASignalHolds) {
  PoolRig rig("a2a3sim:clusters=2", 2);
  struct Case {
    Compare compare;
    std::uint32_t operand, before, after;
  };
  for (const Case& c : {Case{Compare::equal, 5, 0, 5}, Case{Compare::not_equal, 0, 0, 1},
                        Case{Compare::greater, 5, 5, 6}, Case{Compare::greater_or_equal, 5, 4, 5},
                        Case{Compare::less, 5, 5, 4}, Case{Compare::less_or_equal, 5, 6, 5},
                        Case{Compare::greater, 0x7fffffff, 3, 0x80000000}}) {
    Signal signal{.value = c.before, .waiters = 0};
    auto& task = rig.run(rig.aiv(await_signal), &signal, c.compare, c.operand);
    await_status(rig, "waits for the signal");
    EXPECT_FALSE(task.ended);
    rig.run(rig.aic(set_signal), &signal, c.after);
    EXPECT_EQ(PoolRig::error_of(task), "");
    rig.wait_all();  // Who notifies looks at the signal once more behind the waiter's back.
  }
}

// The thread sanitizer has no threads in a process that was forked from one with threads.
#ifndef __SANITIZE_THREAD__
TEST(KernelWaits, ASignalReachesAnotherProcess) {
  void* const memory =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const signals = static_cast<Signal*>(memory);
  const pid_t child = fork();  // No pool yet, and so no threads but this one.
  if (child == 0) {
    {
      PoolRig rig("a2a3sim:clusters=1", 1);
      for (std::uint32_t i = 1; i <= 100; ++i) {
        rig.run(rig.aiv(await_signal), &signals[0], Compare::equal, i);
        rig.wait_all();
        rig.run(rig.aiv(set_signal), &signals[1], i);
      }
    }
    _exit(0);
  }
  ASSERT_GT(child, 0);
  {
    PoolRig rig("a2a3sim:clusters=1", 1);
    for (std::uint32_t i = 1; i <= 100; ++i) {
      rig.run(rig.aiv(set_signal), &signals[0], i);
      rig.run(rig.aiv(await_signal), &signals[1], Compare::equal, i);
      rig.wait_all();
    }
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  munmap(memory, 4096);
}
#endif

// ---- Threads, reports, cancellation -------------------------------------------------------------

TEST(KernelWaits, AThreadThatWaitsGivesItsRightToRunAway) {
  PoolRig rig("a2a3sim:clusters=8", 1);
  Signal signal{};
  for (int i = 0; i < 8; ++i)
    rig.run(rig.aic(await_signal), &signal, Compare::equal, 1U);
  // Behind all those, and with one thread allowed.
  rig.run(rig.aiv(set_signal), &signal, 1U);
  rig.wait_all();
  EXPECT_LE(rig.pool().thread_count(), 9U);
}

TEST(KernelWaits, ReportsSayWhatEachLaneWaitsFor) {
  PoolRig rig("a2a3sim:clusters=2", 2);
  Signal signal{};
  const auto release = [](const Kernel& kernel) {
    await_signal(kernel);
    kernel.set_flag(ClusterLane::aiv0, 3);
    kernel.push(1, std::span<const int>());
  };
  const auto flag = [](const Kernel& kernel) { kernel.wait_flag(3); };
  const auto pop = [](const Kernel& kernel) { kernel.pop(1, std::span<int>()); };
  rig.run(rig.mixed(release, flag, pop), &signal, Compare::equal, 1U);
  await_status(rig, "core 0 (cluster 0, AIC) waits for the signal at ");
  await_status(rig,
               "core 1 (cluster 0, AIV 0) waits for its flag 3, which another lane of cluster 0 "
               "sets in kernel 'kernel1', task 1 'task', block 0 of 1");
  await_status(rig, "core 2 (cluster 0, AIV 1) waits for a message in pipe 1 of cluster 0");
  rig.run(rig.aiv(set_signal), &signal, 1U);
  rig.wait_all();
}

TEST(KernelWaits, CancellationEndsEveryKindOfWait) {
  for (const unsigned threads : {1U, 3U}) {
    PoolRig rig("a2a3sim:clusters=3", threads);
    Signal signal{};
    const auto flag = [](const Kernel& kernel) { kernel.wait_flag(3); };
    const auto pop = [](const Kernel& kernel) { kernel.pop(1, std::span<int>()); };
    const auto meet_late = [](const Kernel& kernel) {
      if (kernel.block() == 0) await_signal(kernel);
      kernel.barrier();
    };
    auto& lanes = rig.run(rig.mixed(await_signal, flag, pop), &signal, Compare::equal, 1U);
    auto& blocks = rig.run(rig.aiv(meet_late).blocks(3).together(), &signal, Compare::equal, 1U);
    for (const char* wait : {"its flag 3", "a message in pipe 1", "the signal at",
                             "the barrier of its task, where 2 of 3 lanes are"}) {
      await_status(rig, wait);
    }
    EXPECT_FALSE(lanes.ended);
    EXPECT_FALSE(blocks.ended);
    lanes.cancelled = true;
    blocks.cancelled = true;
    rig.pool().wake_waits();
    for (auto* task : {&lanes, &blocks}) {
      PoolRig::wait(*task);
      ASSERT_NE(task->error, nullptr);
      EXPECT_THROW(std::rethrow_exception(task->error), Cancelled);
    }
  }
}

// Where threads can sleep on two words no timer helps: a cancellation that is missed hangs.
TEST(KernelWaits, ACancellationIsNeverMissedByALaneThatIsAboutToSleepOnASignal) {
  PoolRig rig("a2a3sim:clusters=1", 2);
  Signal signal{};
  for (int round = 0; round < 500; ++round) {
    auto& task = rig.run(rig.aiv(await_signal), &signal, Compare::equal, 1U);
    await_status(rig, "waits for the signal");
    task.cancelled = true;
    rig.pool().wake_waits();
    PoolRig::wait(task);
    ASSERT_NE(task.error, nullptr);
    EXPECT_THROW(std::rethrow_exception(task.error), Cancelled);
  }
  EXPECT_EQ(signal.waiters, 0U);
}

TEST(KernelWaits, ARunThatIsNotCancelledKeepsWaitingWhenOthersAre) {
  PoolRig rig("a2a3sim:clusters=1", 1);
  Signal signal{};
  auto& task = rig.run(rig.aiv(await_signal), &signal, Compare::equal, 1U);
  await_status(rig, "waits for the signal");
  rig.pool().wake_waits();
  await_status(rig, "waits for the signal");
  EXPECT_FALSE(task.ended);
  rig.run(rig.aiv(set_signal), &signal, 1U);
  EXPECT_EQ(PoolRig::error_of(task), "");
  rig.wait_all();
}

TEST(KernelWaits, AKernelCanSeeThatItsRunWasCancelled) {
  PoolRig rig("a2a3sim:clusters=1");
  Counter begun{0};
  auto& task = rig.make(&begun);
  rig.start(task, rig.aiv([](const Kernel& kernel) {
    auto* const has_begun = kernel.scalar<Counter*>(0);
    *has_begun = 1;
    has_begun->notify_all();
    while (!kernel.cancelled())
      std::this_thread::yield();
  }));
  begun.wait(0);
  task.cancelled = true;
  EXPECT_EQ(PoolRig::error_of(task), "");
}

TEST(KernelWaits, LinesOfKernelsGoToTheLogWithTheKernelsName) {
  std::mutex mutex;
  std::vector<std::string> lines;
  PoolRig rig(CorePoolOptions{.platform = Platform::parse("a2a3sim:clusters=1"),
                              .log = [&](std::string_view line) {
                                const std::lock_guard lock(mutex);
                                lines.emplace_back(line);
                              }});
  rig.run(rig.aiv([](const Kernel& kernel) { kernel.log("here"); }));
  rig.wait_all();
  EXPECT_THAT(lines, Contains("kernel0: here"));
}

}  // namespace
}  // namespace strata::chip
