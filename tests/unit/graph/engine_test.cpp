// The engine as a user sees it: order, values, scopes, runs.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "strata/strata.hpp"

namespace strata {
namespace {

EngineOptions two_lanes() { return {.kinds = {{.name = "cpu", .threads = 1, .callers = 1}}}; }
EngineOptions caller_only() { return {.kinds = {{.name = "cpu", .callers = 1}}}; }

void add_one(TaskContext& c) {
  for (std::int64_t i = 0; i < c.tensor(0).extent(0); ++i)
    c.data<float>(0)[i] += 1;
}

TEST(Engine, ChainOfInoutTasksAddsUp) {
  Engine engine(two_lanes());
  std::vector<float> data(8, 0);
  const Tensor x = engine.tensor(data);
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 1000; ++i)
      o.submit(add_one, inout(x));
  });
  EXPECT_EQ(data, std::vector<float>(8, 1000));
}

TEST(Engine, SubmitReturnsAtOnceAndWaitEnds) {
  Engine engine(two_lanes());
  std::vector<float> data(8, 0);
  const Tensor x = engine.tensor(data);
  const strata::Run run = engine.submit([&](Orchestration& o) {
    for (int i = 0; i < 100; ++i)
      o.submit(add_one, inout(x));
  });
  run.wait();
  EXPECT_TRUE(run.done());
  run.result();
  EXPECT_EQ(data[0], 100);
}

TEST(Engine, RuntimeAllocatedOutputIsFilledAndFreedWithItsScope) {
  Engine engine(caller_only());
  std::vector<float> data(4, 0);
  const Tensor x = engine.tensor(data);
  const float one = 1;
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 100; ++i) {
      const Scope scope = o.scope();
      Tensor t(DType::float32, {4});
      o.submit(add_one, out(t, &one));
      o.submit(
          [](TaskContext& c) {
            for (int k = 0; k < 4; ++k)
              c.data<float>(1)[k] += c.data<float>(0)[k];
          },
          in(t), inout(x));
    }
  });
  EXPECT_EQ(data, std::vector<float>(4, 200));
  EXPECT_EQ(engine.stats().heap_used, 0U);
}

TEST(Engine, FailureSkipsReadersAndNothingElse) {
  Engine engine(two_lanes());
  std::vector<float> a(4, 0);
  std::vector<float> b(4, 0);
  const Tensor x = engine.tensor(a);
  const Tensor y = engine.tensor(b);
  std::atomic<int> ran{0};
  const strata::Run run = engine.submit([&](Orchestration& o) {
    o.submit([](TaskContext&) { throw std::runtime_error("no luck"); }, out(x), named("bad"));
    o.submit([&](TaskContext&) { ran += 1; }, in(x), named("reader"));
    o.submit([&](TaskContext&) { ran += 10; }, out(x), named("overwriter"));
    o.submit([&](TaskContext&) { ran += 100; }, in(x), named("later reader"));
    o.submit([&](TaskContext&) { ran += 1000; }, out(y), named("other"));
  });
  run.wait();
  EXPECT_EQ(ran, 1110);
  try {
    run.result();
    FAIL() << "the run did not fail";
  } catch (const RunFailed& failed) {
    ASSERT_EQ(failed.failed().size(), 1U);
    EXPECT_EQ(failed.failed()[0].name, "bad");
    ASSERT_EQ(failed.skipped().size(), 1U);
    EXPECT_EQ(failed.skipped()[0].name, "reader");
    EXPECT_EQ(failed.skipped()[0].cause, failed.failed()[0].task);
  }
}

TEST(Engine, ReplayDoesWhatTheOrchestrationDid) {
  Engine engine(two_lanes());
  std::vector<float> a(4, 0);
  std::vector<float> b(4, 0);
  const Tensor x = engine.tensor(a);
  const Tensor y = engine.tensor(b);
  const Recording recording =
      engine.record({.tensors = {x}}, [](Orchestration& o, const Parameters& p) {
        for (int i = 0; i < 10; ++i)
          o.submit(add_one, inout(p.tensor(0)));
      });
  EXPECT_EQ(a[0], 0);
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 5; ++i)
      o.replay(recording, {x});
    o.replay(recording, {y});
  });
  EXPECT_EQ(a[0], 50);
  EXPECT_EQ(b[0], 10);
}

TEST(Engine, GroupMembersRunAtTheSameTime) {
  Engine engine({.kinds = {{.name = "a", .threads = 3}}});
  std::atomic<int> arrived{0};
  engine.run([&](Orchestration& o) {
    for (int round = 0; round < 50; ++round) {
      std::vector<GroupMember> members;
      for (std::uint32_t lane = 0; lane < 3; ++lane) {
        members.push_back({.lane = LaneId{lane}, .body = [&, round](TaskContext&) {
                             arrived.fetch_add(1);
                             while (arrived.load() < 3 * (round + 1))
                               std::this_thread::yield();
                           }});
      }
      o.submit_group({.members = members});
      o.submit([](TaskContext&) {});
    }
  });
  EXPECT_EQ(arrived, 150);
}

TEST(Engine, HostReadWaitsForTheWriter) {
  Engine engine(two_lanes());
  std::vector<float> a(4, 0);
  const Tensor x = engine.tensor(a);
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 20; ++i) {
      o.submit(add_one, inout(x));
      EXPECT_EQ(o.read<float>(x, {2}), static_cast<float>(2 * i + 1));
      o.write<float>(x, {2}, static_cast<float>(2 * i + 2));
    }
  });
}

}  // namespace
}  // namespace strata
