// Where two features meet: each of these went wrong once.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <vector>

#include "engine_support.hpp"
#include "support/process.hpp"

namespace strata::test {
namespace {

void nothing(TaskContext&) {}

TEST(EngineCorners, AnEpochOfCreatorOnlyWritersIsNotTakenForReplacedByAnOlderWrite) {
  Engine engine(thread_lanes(2));
  std::vector<float> memory(4);
  const Tensor x = engine.tensor(memory);
  constexpr int kWriters = 50;
  std::atomic<int> written{0};
  std::atomic<int> seen{-1};
  Gate start;
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 100; ++i)
      o.submit(nothing, inout(x));  // Task numbers well above the epochs'.
    const TaskId first = o.submit([&](TaskContext&) { start.wait(); });
    o.submit(nothing, out(x));
    for (int i = 0; i < kWriters; ++i) {
      o.submit([&](TaskContext&) { ++written; }, creator_only(inout(x)), after(first));
    }
    o.submit([&](TaskContext&) { seen = written.load(); }, in(x));
    start.open();
  });
  EXPECT_EQ(seen, kWriters);
}

TEST(EngineCorners, ReadingABufferWithoutAddressIsRefusedAndTheRunGoesOn) {
  Engine engine(thread_lanes(1));
  const BufferId buffer = engine.add_buffer(nullptr, 64);
  const std::int64_t shape[] = {16};
  const Tensor x(buffer, 0, DType::float32, shape);
  std::atomic<int> ran{0};
  engine.run([&](Orchestration& o) {
    o.submit([&](TaskContext& c) { ran += c.data<float>(0) == nullptr ? 1 : 0; }, out(x));
    EXPECT_THROW((void)o.read<float>(x, {0}), InvalidArgument);
    EXPECT_THROW(o.write<float>(x, {0}, 1), InvalidArgument);
    o.submit([&](TaskContext&) { ++ran; }, in(x));
  });
  EXPECT_EQ(ran, 2);
  engine.remove_buffer(buffer);
}

TEST(EngineCorners, AnotherEngineRefusesARecording) {
  Engine one(thread_lanes(1));
  Engine other(thread_lanes(1));
  std::vector<float> memory(4);
  const Tensor x = one.tensor(memory);
  const Tensor y = other.tensor(memory);
  const Recording recording = one.record(
      {.tensors = {x}},
      [](Orchestration& o, const Parameters& p) { o.submit(nothing, inout(p.tensor(0))); });
  other.run([&](Orchestration& o) { EXPECT_THROW(o.replay(recording, {y}), InvalidArgument); });
  one.run([&](Orchestration& o) { o.replay(recording, {x}); });
  EXPECT_EQ(recording.stats().replays, 1U);
}

TEST(EngineCorners, ARecordedGroupWithAnEmptyMemberIsRefused) {
  Engine engine(thread_lanes(2));
  EXPECT_THROW((void)engine.record({},
                                   [](Orchestration& o, const Parameters&) {
                                     std::vector<GroupMember> members;
                                     members.push_back({.lane = LaneId{0}, .body = nothing});
                                     members.push_back({.lane = LaneId{1}, .body = nullptr});
                                     o.submit_group({.members = members});
                                   }),
               InvalidArgument);
}

TEST(EngineCorners, ReplaysWithChangingScalarsDoNotPileUpTheirArguments) {
  Engine engine(thread_lanes(1));
  std::vector<float> memory(4);
  const Tensor x = engine.tensor(memory);
  constexpr int kTasks = 100;
  const Recording recording =
      engine.record({.tensors = {x}, .scalars = 1}, [](Orchestration& o, const Parameters& p) {
        for (int i = 0; i < kTasks; ++i)
          o.submit(nothing, inout(p.tensor(0)), p.scalar(0));
      });
  const auto replay_many = [&] {
    engine.run([&](Orchestration& o) {
      for (int i = 0; i < 2000; ++i)
        o.replay(recording, {x}, {scalar(i)});
    });
  };
  replay_many();
  const std::size_t before = allocated_bytes();
  replay_many();
  replay_many();
  // Kept, the arguments of 4,000 replays of 100 tasks would take some 30 MB.
  EXPECT_LT(allocated_bytes(), before + (std::size_t{10} << 20));
}

class ThrowingLane : public ExternalLane {
 public:
  void dispatch(DispatchId, TaskContext&, Body&) override {
    throw std::runtime_error("the mailbox is gone");
  }
};

TEST(EngineCorners, ADispatchThatThrowsFailsItsTaskAndTheLaneGoesOn) {
  Engine engine({.kinds = {{.name = "far", .external = {std::make_shared<ThrowingLane>()}}}});
  const strata::Run run = engine.submit([&](Orchestration& o) {
    for (int i = 0; i < 3; ++i)
      o.submit(nothing);
  });
  ASSERT_TRUE(ends(run));
  try {
    run.result();
    FAIL() << "the run went well";
  } catch (const RunFailed& failed) {
    EXPECT_EQ(failed.failed().size(), 3U);
    EXPECT_EQ(failed.failed()[0].message, "the mailbox is gone");
  }
}

TEST(EngineCorners, TwoSubmissionsWithTwoOutputsEachDoNotRefuseEachOther) {
  constexpr std::int64_t kUnit = 4096;
  for (int round = 0; round < 200; ++round) {
    Engine engine({.kinds = {{.name = "cpu", .threads = 1}}, .heap = 2 * kUnit});
    const auto both = [&](Orchestration& o) {
      const Scope scope = o.scope();
      Tensor a(DType::uint8, {kUnit});
      Tensor b(DType::uint8, {kUnit});
      o.submit(nothing, out(a), out(b));
    };
    const strata::Run one = engine.submit(both);
    const strata::Run two = engine.submit(both);
    ASSERT_TRUE(ends(one));
    ASSERT_TRUE(ends(two));
    one.result();
    two.result();
  }
}

TEST(EngineCorners, AnAfterEdgeToNoTaskIsNoEdge) {
  Engine engine(thread_lanes(1));
  engine.run([&](Orchestration& o) {
    const LaneHold hold = engine.hold_lanes();
    o.submit(nothing);
    o.submit(nothing, after(TaskId{}));
    EXPECT_EQ(o.run().stats().edges, 0U);
  });
}

TEST(EngineCorners, AWideColumnThatFailedIsValidAgainOnceRewrittenAndItsNeighbourAlwaysWas) {
  Engine engine(thread_lanes(1));
  constexpr std::int64_t kRows = 100'000;  // More runs of bytes than are kept one by one.
  std::vector<std::uint8_t> memory(kRows * 4);
  const Tensor x = engine.tensor(memory, {kRows, 4});
  std::atomic<int> ran{0};
  const strata::Run bad = engine.submit([&](Orchestration& o) {
    o.submit([](TaskContext&) { throw std::runtime_error("no"); }, out(x.slice(1, 0, 1)));
  });
  ASSERT_TRUE(ends(bad));
  engine.run(
      [&](Orchestration& o) { o.submit([&](TaskContext&) { ++ran; }, in(x.slice(1, 2, 3))); });
  EXPECT_EQ(ran, 1);
  engine.run([&](Orchestration& o) {
    o.submit(nothing, out(x.slice(1, 0, 1)));
    o.submit([&](TaskContext&) { ++ran; }, in(x.slice(1, 0, 1)));
  });
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace strata::test
