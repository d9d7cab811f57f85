// ChipOrchestration: kernels, tasks, views, values. In both modes where that can make a difference.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime_support.hpp"

namespace strata::chip::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ChipOrchestrationTest : public ::testing::TestWithParam<OrchestrationMode> {
 protected:
  ChipRunOptions options() const { return {.mode = GetParam()}; }
  TestChip chip_;
};
INSTANTIATE_TEST_SUITE_P(Modes, ChipOrchestrationTest,
                         ::testing::Values(OrchestrationMode::device,
                                           OrchestrationMode::host_graph),
                         [](const auto& mode) {
                           return mode.param == OrchestrationMode::device ? "device" : "host_graph";
                         });

// ---- Kernels ------------------------------------------------------------------------------------

TEST_P(ChipOrchestrationTest, UnknownKernelIsRefusedNamingThoseThereAre) {
  const std::string text = chip_.refusal(
      ErrorCode::unknown_kernel, [](ChipOrchestration& chip) { (void)chip.aiv("ad"); }, {},
      options());
  EXPECT_THAT(text, HasSubstr("no kernel 'ad'"));
  EXPECT_THAT(text, HasSubstr("'add', 'fill'"));
}

TEST_P(ChipOrchestrationTest, KernelIsRefusedOnTheOtherSortOfCore) {
  EXPECT_THAT(chip_.refusal(
                  ErrorCode::wrong_core, [](ChipOrchestration& chip) { (void)chip.aic("add"); }, {},
                  options()),
              HasSubstr("'add' is for an AIV, and can't run on an AIC"));
  EXPECT_THAT(chip_.refusal(
                  ErrorCode::wrong_core,
                  [](ChipOrchestration& chip) {
                    (void)chip.mixed(chip.kernel("cube"), chip.kernel("cube"), chip.kernel("add"));
                  },
                  {}, options()),
              HasSubstr("'cube' is for an AIC, and can't run on an AIV"));
}

TEST_P(ChipOrchestrationTest, MixedTaskOfOneLaneIsRefused) {
  EXPECT_THROW(chip_.run([](ChipOrchestration& chip) { (void)chip.mixed(chip.kernel("cube"), {}); },
                         {}, options()),
               InvalidArgument);
}

TEST_P(ChipOrchestrationTest, MoreBlocksTogetherThanThereIsRoomForAreRefusedByName) {
  std::vector<float> data(8);
  const std::string text = chip_.refusal(
      ErrorCode::too_many_blocks,
      [](ChipOrchestration& chip) {
        chip.submit(chip.aiv("number_blocks").blocks(5).together(), out(chip.tensor(0)));
      },
      Arguments().add(Access::out, data), options());
  EXPECT_THAT(text, HasSubstr("kernel 'number_blocks'"));
  EXPECT_THAT(text, HasSubstr("5 blocks that start together"));
  EXPECT_THAT(text, HasSubstr("room for 4"));
}

TEST_P(ChipOrchestrationTest, MoreBlocksThanCoresAllRunOnce) {
  std::vector<float> data(100);
  chip_.run(
      [](ChipOrchestration& chip) {
        chip.submit(chip.aiv("number_blocks").blocks(100), out(chip.tensor(0)));
      },
      Arguments().add(Access::out, data), options());
  std::vector<float> expected(100);
  std::iota(expected.begin(), expected.end(), 1.0F);
  EXPECT_EQ(data, expected);
}

TEST_P(ChipOrchestrationTest, TaskOfNoBlocksIsDoneWithoutRunning) {
  std::vector<float> data(4, 7.0F);
  chip_.run(
      [](ChipOrchestration& chip) {
        const TaskId none =
            chip.submit(chip.aiv("fill").blocks(0), inout(chip.tensor(0)), scalar(1.0F));
        chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F), after(none));
      },
      Arguments().add(Access::inout, data), options());
  EXPECT_THAT(data, Each(8.0F));
}

TEST(ChipOrchestrationFacts, SaysWhatThePlatformHas) {
  TestChip small("a5sim:clusters=3");
  std::vector<std::int32_t> numbers(3);
  small.run(
      [](ChipOrchestration& chip) {
        EXPECT_EQ(chip.platform(), "a5sim");
        const unsigned facts[] = {chip.clusters(), chip.aics(), chip.aivs()};
        for (int i = 0; i < 3; ++i) {
          chip.submit(chip.aiv("set_int"), out(chip.tensor(0).slice(0, i, i + 1)),
                      scalar(static_cast<std::int32_t>(facts[i])));
        }
      },
      Arguments().add(Access::out, numbers));
  EXPECT_THAT(numbers, ElementsAre(3, 3, 6));
}

TEST_P(ChipOrchestrationTest, TaskIsNamedAfterItsKernelUnlessItHasAName) {
  std::vector<float> data(4);
  ChipRunOptions with_graph = options();
  with_graph.keep_graph = true;
  const ChipRunResult result = chip_.run(
      [](ChipOrchestration& chip) {
        chip.submit(chip.aiv("fill"), out(chip.tensor(0)), scalar(1.0F));
        chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F), named("mine"));
      },
      Arguments().add(Access::out, data), with_graph);
  EXPECT_THAT(result.graph, HasSubstr("fill"));
  EXPECT_THAT(result.graph, HasSubstr("mine"));
  EXPECT_EQ(result.stats.tasks, 2U);
}

// ---- Dependencies -------------------------------------------------------------------------------

TEST_P(ChipOrchestrationTest, TasksAreOrderedByWhatTheyReadAndWrite) {
  std::vector<float> a(64, 1.0F), b(64, 2.0F), c(64, 3.0F), sum(64);
  chip_.run(
      [](ChipOrchestration& chip) {
        Tensor partial(DType::float32, chip.tensor(0).shape());
        chip.submit(chip.aiv("add"), in(chip.tensor(0)), in(chip.tensor(1)), out(partial));
        chip.submit(chip.aiv("add"), in(partial), in(chip.tensor(2)), out(chip.tensor(3)));
      },
      Arguments().add(Access::in, a).add(Access::in, b).add(Access::in, c).add(Access::out, sum),
      options());
  EXPECT_THAT(sum, Each(6.0F));
}

TEST_P(ChipOrchestrationTest, ArgumentsThatOverlapAreFollowedAsOneMemory) {
  std::vector<float> data(96, 1.0F);
  // Tensor 1 begins in the middle of tensor 0; tensor 2 touches the end of 1.
  const Arguments arguments = Arguments()
                                  .add(Access::inout, data.data(), {64})
                                  .add(Access::inout, data.data() + 32, {48})
                                  .add(Access::inout, data.data() + 80, {16});
  const ChipRunResult result = chip_.run(
      [](ChipOrchestration& chip) {
        for (int i = 0; i < 10; ++i) {
          chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
          chip.submit(chip.aiv("increase"), inout(chip.tensor(1)), scalar(1.0F));
          chip.submit(chip.aiv("increase"), inout(chip.tensor(2)), scalar(1.0F));
        }
      },
      arguments, options());
  for (std::size_t i = 0; i < data.size(); ++i) {
    const bool both = i >= 32 && i < 64;
    EXPECT_EQ(data[i], both ? 21.0F : 11.0F) << i;
  }
}

TEST_P(ChipOrchestrationTest, StridedArgumentsAreSeenAsTheyAre) {
  std::vector<float> data(64, 1.0F);
  // Every second element, from the last to the first.
  chip_.run(
      [](ChipOrchestration& chip) {
        chip.submit(chip.aiv("increase"), inout(chip.tensor(0).slice(0, 0, 4)), scalar(5.0F));
      },
      Arguments().add(Access::inout, data.data() + 62, {32}, {-2}), options());
  for (std::size_t i = 0; i < data.size(); ++i)
    EXPECT_EQ(data[i], i >= 56 && i % 2 == 0 ? 6.0F : 1.0F) << i;
}

TEST_P(ChipOrchestrationTest, AllocationIsATaskThatOthersCanWaitFor) {
  std::vector<float> sum(8);
  chip_.run(
      [](ChipOrchestration& chip) {
        const float one = 1.0F, two = 2.0F;
        const Allocation made = chip.allocate(
            {{DType::float32, {8}, &one}, {DType::float32, {8}, &two}, {DType::float32, {0}}});
        ASSERT_TRUE(made.task);
        chip.submit(nullptr, in(made.tensors[2]), after(made.task));
        chip.submit(chip.aiv("add"), in(made.tensors[0]), in(made.tensors[1]), out(chip.tensor(0)),
                    after(made.task));
      },
      Arguments().add(Access::out, sum), options());
  EXPECT_THAT(sum, Each(3.0F));
}

TEST_P(ChipOrchestrationTest, ManualScopeOrdersOnlyWhatAfterOrders) {
  std::vector<float> data(8);
  chip_.run(
      [](ChipOrchestration& chip) {
        const Scope scope = chip.scope({.manual = true});
        TaskId last;
        for (int i = 0; i < 20; ++i) {
          last =
              chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F), after(last));
        }
      },
      Arguments().add(Access::inout, data), options());
  EXPECT_THAT(data, Each(20.0F));
}

TEST_P(ChipOrchestrationTest, ScopesBoundTheHeapThatALoopNeeds) {
  std::vector<float> data(256);
  ChipRunOptions small = options();
  small.heap = 4096;
  small.window = 8;
  chip_.run(
      [](ChipOrchestration& chip) {
        for (int i = 0; i < 100; ++i) {
          const Scope scope = chip.scope();
          Tensor fresh(DType::float32, {256});
          chip.submit(chip.aiv("fill"), out(fresh), scalar(1.0F));
          chip.submit(chip.aiv("add"), in(fresh), in(chip.tensor(0)), out(chip.tensor(0)));
        }
      },
      Arguments().add(Access::inout, data), small);
  EXPECT_THAT(data, Each(100.0F));
}

// ---- Views without elements ---------------------------------------------------------------------

TEST_P(ChipOrchestrationTest, TensorsWithoutElementsAreLegalEverywhere) {
  std::vector<float> data(8, 1.0F);
  Arguments arguments;
  arguments.add(Access::inout, data).add(Access::in, static_cast<float*>(nullptr), {0, 4});
  chip_.run(
      [](ChipOrchestration& chip) {
        const Tensor& x = chip.tensor(0);
        const Tensor nowhere = x.tile({100}, {0});
        Tensor fresh(DType::float32, {3, 0});
        chip.submit(chip.aiv("fill"), out(nowhere), scalar(9.0F));
        chip.submit(chip.aiv("fill"), out(x.slice(0, 50, 50)), scalar(9.0F));
        chip.submit(chip.aiv("nothing"), in(chip.tensor(1)), out(fresh));
        EXPECT_TRUE(fresh.has_storage());
        chip.submit(chip.aiv("nothing"), in(fresh.transpose(0, 1)), in(nowhere));
        chip.submit(chip.aiv("increase"), inout(x), scalar(1.0F));
      },
      arguments, options());
  EXPECT_THAT(data, Each(2.0F));
}

// ---- Conditions ---------------------------------------------------------------------------------

TEST_P(ChipOrchestrationTest, TaskRunsOnlyIfItsConditionHoldsWhenItIsReady) {
  std::vector<float> data(2);
  std::vector<std::int32_t> flag(1, 0);
  chip_.run(
      [](ChipOrchestration& chip) {
        chip.submit(chip.aiv("set_int"), out(chip.tensor(1)), scalar(std::int32_t{5}));
        chip.submit(chip.aiv("increase"), inout(chip.tensor(0).slice(0, 0, 1)), scalar(1.0F),
                    when(chip.tensor(1), Compare::greater, 4));
        chip.submit(chip.aiv("increase"), inout(chip.tensor(0).slice(0, 1, 2)), scalar(1.0F),
                    when(chip.tensor(1), Compare::greater, 5));
      },
      Arguments().add(Access::inout, data).add(Access::inout, flag), options());
  EXPECT_THAT(data, ElementsAre(1.0F, 0.0F));
}

TEST_P(ChipOrchestrationTest, ConditionThatIsNoIntegerIsRefused) {
  std::vector<float> data(2);
  EXPECT_THROW(chip_.run(
                   [](ChipOrchestration& chip) {
                     chip.submit(chip.aiv("nothing"), when(chip.tensor(0), Compare::equal, 0));
                   },
                   Arguments().add(Access::in, data), options()),
               InvalidArgument);
}

// ---- Values -------------------------------------------------------------------------------------

TEST_P(ChipOrchestrationTest, ControlFlowCanDependOnWhatAKernelWrote) {
  std::vector<float> data(1);
  std::vector<std::int32_t> count(2);
  chip_.run(
      [](ChipOrchestration& chip) {
        chip.submit(chip.aiv("set_int"), out(chip.tensor(1).slice(0, 0, 1)),
                    scalar(std::int32_t{7}));
        const auto times = chip.read<std::int32_t>(chip.tensor(1), {0});
        for (int i = 0; i < times; ++i)
          chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
        chip.write(chip.tensor(0), {0}, chip.read<float>(chip.tensor(0)) + 0.5F);
      },
      Arguments().add(Access::inout, data).add(Access::inout, count), options());
  EXPECT_THAT(data, ElementsAre(7.5F));
}

TEST_P(ChipOrchestrationTest, ReadAllSeesWhatWasWrittenInTheOrderOfTheView) {
  std::vector<float> data(6);
  std::iota(data.begin(), data.end(), 0.0F);
  chip_.run(
      [](ChipOrchestration& chip) {
        const Tensor& x = chip.tensor(0);
        chip.submit(chip.aiv("increase"), inout(x), scalar(1.0F));
        EXPECT_THAT(chip.read_all<float>(x.reshape({2, 3}).transpose(0, 1)),
                    ElementsAre(1, 4, 2, 5, 3, 6));
        EXPECT_THAT(chip.read_all<float>(x.slice(0, 1, 6, 2)), ElementsAre(2, 4, 6));
        EXPECT_TRUE(chip.read_all<float>(x.slice(0, 9, 9)).empty());
        Tensor fresh(DType::float32, {4});
        chip.submit(chip.aiv("copy"), in(x.slice(0, 2, 6)), out(fresh));
        EXPECT_THAT(chip.read_all<float>(fresh.slice(0, 1, 3)), ElementsAre(4, 5));
        EXPECT_THROW((void)chip.read_all<std::int32_t>(x), InvalidArgument);
      },
      Arguments().add(Access::inout, data));
}

TEST_P(ChipOrchestrationTest, ListOfEdgesIsWaitedForAndNoTaskIsNoEdge) {
  std::vector<float> data(32), seen(32);
  chip_.run(
      [](ChipOrchestration& chip) {
        const Scope manual = chip.scope({.manual = true});
        std::vector<TaskId> tasks(1);  // The first names none.
        for (int i = 0; i < 32; ++i) {
          tasks.push_back(chip.submit(chip.aiv("increase"),
                                      inout(chip.tensor(0).slice(0, i, i + 1)), scalar(1.0F),
                                      after(TaskId{})));
        }
        chip.submit(chip.aiv("copy"), in(chip.tensor(0)), out(chip.tensor(1)), after(tasks));
      },
      Arguments().add(Access::inout, data).add(Access::out, seen), options());
  EXPECT_THAT(seen, Each(1.0F));
}

TEST_P(ChipOrchestrationTest, WriteComesBehindTheTasksThatUseTheElement) {
  std::vector<float> data(1, 1.0F), seen(1);
  chip_.run(
      [](ChipOrchestration& chip) {
        chip.submit(chip.aiv("copy"), in(chip.tensor(0)), out(chip.tensor(1)));
        chip.write(chip.tensor(0), {0}, 9.0F);
        chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
      },
      Arguments().add(Access::inout, data).add(Access::out, seen), options());
  EXPECT_EQ(seen[0], 1.0F);
  EXPECT_EQ(data[0], 10.0F);
}

TEST_P(ChipOrchestrationTest, ReadOfAnotherTypeOrOutsideOfTheTensorIsRefused) {
  std::vector<float> data(4);
  chip_.run(
      [](ChipOrchestration& chip) {
        EXPECT_THROW((void)chip.read<std::int32_t>(chip.tensor(0), {0}), InvalidArgument);
        EXPECT_THROW((void)chip.read<float>(chip.tensor(0), {4}), InvalidArgument);
        EXPECT_THROW((void)chip.read<float>(chip.tensor(0), {0, 0}), InvalidArgument);
      },
      Arguments().add(Access::in, data));
}

TEST_P(ChipOrchestrationTest, WaitForATaskSeesWhatItDid) {
  static std::atomic<int> ran;
  ran = 0;
  const auto kernels =
      std::vector<KernelEntry>{{"count", CoreType::aiv, [](const Kernel&) { ++ran; }}};
  chip_.run(program_of(
                [](ChipOrchestration& chip) {
                  const TaskId task = chip.submit(chip.aiv("count").blocks(10));
                  chip.wait(task);
                  EXPECT_EQ(ran, 10);
                },
                kernels),
            {}, options());
}

// ---- External memory ----------------------------------------------------------------------------

TEST_P(ChipOrchestrationTest, ExternalMemoryWithinAnArgumentIsFollowedAsThat) {
  std::vector<float> data(64, 1.0F);
  Arguments arguments;
  arguments.add(Access::inout, data).scalar(data.data());
  chip_.run(
      [](ChipOrchestration& chip) {
        auto* const memory = chip.scalar<float*>(0);
        const Tensor half = chip.external(memory + 16, DType::float32, {32});
        for (int i = 0; i < 10; ++i) {
          chip.submit(chip.aiv("increase"), inout(half), scalar(1.0F));
          chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
        }
        EXPECT_THROW((void)chip.external(memory + 60, DType::float32, {32}), InvalidArgument);
      },
      arguments, options());
  for (std::size_t i = 0; i < data.size(); ++i)
    EXPECT_EQ(data[i], i >= 16 && i < 48 ? 21.0F : 11.0F) << i;
}

TEST_P(ChipOrchestrationTest, ExternalMemoryOfTheOrchestrationIsUsable) {
  static std::vector<float> memory;
  memory.assign(16, 1.0F);
  chip_.run(
      [](ChipOrchestration& chip) {
        const Tensor all = chip.external(memory.data(), DType::float32, {4, 4});
        const Tensor part = chip.external(memory.data() + 4, DType::float32, {4});
        EXPECT_EQ(all.buffer(), part.buffer());
        chip.submit(chip.aiv("increase"), inout(part), scalar(1.0F));
        chip.submit(chip.aiv("increase"), inout(all.reshape({16})), scalar(1.0F));
      },
      {}, options());
  for (std::size_t i = 0; i < memory.size(); ++i)
    EXPECT_EQ(memory[i], i >= 4 && i < 8 ? 3.0F : 2.0F) << i;
}

// ---- The end ------------------------------------------------------------------------------------

TEST_P(ChipOrchestrationTest, OrchestrationThatGivesUpEndsTheRunWithItsCodeAndText) {
  try {
    chip_.run(
        [](ChipOrchestration& chip) {
          chip.submit(chip.aiv("waits_for_cancel"));
          chip.fail(42, "no such luck");
        },
        {}, options());
    FAIL();
  } catch (const OrchestrationFailed& error) {
    EXPECT_EQ(error.user_code(), 42);
    EXPECT_THAT(error.what(), HasSubstr("code 42: no such luck"));
  }
}

TEST_P(ChipOrchestrationTest, LinesOfTheOrchestrationAreLoggedAtEveryRun) {
  const auto program = program_of([](ChipOrchestration& chip) { chip.log("hello"); });
  for (int i = 0; i < 3; ++i)
    chip_.run(program, {}, options());
  EXPECT_THAT(chip_.log(), ElementsAre("tested: hello", "tested: hello", "tested: hello"));
}

TEST_P(ChipOrchestrationTest, LinesBelowTheLevelOfTheLogAreDropped) {
  chip_.run(
      [](ChipOrchestration& chip) {
        chip.log(LogLevel::debug, "one");
        chip.log(LogLevel::warning, "two");
        chip.log(LogLevel::error, "three");
      },
      {}, options());
  EXPECT_THAT(chip_.log(), ElementsAre("tested: warning: two", "tested: error: three"));
}

TEST_P(ChipOrchestrationTest, ArgumentThatIsNotThereIsRefused) {
  EXPECT_THROW(chip_.run([](ChipOrchestration& chip) { (void)chip.tensor(0); }, {}, options()),
               InvalidArgument);
  EXPECT_THROW(chip_.run([](ChipOrchestration& chip) { (void)chip.scalar<int>(0); }, {}, options()),
               InvalidArgument);
}

}  // namespace
}  // namespace strata::chip::test
