// ChipRuntime: what holds for whole runs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime_support.hpp"

namespace strata::chip::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(ChipRuntimeTest, OrchestrationThatSubmitsNothingSucceeds) {
  for (const char* platform : {"a2a3sim", "a5sim", "cpu", "a2a3sim:clusters=1,staging=1"}) {
    TestChip chip(platform);
    for (const ChipRunOptions& options : {kDevice, kHostGraph}) {
      const ChipRunResult result = chip.run([](ChipOrchestration&) {}, {}, options);
      EXPECT_EQ(result.stats.tasks, 0U);
    }
  }
}

TEST(ChipRuntimeTest, RunsInARowSeeEachOthersResults) {
  TestChip chip;
  std::vector<float> data(32);
  const auto program = program_of(
      [](ChipOrchestration& o) { o.submit(o.aiv("increase"), inout(o.tensor(0)), scalar(1.0F)); });
  for (int i = 0; i < 1000; ++i)
    chip.run(program, Arguments().add(Access::inout, data));
  EXPECT_THAT(data, Each(1000.0F));
}

TEST(ChipRuntimeTest, RunsWithOtherSizesUseOtherEnginesAndComeBack) {
  TestChip chip;
  std::vector<float> data(32);
  const auto program = program_of([](ChipOrchestration& o) {
    const Scope scope = o.scope();
    Tensor fresh(DType::float32, {32});
    o.submit(o.aiv("copy"), in(o.tensor(0)), out(fresh));
    o.submit(o.aiv("increase"), inout(fresh), scalar(1.0F));
    o.submit(o.aiv("copy"), in(fresh), out(o.tensor(0)));
  });
  for (int i = 0; i < 40; ++i) {
    ChipRunOptions options;
    options.window = std::size_t{4} << (i % 4);
    options.heap = 4096;
    options.mode = i % 8 < 4 ? OrchestrationMode::device : OrchestrationMode::host_graph;
    chip.run(program, Arguments().add(Access::inout, data), options);
  }
  EXPECT_THAT(data, Each(40.0F));
}

TEST(ChipRuntimeTest, ManyDifferentBuffersAreForgottenAgain) {
  TestChip chip;
  std::vector<std::vector<float>> data(500, std::vector<float>(16));
  const auto program = program_of(
      [](ChipOrchestration& o) { o.submit(o.aiv("increase"), inout(o.tensor(0)), scalar(1.0F)); });
  for (int round = 0; round < 2; ++round) {
    for (auto& each : data)
      chip.run(program, Arguments().add(Access::inout, each));
  }
  for (const auto& each : data)
    EXPECT_THAT(each, Each(2.0F));
}

TEST(ChipRuntimeTest, FailedRunLeavesNothingInvalidForTheNext) {
  TestChip chip;
  std::vector<float> data(16, 1.0F), sum(16);
  const Arguments arguments = Arguments().add(Access::inout, data).add(Access::out, sum);
  for (int i = 0; i < 5; ++i) {
    (void)chip.refusal(
        ErrorCode::kernel_threw,
        [](ChipOrchestration& o) { o.submit(o.aiv("fails"), inout(o.tensor(0))); }, arguments);
    chip.run(
        [](ChipOrchestration& o) {
          o.submit(o.aiv("add"), in(o.tensor(0)), in(o.tensor(0)), out(o.tensor(1)));
        },
        arguments);
    EXPECT_THAT(sum, Each(2.0F));
  }
}

TEST(ChipRuntimeTest, GraphIsToldIfAskedFor) {
  TestChip chip;
  std::vector<float> data(16);
  const auto orchestration = [](ChipOrchestration& o) {
    o.submit(o.aiv("fill"), out(o.tensor(0)), scalar(1.0F), named("one"));
    o.submit(o.aiv("increase"), inout(o.tensor(0)), scalar(1.0F), named("two"));
  };
  const Arguments arguments = Arguments().add(Access::inout, data);
  for (ChipRunOptions options : {kDevice, kHostGraph}) {
    EXPECT_EQ(chip.run(orchestration, arguments, options).graph, "");
    options.keep_graph = true;
    const std::string graph = chip.run(orchestration, arguments, options).graph;
    EXPECT_THAT(graph, HasSubstr("digraph"));
    EXPECT_THAT(graph, HasSubstr("one"));
    EXPECT_THAT(graph, HasSubstr("->"));
  }
}

TEST(ChipRuntimeTest, ThreadsThatTheRunAsksForAreEnoughForLanesThatWaitForEachOther) {
  TestChip chip;
  ChipRunOptions one;
  one.threads = 1;
  std::vector<float> data(1);
  chip.run(program_of(
               [](ChipOrchestration& o) {
                 const KernelId vector = o.kernel("vector");
                 o.submit(o.mixed(o.kernel("cube"), vector, vector), out(o.tensor(0)));
               },
               {{"cube", CoreType::aic,
                 [](const Kernel& kernel) {
                   kernel.set_flag(ClusterLane::aiv0, 0);
                   kernel.wait_flag(0);
                   kernel.data<float>(0)[0] = 1.0F;
                 }},
                {"vector", CoreType::aiv,
                 [](const Kernel& kernel) {
                   kernel.wait_flag(0);
                   if (kernel.lane() == ClusterLane::aiv0) {
                     kernel.set_flag(ClusterLane::aiv1, 0);
                   } else {
                     kernel.set_flag(ClusterLane::aic, 0);
                   }
                 }}}),
           Arguments().add(Access::out, data), one);
  EXPECT_EQ(data[0], 1.0F);
}

// ---- Checking -----------------------------------------------------------------------------------

float first_value;

TEST(ChipChecking, FreshMemoryIsPoisonedUnlessItHasAValue) {
  TestChip chip;
  const auto kernels = std::vector<KernelEntry>{
      {"look", CoreType::aiv, [](const Kernel& kernel) { first_value = *kernel.data<float>(0); }}};
  ChipRunOptions check;
  check.check = true;
  try {
    chip.run(program_of(
                 [](ChipOrchestration& o) {
                   Tensor fresh(DType::float32, {4});
                   o.submit(o.aiv("look"), out(fresh));
                 },
                 kernels),
             {}, check);
    EXPECT_TRUE(std::isnan(first_value));
    chip.run(program_of(
                 [](ChipOrchestration& o) {
                   const float seven = 7.0F;
                   Tensor fresh(DType::float32, {4});
                   o.submit(o.aiv("look"), out(fresh, &seven));
                 },
                 kernels),
             {}, check);
    EXPECT_EQ(first_value, 7.0F);
  } catch (const ChipError& error) {
    if (error.code() != ErrorCode::bad_configuration) throw;
    GTEST_SKIP() << error.what();
  }
}

// ---- Exploring ----------------------------------------------------------------------------------

std::vector<int> order;

std::vector<int> explored_order(TestChip& chip, std::uint64_t seed) {
  order.clear();
  ChipRunOptions options;
  options.explore_seed = seed;
  chip.run(program_of(
               [](ChipOrchestration& o) {
                 for (int i = 0; i < 8; ++i)
                   o.submit(o.aiv("note"), scalar(i));
               },
               {{"note", CoreType::aiv,
                 [](const Kernel& kernel) { order.push_back(kernel.scalar<int>(0)); }}}),
           {}, options);
  return order;
}

TEST(ChipExploring, SeedDecidesTheOrder) {
  TestChip chip;
  std::vector<std::vector<int>> orders;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    orders.push_back(explored_order(chip, seed));
    EXPECT_EQ(orders.back().size(), 8U);
    EXPECT_EQ(explored_order(chip, seed), orders.back()) << seed;
  }
  EXPECT_TRUE(std::any_of(orders.begin(), orders.end(),
                          [&](const auto& each) { return each != orders.front(); }));
}

TEST(ChipExploring, NothingOfARunIsLeftOnTheCoresForTheNext) {
  TestChip chip;
  std::vector<float> data(4);
  const auto program = program_of([](ChipOrchestration& o) {
    for (int i = 0; i < 8; ++i)
      o.submit(o.aiv("increase"), inout(o.tensor(0)), scalar(1.0F));
  });
  // Threads that have just run the last task of a run are still about when the next one begins.
  for (int i = 0; i < 200; ++i) {
    ChipRunOptions options;
    if (i % 2 == 0) options.time_limit = std::chrono::hours(1);
    if (i % 3 != 0) options.explore_seed = i;
    chip.run(program, Arguments().add(Access::inout, data), options);
  }
  EXPECT_THAT(data, Each(1600.0F));
}

// ---- The environment ----------------------------------------------------------------------------

/// Sets a variable while it lives.
class WithVariable {
 public:
  WithVariable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~WithVariable() { ::unsetenv(name_); }
  WithVariable(const WithVariable&) = delete;
  WithVariable& operator=(const WithVariable&) = delete;

 private:
  const char* name_;
};

TEST(ChipEnvironment, SetsWhatTheRunDoesNot) {
  const WithVariable heap("STRATA_CHIP_HEAP", "4K");
  TestChip chip;
  const auto too_large = [](ChipOrchestration& o) {
    Tensor large(DType::float32, {4096});
    o.submit(o.aiv("nothing"), out(large));
  };
  EXPECT_THROW(chip.run(too_large), CapacityError);
  ChipRunOptions own;
  own.heap = std::size_t{1} << 20;
  EXPECT_NO_THROW(chip.run(too_large, {}, own));
}

TEST(ChipEnvironment, NonsenseIsRefusedNamingTheVariable) {
  for (const auto& [name, value] :
       {std::pair{"STRATA_CHIP_HEAP", "much"}, std::pair{"STRATA_CHIP_WINDOW", "0"},
        std::pair{"STRATA_CHIP_WINDOW", "12X"}, std::pair{"STRATA_CHIP_MODE", "fast"},
        std::pair{"STRATA_CHIP_THREADS", "99999999"}}) {
    const WithVariable set(name, value);
    try {
      TestChip chip;
      ADD_FAILURE() << name;
    } catch (const ChipError& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_configuration);
      EXPECT_THAT(error.what(), HasSubstr(name));
      EXPECT_THAT(error.what(), HasSubstr(value));
    }
  }
}

}  // namespace
}  // namespace strata::chip::test
