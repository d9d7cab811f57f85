// EngineOptions::check_task: whoever owns the lanes sees each task before it is submitted.

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "engine_support.hpp"

namespace strata::test {
namespace {

struct Counted {
  std::atomic<int>* runs;
  void operator()(TaskContext&) const { ++*runs; }
};

EngineOptions checked(std::function<void(TaskSpec&)> check) {
  EngineOptions options = thread_lanes(2);
  options.check_task = std::move(check);
  return options;
}

TEST(TaskCheck, WhatItThrowsRefusesTheTaskAndTheRunGoesOn) {
  Engine engine(checked([](TaskSpec& task) {
    if (task.name == "bad") throw InvalidArgument("no tasks that are called bad");
  }));
  std::atomic<int> ran{0};
  const strata::Run run = engine.run([&](Orchestration& o) {
    EXPECT_THROW(o.submit(Counted{&ran}, named("bad")), InvalidArgument);
    o.submit(Counted{&ran}, named("good"));
  });
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(run.stats().tasks, 1U);
}

TEST(TaskCheck, ItMayPutAnotherBodyInThePlaceOfTheTasks) {
  std::atomic<int> one{0}, other{0};
  Engine engine(checked([&](TaskSpec& task) {
    const Counted* const body = task.body.target<Counted>();
    ASSERT_NE(body, nullptr);
    ASSERT_EQ(body->runs, &one);
    task.body = [&](TaskContext&) { ++other; };
  }));
  engine.run([&](Orchestration& o) {
    o.submit(Counted{&one});
    std::vector<GroupMember> members(2);
    members[0] = {.lane = {0}, .body = Counted{&one}};
    members[1] = {.lane = {1}, .body = Counted{&one}};
    o.submit_group({.members = members});
  });
  EXPECT_EQ(one, 0);
  EXPECT_EQ(other, 3);
}

TEST(TaskCheck, EachMemberOfAGroupIsSeenWithItsLaneAndAFailedOneKeepsItsBody) {
  std::vector<std::uint32_t> lanes;
  Engine engine(checked([&](TaskSpec& task) {
    EXPECT_EQ(task.name, "pair");
    EXPECT_EQ(task.target.by, Target::By::lane);
    lanes.push_back(task.target.index);
    if (lanes.size() == 2) throw InvalidArgument("not on lane 1");
  }));
  std::atomic<int> ran{0};
  engine.run([&](Orchestration& o) {
    std::vector<GroupMember> members(2);
    members[0] = {.lane = {0}, .body = Counted{&ran}};
    members[1] = {.lane = {1}, .body = Counted{&ran}};
    EXPECT_THROW(o.submit_group({.members = members, .name = "pair"}), InvalidArgument);
    o.submit_group({.members = members, .name = "pair"});
  });
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(lanes, (std::vector<std::uint32_t>{0, 1, 0, 1}));
}

TEST(TaskCheck, ATaskIsCheckedWhenItIsRecordedAndNotAgainWhenItIsReplayed) {
  int checks = 0;
  Engine engine(checked([&](TaskSpec&) { ++checks; }));
  std::vector<float> memory(4);
  const Tensor x = engine.tensor(memory);
  std::atomic<int> ran{0};
  const Recording recording =
      engine.record({.tensors = {x}}, [&](Orchestration& o, const Parameters& parameters) {
        o.submit(Counted{&ran}, inout(parameters.tensor(0)));
      });
  EXPECT_EQ(checks, 1);
  engine.run([&](Orchestration& o) {
    o.replay(recording, {x});
    o.replay(recording, {x});
  });
  EXPECT_EQ(checks, 1);
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace strata::test
