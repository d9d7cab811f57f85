// Chip programs on the chips of a Worker: platforms, options, logs.

#include "support/chip_test.hpp"

namespace strata::test {
namespace {

class ChipPlatforms : public ChipTest, public testing::WithParamInterface<const char*> {};

TEST_P(ChipPlatforms, AProgramRunsAsOftenAsItIsCalled) {
  start(std::string(GetParam()));
  for (int i = 1; i <= 20; ++i) {
    ASSERT_FALSE(run(Way::increment));
    ASSERT_EQ(at(0), i);
    ASSERT_EQ(at(15), i);
  }
  EXPECT_FALSE(run(Way::add, 100));
  EXPECT_EQ(at(7), 120);
}

TEST_P(ChipPlatforms, OneThatSubmitsNothingHasSucceeded) {
  start(std::string(GetParam()));
  EXPECT_FALSE(run(Way::nothing));
  EXPECT_FALSE(run(Way::nothing));
}

TEST_P(ChipPlatforms, TheGraphIsRecordedWhereTheHostBuildsIt) {
  start(std::string(GetParam()));
  const CallableId recorded =
      worker_->add(Callable::chip_program(ways_file(), {.mode = OrchestrationMode::host_graph}));
  for (int i = 1; i <= 5; ++i)
    ASSERT_FALSE(run(Way::add, i, Call(recorded)));
  EXPECT_EQ(at(3), 15);
}

INSTANTIATE_TEST_SUITE_P(Chip, ChipPlatforms,
                         testing::Values("a2a3sim", "a5sim", "cpu", "a2a3sim:clusters=2,staging=1"),
                         [](const auto& platform) {
                           std::string name;
                           for (const char c : std::string(platform.param))
                             if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
                           return name;
                         });

class ChipRuns : public ChipTest {};

TEST_F(ChipRuns, TheChipHasTheGeometryThatWasAskedFor) {
  start("a2a3sim:clusters=5");
  EXPECT_FALSE(run(Way::geometry));
  EXPECT_EQ(at(0), 5);
  EXPECT_EQ(at(1), 5);
  EXPECT_EQ(at(2), 10);
}

TEST_F(ChipRuns, WhatEachCallableSaysOfItsRunsHolds) {
  start("a2a3sim:clusters=1");
  const CallableId narrow =
      worker_->add(Callable::chip_program(ways_file(), {.heap = std::size_t{64} << 10}));
  const CallableId kept = worker_->add(Callable::chip_program(ways_file(), {.keep_graph = true}));
  EXPECT_NE(narrow, ways_);
  EXPECT_NE(kept, narrow);
  EXPECT_EQ(worker_->add(Callable::chip_program(ways_file())), ways_);
  EXPECT_FALSE(run(Way::allocate, 1 << 20));
  const auto full = run(Way::allocate, 1 << 20, Call(narrow));
  ASSERT_TRUE(full);
  EXPECT_THAT(full->cause, HasSubstr("1048576"));
  x_ = worker_->create_buffer(16 * 8);
  const Run run = submit(Way::increment, 0, Call(kept));
  run.result();
  ASSERT_EQ(run.values().size(), 1U);
  EXPECT_THAT(run.values()[0].second, HasSubstr("digraph"));
  EXPECT_THAT(run.values()[0].second, HasSubstr("increment"));
}

TEST_F(ChipRuns, WhatTheChipsOptionsSayHoldsWhereACallableSaysNothing) {
  WorkerOptions options;
  options.chips = {{.platform = "a2a3sim:clusters=1", .run = {.heap = std::size_t{64} << 10}}};
  start(std::move(options));
  EXPECT_TRUE(run(Way::allocate, 1 << 20));
  x_ = worker_->create_buffer(16 * 8);
  const CallableId wide =
      worker_->add(Callable::chip_program(ways_file(), {.heap = std::size_t{4} << 20}));
  EXPECT_FALSE(run(Way::allocate, 1 << 20, Call(wide)));
}

TEST_F(ChipRuns, LinesOfOrchestrationAndKernelAreInTheChipsLog) {
  start("a2a3sim:clusters=1");
  EXPECT_FALSE(run(Way::logs));
  const auto fault = run(Way::crash_segv);
  ASSERT_TRUE(fault);
  std::string log;
  for (const std::string& line : fault->log)
    log += line + "\n";
  EXPECT_THAT(log, HasSubstr("here is the orchestration"));
  EXPECT_THAT(log, testing::ContainsRegex("logs.*here is the kernel"));
}

TEST_F(ChipRuns, FunctionsAndProgramsTakeTurnsOnOneChip) {
  start("a2a3sim:clusters=1");
  const CallableId function = worker_->add(task_in_library("increment"));
  worker_->run([&](Orchestration& o) {
    for (int i = 0; i < 50; ++i) {
      o.submit(Call(function), inout(x()), on(worker_->chip(0)));
      o.submit(Call(ways_), inout(x()), scalar(Way::increment), scalar(std::int64_t{0}),
               on(worker_->chip(0)));
    }
  });
  EXPECT_EQ(at(0), 100);
}

TEST_F(ChipRuns, ManyProgramsInFlightGoToWhicheverChipIsFree) {
  WorkerOptions options;
  options.chips = {
      {.platform = "a2a3sim:clusters=2"}, {.platform = "cpu"}, {.platform = "a5sim:clusters=1"}};
  start(std::move(options));
  Buffer many = worker_->create_buffer(100 * 8);
  worker_->run([&](Orchestration& o) {
    for (std::size_t round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < 100; ++i) {
        o.submit(Call(ways_), inout(many.tensor(DType::int64, {1}, 8 * i)), scalar(Way::add),
                 scalar(static_cast<std::int64_t>(i)), on(worker_->any_chip()));
      }
    }
  });
  for (std::size_t i = 0; i < 100; ++i)
    EXPECT_EQ(many.as<std::int64_t>()[i], static_cast<std::int64_t>(3 * i));
}

TEST_F(ChipRuns, AGroupOfChipsRunsOneProgramOnEach) {
  WorkerOptions options;
  options.chips = {{.platform = "a2a3sim:clusters=1"}, {.platform = "a2a3sim:clusters=1"}};
  start(std::move(options));
  Buffer other = worker_->create_buffer(8);
  const std::array scalars{scalar(Way::increment), scalar(std::int64_t{0})};
  const Tensor a = x();
  const Tensor b = other.tensor(DType::int64, {1});
  const TensorArg of_a = inout(a);
  const TensorArg of_b = inout(b);
  worker_->run([&](Orchestration& o) {
    std::vector<GroupMember> members(2);
    members[0] = {
        .lane = worker_->chip(0), .body = Call(ways_), .tensors = {&of_a, 1}, .scalars = scalars};
    members[1] = {
        .lane = worker_->chip(1), .body = Call(ways_), .tensors = {&of_b, 1}, .scalars = scalars};
    o.submit_group({.members = members});
  });
  EXPECT_EQ(at(0), 1);
  EXPECT_EQ(other.as<std::int64_t>()[0], 1);
}

}  // namespace
}  // namespace strata::test
