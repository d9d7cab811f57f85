// How runs fail: which error, with which text, and that the chip is usable afterwards.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/exception_text.hpp"
#include "runtime_support.hpp"

namespace strata::chip::test {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- Codes --------------------------------------------------------------------------------------

TEST(ErrorCodes, EveryCodeHasANameOfItsOwnThatLeadsBackToIt) {
  for (unsigned i = 0; i <= static_cast<unsigned>(ErrorCode::chip_not_answering); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    EXPECT_EQ(error_code(name_of(code)), code) << i;
  }
  EXPECT_EQ(error_code("no such code"), ErrorCode::none);
  EXPECT_EQ(name_of(static_cast<ErrorCode>(9999)), "unknown_code");
}

TEST(ErrorCodes, MessageBeginsWithTheCode) {
  EXPECT_STREQ(ChipError(ErrorCode::kernel_threw, "text").what(), "[kernel_threw] text");
}

// ---- Kernels ------------------------------------------------------------------------------------

class ChipErrors : public ::testing::Test {
 protected:
  /// A run after the failure: it must be as if nothing had happened.
  void expect_usable(std::vector<float>& data, const Arguments& arguments) {
    std::fill(data.begin(), data.end(), 0.0F);
    chip_.run(
        [](ChipOrchestration& chip) {
          chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
        },
        arguments);
    EXPECT_THAT(data, Each(1.0F));
  }
  TestChip chip_;
};

TEST_F(ChipErrors, KernelThatThrowsFailsTheRunWithItsWordsAndTheChipIsUsable) {
  std::vector<float> data(8);
  const Arguments arguments = Arguments().add(Access::inout, data);
  const std::string text = chip_.refusal(
      ErrorCode::kernel_threw,
      [](ChipOrchestration& chip) {
        chip.submit(chip.aiv("fails"), out(chip.tensor(0)), named("the bad one"));
        chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
      },
      arguments);
  EXPECT_THAT(text, HasSubstr("the kernel's own words"));
  EXPECT_THAT(text, HasSubstr("fails"));
  EXPECT_THAT(text, HasSubstr("the bad one"));
  expect_usable(data, arguments);
}

TEST_F(ChipErrors, AllFailuresAreListed) {
  const std::string text = chip_.refusal(ErrorCode::kernel_threw, [](ChipOrchestration& chip) {
    chip.submit(chip.aiv("fails"), named("first"));
    chip.submit(chip.aiv("fails"), named("second"));
    chip.submit(chip.aiv("fails"), named("third"));
  });
  for (const char* name : {"first", "second", "third"})
    EXPECT_THAT(text, HasSubstr(name));
}

TEST_F(ChipErrors, ReadOfWhatAFailedTaskShouldHaveWrittenEndsWithTheTasksError) {
  std::vector<float> data(8);
  for (const ChipRunOptions& options : {kDevice, kHostGraph}) {
    const std::string text = chip_.refusal(
        ErrorCode::kernel_threw,
        [](ChipOrchestration& chip) {
          chip.submit(chip.aiv("fails"), out(chip.tensor(0)));
          (void)chip.read<float>(chip.tensor(0), {0});
        },
        Arguments().add(Access::inout, data), options);
    EXPECT_THAT(text, HasSubstr("the kernel's own words"));
  }
}

// ---- Orchestrations -----------------------------------------------------------------------------

TEST_F(ChipErrors, WhatTheOrchestrationThrowsNamesTheProgram) {
  for (const ChipRunOptions& options : {kDevice, kHostGraph}) {
    const std::string text = chip_.refusal(
        ErrorCode::orchestration_failed,
        [](ChipOrchestration&) { throw std::runtime_error("lost"); }, {}, options);
    EXPECT_THAT(text,
                HasSubstr("orchestration of chip program 'tested' threw std::runtime_error: lost"));
    EXPECT_THAT(
        chip_.refusal(
            ErrorCode::orchestration_failed, [](ChipOrchestration&) { throw 7; }, {}, options),
        HasSubstr("not a std::exception"));
  }
}

TEST_F(ChipErrors, SettingsHaveTheirNameOnAChipForWhoeverCatchesTheErrorToo) {
  ChipRunOptions small;
  small.heap = 4096;
  static std::string caught;
  chip_.run(
      [](ChipOrchestration& chip) {
        Tensor large(DType::float32, {10'000});
        try {
          chip.submit(chip.aiv("fill"), out(large), scalar(1.0F));
        } catch (const CapacityError& error) {
          caught = error.what();
        }
      },
      {}, small);
  EXPECT_THAT(caught, HasSubstr("Set ChipRunOptions::heap (or STRATA_CHIP_HEAP) to"));
  EXPECT_THAT(caught, Not(HasSubstr("EngineOptions")));
}

TEST_F(ChipErrors, AnArgumentIsNamedAndNotItsBuffer) {
  std::vector<float> a(8), b(8);
  ChipProgramInfo info = program_of([](ChipOrchestration&) {})->info();
  info.signature.tensors = {{.name = "first", .access = Access::inout},
                            {.name = "second", .access = Access::in}};
  const auto program = std::make_shared<const Program>(
      info, KernelSet{.program = info.name, .kernels = test_kernels()},
      [](ChipOrchestration& chip) { (void)chip.tensor(1).tile({4}, {8}); });
  const Arguments arguments = Arguments().add(Access::inout, a).add(Access::in, b);
  try {
    chip_.run(program, arguments);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("of argument 'second'"));
    EXPECT_THAT(error.what(), Not(HasSubstr("buffer")));
  }
}

TEST_F(ChipErrors, ErrorsOfStrataKeepTheirType) {
  EXPECT_THROW(chip_.run([](ChipOrchestration&) { throw InvalidState("x"); }), InvalidState);
  ChipRunOptions small;
  small.heap = 4096;
  try {
    chip_.run(
        [](ChipOrchestration& chip) {
          Tensor large(DType::float32, {10'000});
          chip.submit(chip.aiv("fill"), out(large), scalar(1.0F));
        },
        {}, small);
    FAIL();
  } catch (const CapacityError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Set ChipRunOptions::heap (or STRATA_CHIP_HEAP) to"));
    EXPECT_EQ(error.facts().setting, "ChipRunOptions::heap (or STRATA_CHIP_HEAP)");
  }
}

TEST(RunFailure, TextOfNestedExceptionsIsWhole) {
  try {
    try {
      throw std::runtime_error("inner");
    } catch (...) {
      std::throw_with_nested(std::runtime_error("outer"));
    }
  } catch (...) {
    EXPECT_EQ(base::message_of(std::current_exception()), "outer: inner");
  }
}

// ---- Cancelling ---------------------------------------------------------------------------------

TEST_F(ChipErrors, RunThatIsWantedNoMoreEndsCancelled) {
  static std::atomic<bool> begun, unwanted;
  begun = unwanted = false;
  const auto program = program_of([](ChipOrchestration& chip) { chip.submit(chip.aiv("begin")); },
                                  {{"begin", CoreType::aiv, [](const Kernel& kernel) {
                                      begun = true;
                                      begun.notify_all();
                                      waits_for_cancel(kernel);
                                    }}});
  std::thread canceller([] {
    begun.wait(false);
    unwanted = true;
  });
  EXPECT_THROW((void)chip_.runtime().run(
                   {.program = program, .cancelled = [](const void*) { return unwanted.load(); }}),
               Cancelled);
  canceller.join();
  std::vector<float> data(8);
  expect_usable(data, Arguments().add(Access::inout, data));
}

TEST_F(ChipErrors, RunThatWasNeverWantedDoesNotBegin) {
  EXPECT_THROW((void)chip_.runtime().run({.program = program_of([](ChipOrchestration&) { FAIL(); }),
                                          .cancelled = [](const void*) { return true; }}),
               Cancelled);
}

// ---- Deadlines ----------------------------------------------------------------------------------

TEST_F(ChipErrors, DeadlineTellsWhatEveryBusyCoreDid) {
  std::vector<float> data(8);
  const Arguments arguments = Arguments().add(Access::inout, data);
  ChipRunOptions limited;
  limited.time_limit = 50ms;
  const std::string text = chip_.refusal(
      ErrorCode::deadline_exceeded,
      [](ChipOrchestration& chip) {
        chip.submit(chip.aiv("waits_for_cancel"), in(chip.tensor(0)), named("patient"));
        chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
      },
      arguments, limited);
  EXPECT_THAT(text, HasSubstr("'tested' did not end within its time limit of 50 ms"));
  EXPECT_THAT(text, HasSubstr("waits_for_cancel"));
  EXPECT_THAT(text, HasSubstr("patient"));
  EXPECT_THAT(text, HasSubstr("float32[8]"));
  EXPECT_THAT(data, Each(0.0F));
  expect_usable(data, arguments);
}

TEST_F(ChipErrors, WaitThatCanNotEndIsToldAtTheDeadline) {
  ChipRunOptions limited;
  limited.time_limit = 50ms;
  const std::string text =
      chip_.refusal(ErrorCode::deadline_exceeded,
                    program_of(
                        [](ChipOrchestration& chip) {
                          const KernelId waits = chip.kernel("waits");
                          chip.submit(chip.mixed(chip.kernel("cube"), waits, waits));
                        },
                        {{"waits", CoreType::aiv,
                          [](const Kernel& kernel) {
                            // A flag that only the other one would set.
                            Signal signal{};
                            kernel.wait_until(signal, Compare::equal, 1);
                          }},
                         {"cube", CoreType::aic, nothing}}),
                    {}, limited);
  EXPECT_THAT(text, HasSubstr("waits for"));
  EXPECT_THAT(text, HasSubstr("'waits'"));
}

TEST_F(ChipErrors, OrchestrationThatWaitsIsEndedAtTheDeadline) {
  ChipRunOptions limited;
  limited.time_limit = 50ms;
  limited.window = 2;
  for (const OrchestrationMode mode : {OrchestrationMode::device, OrchestrationMode::host_graph}) {
    limited.mode = mode;
    (void)chip_.refusal(
        ErrorCode::deadline_exceeded,
        [](ChipOrchestration& chip) {
          const TaskId first = chip.submit(chip.aiv("waits_for_cancel"));
          for (int i = 0; i < 10; ++i)
            chip.submit(chip.aiv("nothing"), after(first));
        },
        {}, limited);
  }
}

TEST_F(ChipErrors, RunThatEndsInTimeIsNotDisturbedByItsLimit) {
  std::vector<float> data(8);
  ChipRunOptions limited;
  limited.time_limit = 1h;
  for (const OrchestrationMode mode : {OrchestrationMode::device, OrchestrationMode::host_graph}) {
    limited.mode = mode;
    for (int i = 0; i < 20; ++i) {
      chip_.run(
          [](ChipOrchestration& chip) {
            for (int k = 0; k < 20; ++k)
              chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
          },
          Arguments().add(Access::inout, data), limited);
    }
  }
  EXPECT_THAT(data, Each(800.0F));
}

std::atomic<bool> let_go;
void does_not_come_back(const Kernel&) {
  while (!let_go)
    std::this_thread::sleep_for(1ms);
}

TEST(ChipStuckTest, KernelThatDoesNotComeBackIsNamedAndTheRuntimeRefusesMore) {
  let_go = false;
  std::vector<float> data(8);
  const Arguments arguments = Arguments().add(Access::inout, data);
  // It can't be destroyed: it is left, with its threads.
  auto* const chip = new TestChip;
  ChipRunOptions limited;
  limited.time_limit = 20ms;
  const auto program = program_of(
      [](ChipOrchestration& o) { o.submit(o.aiv("stays"), in(o.tensor(0)), named("endless")); },
      {{"stays", CoreType::aiv, does_not_come_back}});
  try {
    chip->run(program, arguments, limited);
    FAIL();
  } catch (const ChipStuck& error) {
    EXPECT_EQ(error.code(), ErrorCode::kernel_overran);
    for (const char* part : {"'tested'", "time limit of 20 ms", "'stays'", "'endless'", "core ",
                             "float32[8]", "can't be used any more"}) {
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  }
  EXPECT_THROW(chip->run([](ChipOrchestration&) {}), ChipStuck);
  delete chip;  // Leaves behind what the kernel still uses.
  let_go = true;
}

TEST(ChipStuckTest, KernelThatStillWorksWhenItsRunIsOverHasTimeToReturn) {
  TestChip chip;
  ChipRunOptions limited;
  limited.time_limit = 20ms;
  // Each block ends a while after the deadline, one after the other: longer than the grace in all.
  static std::atomic<int> ended;
  ended = 0;
  limited.threads = 1;
  (void)chip.refusal(ErrorCode::deadline_exceeded,
                     program_of([](ChipOrchestration& o) { o.submit(o.aiv("slow").blocks(4)); },
                                {{"slow", CoreType::aiv,
                                  [](const Kernel& kernel) {
                                    waits_for_cancel(kernel);
                                    std::this_thread::sleep_for(60ms);
                                    ++ended;
                                  }}}),
                     {}, limited);
  EXPECT_GE(ended, 1);
}

// ---- Options and signatures ---------------------------------------------------------------------

TEST_F(ChipErrors, OptionsThatMakeNoSenseAreRefusedByName) {
  const auto refused = [&](const ChipRunOptions& options, const char* name) {
    EXPECT_THAT(chip_.refusal(
                    ErrorCode::bad_configuration, [](ChipOrchestration&) {}, {}, options),
                HasSubstr(name));
  };
  refused({.window = 0}, "window is 0");
  refused({.window = SIZE_MAX}, "window is");
  refused({.heap = 1}, "heap is 1");
  refused({.threads = 0}, "threads is 0");
  refused({.time_limit = 0ns}, "time_limit is 0 ns");
}

TEST(Signature, MismatchesAreRefusedByName) {
  ChipProgramInfo info;
  info.name = "gemm";
  info.signature.tensors = {{.name = "a", .access = Access::in, .dtype = DType::float32, .rank = 2},
                            {.name = "c", .access = Access::out, .dtype = {}, .rank = {}}};
  info.signature.scalars = {"alpha"};
  const Tensor a(DType::float32, {2, 2}), c(DType::int8, {4});
  const auto text = [&](ErrorCode code, std::vector<TensorArg> tensors, std::size_t scalars) {
    try {
      check_signature(info, tensors, scalars);
    } catch (const ChipError& error) {
      EXPECT_EQ(name_of(error.code()), name_of(code));
      return std::string(error.what());
    }
    ADD_FAILURE();
    return std::string();
  };
  EXPECT_NO_THROW(check_signature(info, std::vector<TensorArg>{in(a), out(c)}, 1));
  EXPECT_THAT(text(ErrorCode::wrong_argument_count, {in(a)}, 1),
              HasSubstr("'gemm' takes 2 tensors and 1 scalars (in a, out c, scalar alpha), but is "
                        "given 1 and 1"));
  EXPECT_THAT(text(ErrorCode::wrong_argument_count, {in(a), out(c)}, 0), HasSubstr("2 and 0"));
  EXPECT_THAT(text(ErrorCode::wrong_argument_mode, {in(a), in(c)}, 1),
              HasSubstr("argument 1 ('c') of chip program 'gemm' is given as in(), but the program "
                        "declares it out"));
  EXPECT_THAT(text(ErrorCode::wrong_argument_dtype, {in(a.as(DType::int32)), out(c)}, 1),
              HasSubstr("program takes float32"));
  const Tensor flat(DType::float32, {4});
  EXPECT_THAT(text(ErrorCode::wrong_argument_rank, {in(flat), out(c)}, 1),
              HasSubstr("has 1 dimensions, but the program takes 2"));
}

}  // namespace
}  // namespace strata::chip::test
