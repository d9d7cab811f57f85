// Recorded sub-graphs: what is recorded once, what anew, and what can't be.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "chip/graph_cache.hpp"
#include "runtime_support.hpp"

namespace strata::chip::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// How often the function of the test was called, that is: recorded.
std::atomic<int> recorded;

void add_twice(ChipOrchestration& chip, const GraphArguments& arguments) {
  ++recorded;
  chip.submit(chip.aiv("increase"), inout(arguments.tensor(0)), arguments.scalar(0));
  chip.submit(chip.aiv("increase"), inout(arguments.tensor(0)), arguments.scalar(0));
}

class ChipGraphs : public ::testing::Test {
 protected:
  ChipGraphs() { recorded = 0; }
  TestChip chip_;
};

TEST_F(ChipGraphs, FunctionIsRecordedOnceAndItsScalarsAreCarried) {
  std::vector<float> data(8);
  chip_.run(
      [](ChipOrchestration& chip) {
        for (int i = 1; i <= 10; ++i) {
          chip.graph(add_twice, {chip.tensor(0)}, {scalar(static_cast<float>(i))});
        }
      },
      Arguments().add(Access::inout, data), kDevice);
  EXPECT_EQ(recorded, 1);
  EXPECT_THAT(data, Each(110.0F));
}

TEST_F(ChipGraphs, RecordingHoldsForLaterRunsWithOtherMemory) {
  const auto program = program_of([](ChipOrchestration& chip) {
    chip.graph(add_twice, {chip.tensor(0)}, {scalar(chip.scalar<float>(0))});
  });
  for (int i = 1; i <= 3; ++i) {
    std::vector<float> data(8);
    chip_.run(program, Arguments().add(Access::inout, data).scalar(static_cast<float>(i)), kDevice);
    EXPECT_THAT(data, Each(2.0F * static_cast<float>(i)));
  }
  EXPECT_EQ(recorded, 1);
  chip_.runtime().forget(*program);
  std::vector<float> data(8);
  chip_.run(program, Arguments().add(Access::inout, data).scalar(1.0F), kDevice);
  EXPECT_EQ(recorded, 2);
}

TEST_F(ChipGraphs, AnotherShapeRecordsAnew) {
  std::vector<float> data(8);
  chip_.run(
      [](ChipOrchestration& chip) {
        const Tensor& x = chip.tensor(0);
        for (int round = 0; round < 3; ++round) {
          chip.graph(add_twice, {x}, {scalar(1.0F)});
          chip.graph(add_twice, {x.slice(0, 0, 4)}, {scalar(1.0F)});
          chip.graph(add_twice, {x.slice(0, 4, 8)}, {scalar(1.0F)});  // The same shape elsewhere.
          chip.graph(add_twice, {x.slice(0, 0, 8, 2)}, {scalar(1.0F)});  // Another stride.
        }
      },
      Arguments().add(Access::inout, data), kDevice);
  EXPECT_EQ(recorded, 3);
  EXPECT_THAT(data, ElementsAre(18, 12, 18, 12, 18, 12, 18, 12));
}

void add_to(ChipOrchestration& chip, const GraphArguments& arguments) {
  ++recorded;
  chip.submit(chip.aiv("add"), in(arguments.tensor(0)), in(arguments.tensor(1)),
              out(arguments.tensor(1)));
  chip.submit(chip.aiv("add"), in(arguments.tensor(1)), in(arguments.tensor(0)),
              out(arguments.tensor(0)));
}

TEST_F(ChipGraphs, AnotherOverlapRecordsAnewAndIsRight) {
  std::vector<float> data(12, 1.0F);
  chip_.run(
      [](ChipOrchestration& chip) {
        const Tensor& x = chip.tensor(0);
        const Tensor low = x.slice(0, 0, 4), high = x.slice(0, 8, 12);
        chip.graph(add_to, {low, high}, {});
        chip.graph(add_to, {high, low}, {});  // Apart as well.
        chip.graph(add_to, {low, low}, {});
        chip.graph(add_to, {high, high}, {});
      },
      Arguments().add(Access::inout, data), kDevice);
  EXPECT_EQ(recorded, 2);
  // low, high: 1, 1, then 3, 2, then 5, 7, then each doubles twice.
  EXPECT_THAT(data, ElementsAre(20, 20, 20, 20, 1, 1, 1, 1, 28, 28, 28, 28));
}

void as_often(ChipOrchestration& chip, const GraphArguments& arguments) {
  ++recorded;
  for (int i = 0; i < arguments.value<int>(0); ++i)
    chip.submit(chip.aiv("increase"), inout(arguments.tensor(0)), arguments.scalar(1));
}

TEST_F(ChipGraphs, ValueThatWasLookedAtIsNeverFrozen) {
  std::vector<float> data(4);
  chip_.run(
      [](ChipOrchestration& chip) {
        for (const int times : {3, 5, 3, 0, 5, 3})
          chip.graph(as_often, {chip.tensor(0)}, {scalar(times), scalar(1.0F)});
        chip.graph(as_often, {chip.tensor(0)}, {scalar(3), scalar(100.0F)});
      },
      Arguments().add(Access::inout, data), kDevice);
  EXPECT_EQ(recorded, 3);
  EXPECT_THAT(data, Each(319.0F));
}

void looks_at_the_second_if_asked(ChipOrchestration& chip, const GraphArguments& arguments) {
  ++recorded;
  float by = 1.0F;
  if (arguments.value<bool>(0)) by = arguments.value<float>(1);
  chip.submit(chip.aiv("increase"), inout(arguments.tensor(0)), scalar(by));
}

TEST_F(ChipGraphs, OnlyValuesThatWereLookedAtTellRecordingsApart) {
  std::vector<float> data(4);
  chip_.run(
      [](ChipOrchestration& chip) {
        const auto call = [&](bool ask, float by) {
          chip.graph(looks_at_the_second_if_asked, {chip.tensor(0)}, {scalar(ask), scalar(by)});
        };
        call(false, 10.0F);
        call(false, 20.0F);
        call(true, 10.0F);
        call(true, 20.0F);
        call(true, 10.0F);
        call(false, 30.0F);
      },
      Arguments().add(Access::inout, data), kDevice);
  EXPECT_EQ(recorded, 3);
  EXPECT_THAT(data, Each(43.0F));
}

void with_run_arguments(ChipOrchestration& chip, const GraphArguments& arguments) {
  ++recorded;
  chip.submit(chip.aiv("add"), in(arguments.tensor(0)), in(chip.tensor(1)),
              out(arguments.tensor(0)));
  chip.submit(chip.aiv("increase"), inout(arguments.tensor(0)), scalar(chip.scalar<float>(0)));
}

TEST_F(ChipGraphs, ArgumentsOfTheRunAreNeverFrozen) {
  const auto program = program_of([](ChipOrchestration& chip) {
    chip.graph(with_run_arguments, {chip.tensor(0)}, {});
    chip.graph(with_run_arguments, {chip.tensor(0)}, {});
  });
  for (int i = 1; i <= 3; ++i) {
    const auto value = static_cast<float>(i);
    std::vector<float> data(4), other(4, 10.0F * value);
    chip_.run(program,
              Arguments().add(Access::inout, data).add(Access::in, other).scalar(100.0F * value),
              kDevice);
    EXPECT_THAT(data, Each(220.0F * value));
  }
  EXPECT_EQ(recorded, 3);
}

void configured(ChipOrchestration& chip, const GraphArguments& arguments, int times, float by) {
  ++recorded;
  for (int i = 0; i < times; ++i)
    chip.submit(chip.aiv("increase"), inout(arguments.tensor(0)), scalar(by));
}

TEST_F(ChipGraphs, ConstructionParametersTellRecordingsApart) {
  std::vector<float> data(4);
  chip_.run(
      [](ChipOrchestration& chip) {
        const Tensor& x = chip.tensor(0);
        chip.graph(configured, {x}, {}, 2, 1.0F);
        chip.graph(configured, {x}, {}, 3, 1.0F);
        chip.graph(configured, {x}, {}, 2, 10.0F);
        chip.graph(configured, {x}, {}, 2, 1.0F);
      },
      Arguments().add(Access::inout, data), kDevice);
  EXPECT_EQ(recorded, 3);
  EXPECT_THAT(data, Each(27.0F));
}

void through_temporary(ChipOrchestration& chip, const GraphArguments& arguments) {
  Tensor fresh(DType::float32, arguments.tensor(0).shape());
  chip.submit(chip.aiv("copy"), in(arguments.tensor(0)), out(fresh));
  chip.submit(chip.aiv("increase"), inout(fresh), arguments.scalar(0));
  chip.submit(chip.aiv("copy"), in(fresh), out(arguments.tensor(0)));
}

TEST_F(ChipGraphs, WhatAGraphAllocatesLivesAsLongAsItsTasks) {
  std::vector<float> data(256);
  ChipRunOptions small = kDevice;
  small.heap = 4096;  // Room for four.
  small.window = 8;
  chip_.run(
      [](ChipOrchestration& chip) {
        for (int i = 0; i < 100; ++i)
          chip.graph(through_temporary, {chip.tensor(0)}, {scalar(1.0F)});
      },
      Arguments().add(Access::inout, data), small);
  EXPECT_THAT(data, Each(100.0F));
}

void parallel(ChipOrchestration& chip, const GraphArguments& arguments) {
  for (std::int64_t i = 0; i < arguments.tensor(0).extent(0); ++i)
    chip.submit(chip.aiv("increase"), inout(arguments.tensor(0).slice(0, i, i + 1)), scalar(1.0F));
}

TEST_F(ChipGraphs, TaskOfAGraphIsDoneWhenAllItsTasksAre) {
  std::vector<float> data(32), seen(32);
  chip_.run(
      [](ChipOrchestration& chip) {
        const Tensor& x = chip.tensor(0);
        const TaskId graph = chip.graph(parallel, {x}, {});
        const Scope manual = chip.scope({.manual = true});
        chip.submit(chip.aiv("copy"), in(x), out(chip.tensor(1)), after(graph));
      },
      Arguments().add(Access::inout, data).add(Access::out, seen), kDevice);
  EXPECT_THAT(seen, Each(1.0F));
}

void outer(ChipOrchestration& chip, const GraphArguments& arguments) {
  ++recorded;
  chip.graph(as_often, {arguments.tensor(0)}, {arguments.scalar(0), arguments.scalar(1)});
  chip.graph(as_often, {arguments.tensor(0)}, {scalar(1), arguments.scalar(1)});
}

TEST_F(ChipGraphs, GraphWithinAGraphIsAPartOfItAndItsValuesAreLookedAt) {
  std::vector<float> data(4);
  chip_.run(
      [](ChipOrchestration& chip) {
        chip.graph(outer, {chip.tensor(0)}, {scalar(2), scalar(1.0F)});
        chip.graph(outer, {chip.tensor(0)}, {scalar(2), scalar(10.0F)});
        EXPECT_EQ(recorded, 3);  // The outer one, and twice the inner one in it.
        chip.graph(outer, {chip.tensor(0)}, {scalar(4), scalar(100.0F)});
        EXPECT_EQ(recorded, 6);
      },
      Arguments().add(Access::inout, data), kDevice);
  EXPECT_THAT(data, Each(533.0F));
}

void reads(ChipOrchestration& chip, const GraphArguments& arguments) {
  (void)chip.read<float>(arguments.tensor(0), {0});
}
void waits(ChipOrchestration& chip, const GraphArguments& arguments) {
  chip.wait(arguments.tensor(0));
}
void writes(ChipOrchestration& chip, const GraphArguments& arguments) {
  try {
    chip.write(arguments.tensor(0), {0}, 1.0F);
  } catch (const ChipError&) {
    // It does not help to look away.
  }
}
void names_memory(ChipOrchestration& chip, const GraphArguments&) {
  static float memory[4];
  (void)chip.external(memory, DType::float32, {4});
}

TEST_F(ChipGraphs, WhatCanNotBeRecordedIsRefusedSayingWhat) {
  std::vector<float> data(4);
  const Arguments arguments = Arguments().add(Access::inout, data);
  for (const ChipRunOptions& options : {kDevice}) {
    EXPECT_THAT(chip_.refusal(
                    ErrorCode::not_recordable,
                    [](ChipOrchestration& chip) { chip.graph(reads, {chip.tensor(0)}, {}); },
                    arguments, options),
                HasSubstr("ChipOrchestration::read"));
    EXPECT_THAT(chip_.refusal(
                    ErrorCode::not_recordable,
                    [](ChipOrchestration& chip) { chip.graph(waits, {chip.tensor(0)}, {}); },
                    arguments, options),
                HasSubstr("ChipOrchestration::wait"));
    EXPECT_THAT(chip_.refusal(
                    ErrorCode::not_recordable,
                    [](ChipOrchestration& chip) { chip.graph(writes, {chip.tensor(0)}, {}); },
                    arguments, options),
                HasSubstr("ChipOrchestration::write"));
    EXPECT_THAT(chip_.refusal(
                    ErrorCode::not_recordable,
                    [](ChipOrchestration& chip) { chip.graph(names_memory, {chip.tensor(0)}, {}); },
                    arguments, options),
                HasSubstr("ChipOrchestration::external"));
  }
}

TEST_F(ChipGraphs, TensorWithoutStorageIsRefused) {
  EXPECT_THROW(chip_.run([](ChipOrchestration& chip) {
    chip.graph(add_twice, {Tensor(DType::float32, {4})}, {scalar(1.0F)});
  }),
               InvalidArgument);
}

// ---- Whole runs in mode host_graph --------------------------------------------------------------

std::atomic<int> built;

TEST_F(ChipGraphs, HostGraphIsBuiltOncePerShapeAndScalarsThatItLooksAt) {
  built = 0;
  const auto program = program_of([](ChipOrchestration& chip) {
    ++built;
    for (int i = 0; i < chip.scalar<int>(0); ++i)
      chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
  });
  const auto run = [&](std::int64_t size, int times, float unused) {
    std::vector<float> data(static_cast<std::size_t>(size));
    chip_.run(program, Arguments().add(Access::inout, data).scalar(times).scalar(unused),
              kHostGraph);
    EXPECT_THAT(data, Each(static_cast<float>(times)));
  };
  run(8, 3, 0.0F);
  run(8, 3, 1.0F);
  EXPECT_EQ(built, 1);
  run(8, 4, 1.0F);
  run(16, 3, 1.0F);
  EXPECT_EQ(built, 3);
  run(8, 3, 2.0F);
  run(16, 3, 2.0F);
  EXPECT_EQ(built, 3);
}

TEST_F(ChipGraphs, HostGraphThatReadsIsRunDirectly) {
  built = 0;
  const auto program = program_of([](ChipOrchestration& chip) {
    ++built;
    chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(2.0F));
    const auto by = chip.read<float>(chip.tensor(0), {0});
    chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(by));
  });
  for (int i = 0; i < 3; ++i) {
    std::vector<float> data(4, static_cast<float>(i));
    chip_.run(program, Arguments().add(Access::inout, data), kHostGraph);
    EXPECT_THAT(data, Each(2.0F * (static_cast<float>(i) + 2.0F)));
  }
  EXPECT_EQ(built, 4);  // Once in vain.
}

std::atomic<int> started;
std::atomic<int> started_while_building;

TEST_F(ChipGraphs, HostGraphStartsNothingBeforeItIsBuilt) {
  started = 0;
  started_while_building = 0;
  const auto program = program_of(
      [](ChipOrchestration& chip) {
        static float memory[1];
        const Tensor x = chip.external(memory, DType::float32, {1});  // So it can't be recorded.
        for (int i = 0; i < 100; ++i)
          chip.submit(chip.aiv("starts"), in(x));
        started_while_building += started;
        (void)chip.read<float>(x);
        EXPECT_GE(started, 0);
      },
      {{"starts", CoreType::aiv, [](const Kernel&) { ++started; }}});
  chip_.run(program, {}, kHostGraph);
  EXPECT_EQ(started_while_building, 0);
  EXPECT_EQ(started, 100);
}

TEST_F(ChipGraphs, HostGraphLargerThanTheWindowIsRun) {
  std::vector<float> data(4);
  ChipRunOptions small = kHostGraph;
  small.window = 16;
  const auto recordable = program_of([](ChipOrchestration& chip) {
    for (int i = 0; i < 1000; ++i)
      chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
  });
  const auto direct = program_of([](ChipOrchestration& chip) {
    for (int i = 0; i < 1000; ++i)
      chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
    chip.wait(chip.tensor(0));
    for (int i = 0; i < 1000; ++i)
      chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
  });
  chip_.run(recordable, Arguments().add(Access::inout, data), small);
  chip_.run(recordable, Arguments().add(Access::inout, data), small);
  chip_.run(direct, Arguments().add(Access::inout, data), small);
  EXPECT_THAT(data, Each(4000.0F));
}

// ---- The cache ----------------------------------------------------------------------------------

TEST(GraphCacheTest, KeepsTheRecordingsUsedLast) {
  GraphCache cache;
  const std::vector<std::uint64_t> none;
  const GraphCall call{.scalars = &none, .run_scalars = &none};
  cache.add("kept", {});
  for (std::size_t i = 0; i < 2 * GraphCache::kMaxRecordings; ++i) {
    cache.add("key " + std::to_string(i), {});
    EXPECT_NE(cache.find("kept", call), nullptr) << i;
  }
  EXPECT_EQ(cache.size(), GraphCache::kMaxRecordings);
  EXPECT_EQ(cache.find("key 0", call), nullptr);
  EXPECT_NE(cache.find("key " + std::to_string(2 * GraphCache::kMaxRecordings - 1), call), nullptr);
}

TEST(GraphCacheTest, RecordingForOneRunIsNotFoundByAnother) {
  GraphCache cache;
  const std::vector<std::uint64_t> none;
  RecordedGraph graph;
  graph.only_run = 7;
  cache.add("key", graph);
  EXPECT_NE(cache.find("key", {.run = 7, .scalars = &none, .run_scalars = &none}), nullptr);
  EXPECT_EQ(cache.find("key", {.run = 8, .scalars = &none, .run_scalars = &none}), nullptr);
}

}  // namespace
}  // namespace strata::chip::test
