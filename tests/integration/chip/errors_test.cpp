// What goes wrong in a chip program reaches its caller whole: with code, text and place; and the
// chip goes on, or another process takes its place.

#include <csignal>

#include "support/chip_test.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;

class ChipErrors : public ChipTest {
 protected:
  void SetUp() override {
    ChipTest::SetUp();
    start("a2a3sim:clusters=2");
  }

  /// Runs it; the task must fail in its process with that code, and the chip be usable.
  WorkerFault expect_failure(Way way, ErrorCode code, std::int64_t argument = 0) {
    const auto fault = run(way, argument);
    if (!fault) {
      ADD_FAILURE() << "it did not fail";
      return {};
    }
    EXPECT_EQ(fault->code, name_of(code)) << fault->to_string();
    EXPECT_EQ(fault->path, "node/chip[0]");
    EXPECT_THAT(fault->task, HasSubstr("the task"));
    EXPECT_THAT(fault->cause, HasSubstr("[" + std::string(name_of(code)) + "]"));
    expect_usable();
    expect_process(1);
    return *fault;
  }
};

TEST_F(ChipErrors, AKernelThatThrowsIsToldWithWhatAndWhere) {
  const WorkerFault fault = expect_failure(Way::throws, ErrorCode::kernel_threw);
  EXPECT_THAT(fault.cause, AllOf(HasSubstr("element 7 is below zero"), HasSubstr("'throws'"),
                                 HasSubstr("core"), HasSubstr("int64[16]")));
}

TEST_F(ChipErrors, AKernelThatAsksForWhatItHasNotIsTold) {
  const WorkerFault fault = expect_failure(Way::misuse, ErrorCode::kernel_misuse);
  EXPECT_THAT(fault.cause, AllOf(HasSubstr("'misuse'"), HasSubstr("was not given")));
}

TEST_F(ChipErrors, AnOrchestrationThatGivesUpIsToldWithItsCode) {
  const WorkerFault fault = expect_failure(Way::fail, ErrorCode::orchestration_failed, 42);
  EXPECT_THAT(fault.cause, AllOf(HasSubstr("code 42"), HasSubstr("no luck today")));
}

TEST_F(ChipErrors, AnOrchestrationThatThrowsIsToldWithItsText) {
  const WorkerFault fault =
      expect_failure(Way::orchestration_throws, ErrorCode::orchestration_failed);
  EXPECT_THAT(fault.cause, HasSubstr("the orchestration has had enough"));
}

TEST_F(ChipErrors, AKernelThatIsNotThereIsNamedWithThoseThatAre) {
  const WorkerFault fault = expect_failure(Way::unknown_kernel, ErrorCode::unknown_kernel);
  EXPECT_THAT(fault.cause, AllOf(HasSubstr("no_such_kernel"), HasSubstr("wait_for_flag")));
}

TEST_F(ChipErrors, AKernelForOtherCoresIsRefused) {
  const WorkerFault fault = expect_failure(Way::wrong_core, ErrorCode::wrong_core);
  EXPECT_THAT(fault.cause, HasSubstr("'add'"));
}

TEST_F(ChipErrors, MoreBlocksTogetherThanThereAreCoresAreRefused) {
  const WorkerFault fault = expect_failure(Way::too_many_blocks, ErrorCode::too_many_blocks);
  EXPECT_THAT(fault.cause, AllOf(HasSubstr("5"), HasSubstr("4")));
}

TEST_F(ChipErrors, ARecordingThatCantBeMadeSaysWhy) {
  expect_failure(Way::not_recordable, ErrorCode::not_recordable);
}

TEST_F(ChipErrors, TheCodeIsThereForTheCallerOfTheRun) {
  const Run failed = submit(Way::throws);
  bool seen = false;
  with_failure_of(failed, [&](const WorkerError& error) {
    seen = true;
    EXPECT_EQ(error.code(), ErrorCode::kernel_threw);
    EXPECT_NE(dynamic_cast<const RemoteError*>(&error), nullptr);
  });
  EXPECT_TRUE(seen);
}

// ---- Crashes ------------------------------------------------------------------------------------

struct Crash {
  Way way;
  const char* signal;
  const char* kernel;
};

class ChipCrashes : public ChipTest, public testing::WithParamInterface<Crash> {};

TEST_P(ChipCrashes, AKernelThatCrashesIsToldWithItsStackAndTheChipIsReplaced) {
  start("a2a3sim:clusters=2");
  expect_usable();
  const auto fault = run(GetParam().way);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, "kernel_crashed");
  EXPECT_THAT(fault->cause, HasSubstr(GetParam().signal));
  EXPECT_THAT(fault->note, AllOf(HasSubstr(GetParam().kernel), HasSubstr("core"),
                                 HasSubstr("block"), HasSubstr("int64")));
  ASSERT_FALSE(fault->stack.empty());
  std::string stack;
  for (const std::string& frame : fault->stack)
    stack += frame + "\n";
  EXPECT_THAT(stack, HasSubstr(GetParam().kernel));
  EXPECT_THAT(text_, HasSubstr(fault->note));
  expect_process(2);
  expect_usable();
}

INSTANTIATE_TEST_SUITE_P(Chip, ChipCrashes,
                         testing::Values(Crash{Way::crash_segv, "signal 11", "crash_segv"},
                                         Crash{Way::crash_fpe, "signal 8", "crash_fpe"},
                                         Crash{Way::crash_bus, "signal 7", "crash_bus"}),
                         [](const auto& crash) { return std::string(crash.param.kernel + 6); });

class ChipDeaths : public ChipTest {};

TEST_F(ChipDeaths, AnOrchestrationThatCrashesIsNoKernelThatDoes) {
  start("a2a3sim:clusters=2");
  const auto fault = run(Way::crash_orchestration, 8);
  ASSERT_TRUE(fault);
  EXPECT_THAT(fault->cause, AllOf(HasSubstr("[orchestration_crashed]"), HasSubstr("signal 11")));
  EXPECT_EQ(fault->code, "orchestration_crashed");
  EXPECT_THAT(fault->note, AllOf(HasSubstr("the orchestration of program 'ways'"),
                                 HasSubstr("'the task'"), Not(HasSubstr("["))));
  expect_process(2);
  expect_usable();
}

TEST_F(ChipDeaths, AKernelThatCallsExitIsToldWithItsCoreAndTheChipIsReplaced) {
  start("a2a3sim:clusters=2");
  for (const std::int64_t status : {0, 3}) {
    const auto fault = run(Way::exit_in_kernel, status);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->code, "chip_exited") << fault->to_string();
    EXPECT_THAT(fault->cause, AllOf(HasSubstr("[chip_exited]"),
                                    HasSubstr("exit(" + std::to_string(status) + ")")));
    EXPECT_THAT(fault->note, AllOf(HasSubstr("kernel 'exits'"), HasSubstr("core"),
                                   HasSubstr("block 0"), HasSubstr("int64[16]")));
    EXPECT_THAT(fault->task, HasSubstr("'the task'"));
    expect_process(status == 0 ? 2 : 3);
    expect_usable();
    x_ = worker_->create_buffer(16 * sizeof(std::int64_t));  // A failed task leaves it invalid.
  }
}

TEST_F(ChipDeaths, AnOrchestrationThatCallsExitIsTold) {
  start("a2a3sim:clusters=2");
  for (const bool limited : {false, true}) {
    const Call call(ways_);
    const auto fault = run(Way::exit_in_orchestration, 0, limited ? Call(ways_).within(60s) : call);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->code, "chip_exited") << fault->to_string();
    EXPECT_THAT(fault->note, HasSubstr("the orchestration of program 'ways'"));
    expect_process(limited ? 3 : 2);
    expect_usable();
    x_ = worker_->create_buffer(16 * sizeof(std::int64_t));
  }
}

TEST_F(ChipDeaths, AProcessThatEndsWithoutAWordIsToldWithItsStatusAndTask) {
  start("a2a3sim:clusters=2");
  const auto fault = run(Way::leave_in_kernel);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, "chip_exited") << fault->to_string();
  EXPECT_THAT(fault->cause, AllOf(HasSubstr("exited with status 7"), HasSubstr("'the task'"),
                                  HasSubstr("_exit()")));
  expect_process(2);
  expect_usable();
}

TEST_F(ChipDeaths, AChipThatIsKilledInARunHasACode) {
  start("a2a3sim:clusters=2");
  const Run killed = submit(Way::hold);
  ASSERT_TRUE(within(bound(20s), [&] { return at(0) == 1; }));
  ASSERT_EQ(::kill(worker_->processes()[0].pid, SIGKILL), 0);
  const auto fault = test::fault_of(killed);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, "chip_died") << fault->to_string();
  EXPECT_THAT(fault->cause, AllOf(HasSubstr("[chip_died]"), HasSubstr("signal 9"),
                                  HasSubstr("'the task'"), HasSubstr("not by Strata")));
  expect_process(2);
  expect_usable();
}

TEST_F(ChipDeaths, AChipThatTheUserReplacesInARunHasNotDied) {
  start("a2a3sim:clusters=2");
  const Run replaced = submit(Way::hold);
  ASSERT_TRUE(within(bound(20s), [&] { return at(0) == 1; }));
  worker_->replace(worker_->chip(0));
  const auto fault = test::fault_of(replaced);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, "") << fault->to_string();
}

TEST_F(ChipDeaths, WhatTheCrashedChipHadNotBegunIsRunByAnother) {
  WorkerOptions options;
  options.chips = {{.platform = "a2a3sim:clusters=1"}, {.platform = "a2a3sim:clusters=1"}};
  start(std::move(options));
  Buffer other = worker_->create_buffer(64 * 8);
  const Run crashes = submit(Way::crash_segv);
  const Run rest = worker_->submit([&](Orchestration& o) {
    for (std::size_t i = 0; i < 64; ++i) {
      o.submit(Call(ways_), inout(other.tensor(DType::int64, {1}, 8 * i)), scalar(Way::increment),
               scalar(std::int64_t{0}), on(worker_->any_chip()));
    }
  });
  EXPECT_NO_THROW(rest.result());
  EXPECT_THROW(crashes.result(), RunFailed);
  for (const std::int64_t value : other.as<std::int64_t>())
    EXPECT_EQ(value, 1);
}

// ---- Time ---------------------------------------------------------------------------------------

class ChipLimits : public ChipTest {};

TEST_F(ChipLimits, WhatEachCoreWaitsForIsInTheErrorOfARunThatIsPastItsLimit) {
  start("a2a3sim:clusters=2");
  const auto fault = run(Way::wait_for_flag, 0, Call(ways_).within(100ms));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, "deadline_exceeded") << fault->to_string();
  EXPECT_THAT(fault->cause,
              AllOf(HasSubstr("flag 3"), HasSubstr("wait_for_flag"), HasSubstr("core")));
  expect_usable();
  expect_process(1);
}

TEST_F(ChipLimits, TheLimitOfTheCallableCountsWhereTheCallHasNone) {
  start("a2a3sim:clusters=2");
  const CallableId limited =
      worker_->add(Callable::chip_program(ways_file(), {.time_limit = 100ms}));
  const auto fault = run(Way::wait_for_flag, 0, Call(limited));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, "deadline_exceeded");
  expect_usable();
}

TEST_F(ChipLimits, AnOrchestrationThatLoopsIsNamedAsWhatWasRunning) {
  start("a2a3sim:clusters=2");
  const auto fault = run(Way::loop_for_a_while, 0, Call(ways_).within(50ms));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, "deadline_exceeded") << fault->to_string();
  EXPECT_THAT(fault->cause, ContainsRegex("no core was busy: the orchestration itself was running, "
                                          "for [0-9.]+ m?s"));
  expect_usable();
  expect_process(1);
}

TEST_F(ChipLimits, AnOrchestrationThatNeverEndsIsNoKernelThatOverran) {
  start("a2a3sim:clusters=2");
  const auto fault = run(Way::loop, 0, Call(ways_).within(50ms));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, "orchestration_overran") << fault->to_string();
  EXPECT_THAT(fault->cause, ContainsRegex("its orchestration, which has been running for [0-9.]+ "
                                          "m?s, does not return"));
  expect_process(2);
  expect_usable();
}

/// Whose limit it is.
enum class Limit : std::uint8_t { of_the_call, of_the_program, of_the_chip };
class ChipSilence : public ChipTest, public testing::WithParamInterface<Limit> {};

TEST_P(ChipSilence, AStoppedChipIsEndedOnceItsRunsLimitHasLongPassed) {
  WorkerOptions options;
  options.chips = {{.platform = "a2a3sim:clusters=2"}};
  if (GetParam() == Limit::of_the_chip) options.chips[0].run.time_limit = 200ms;
  options.cancel_grace = 100ms;
  start(std::move(options));
  Call call(ways_);
  if (GetParam() == Limit::of_the_call) call = Call(ways_).within(200ms);
  if (GetParam() == Limit::of_the_program) {
    call = Call(worker_->add(Callable::chip_program(ways_file(), {.time_limit = 200ms})));
  }
  ASSERT_FALSE(run(Way::increment, 0, call)) << "it knows the program from here on";
  ASSERT_EQ(::kill(worker_->processes()[0].pid, SIGSTOP), 0);
  const auto fault = run(Way::increment, 0, call);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, "chip_not_answering") << fault->to_string();
  EXPECT_THAT(fault->cause, AllOf(HasSubstr("[chip_not_answering]"), HasSubstr("200 ms"),
                                  HasSubstr("process state T"), HasSubstr("stopped")));
  expect_process(2);
}

std::string name_of_limit(const testing::TestParamInfo<Limit>& limit) {
  constexpr std::array kNames{"call", "program", "chip"};
  return kNames[static_cast<std::size_t>(limit.param)];
}
INSTANTIATE_TEST_SUITE_P(Of, ChipSilence,
                         testing::Values(Limit::of_the_call, Limit::of_the_program,
                                         Limit::of_the_chip),
                         name_of_limit);

TEST_F(ChipLimits, AKernelThatNeverEndsIsToldAndItsProcessReplaced) {
  WorkerOptions options;
  options.chips = {{.platform = "a2a3sim:clusters=2"}};
  start(std::move(options));
  const auto fault = run(Way::spin, 0, Call(ways_).within(100ms));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, "kernel_overran") << fault->to_string();
  EXPECT_THAT(fault->cause, AllOf(HasSubstr("'spin'"), HasSubstr("core")));
  set(0, 0);
  expect_process(2);
  expect_usable();
}

TEST_F(ChipLimits, TasksBehindAKernelThatNeverEndsAreRunByTheNextProcess) {
  start("a2a3sim:clusters=2");
  const CallableId limited =
      worker_->add(Callable::chip_program(ways_file(), {.time_limit = 100ms}));
  Buffer other = worker_->create_buffer(16 * 8);
  const Run stuck = submit(Way::spin, 0, Call(limited));
  const Run behind = worker_->submit([&](Orchestration& o) {
    for (std::size_t i = 0; i < 16; ++i) {
      o.submit(Call(ways_), inout(other.tensor(DType::int64, {1}, 8 * i)), scalar(Way::increment),
               scalar(std::int64_t{0}), on(worker_->any_chip()));
    }
  });
  EXPECT_NO_THROW(behind.result());
  EXPECT_THROW(stuck.result(), RunFailed);
  for (const std::int64_t value : other.as<std::int64_t>())
    EXPECT_EQ(value, 1);
}

TEST_F(ChipLimits, ACancelledRunEndsAndTheChipGoesOn) {
  start("a2a3sim:clusters=2");
  const Run run = submit(Way::hold);
  ASSERT_TRUE(within(bound(20s), [&] { return at(0) == 1; }));
  run.cancel();
  EXPECT_THROW(run.result(), Cancelled);
  set(1, 0);
  expect_usable();
  expect_process(1);
}

TEST_F(ChipLimits, ACancelledWaitEndsAndTheChipGoesOn) {
  start("a2a3sim:clusters=2");
  const Run run = submit(Way::wait_for_flag);
  run.cancel();
  EXPECT_THROW(run.result(), Cancelled);
  expect_usable();
  expect_process(1);
}

TEST_F(ChipLimits, AKernelThatNeverEndsDoesNotHoldUpACloseWhichNamesItsTask) {
  start("a2a3sim:clusters=2");
  const Run run = submit(Way::spin);
  ASSERT_TRUE(within(bound(20s), [&] { return at(0) == 1; }));
  const auto failed = thrown_by<CloseFailed>([&] { worker_->close(300ms); });
  ASSERT_TRUE(failed);
  ASSERT_EQ(failed->faults().size(), 1U);
  EXPECT_THAT(failed->what(), AllOf(HasSubstr("'the task'"), HasSubstr("ways")));
  EXPECT_TRUE(run.done());
}

TEST_F(ChipLimits, TheWorkerClosesWhileAKernelRuns) {
  start("a2a3sim:clusters=2");
  const Run run = submit(Way::hold);
  ASSERT_TRUE(within(bound(20s), [&] { return at(0) == 1; }));
  EXPECT_NO_THROW(worker_->close());
  EXPECT_THROW(run.result(), Cancelled);
}

}  // namespace
}  // namespace strata::test
