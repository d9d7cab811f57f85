// Several blocked submitters, and lanes that are held: who can be served is decided for all
// together.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine_support.hpp"

namespace strata::test {
namespace {

constexpr std::int64_t kUnit = 4096;

EngineOptions heap_of(std::int64_t count) {
  return {.kinds = {{.name = "cpu", .threads = 2}},
          .heap = static_cast<std::size_t>(count * kUnit)};
}

/// Orchestrations that each hold some of the heap, meet, and then each ask for more.
class Crossing {
 public:
  struct Side {
    std::int64_t holds;
    std::int64_t asks;
  };
  Crossing(Engine& engine, std::vector<Side> sides) : meeting_(static_cast<int>(sides.size())) {
    for (const Side side : sides) {
      runs_.push_back(engine.submit([this, side](Orchestration& o) {
        Tensor held;
        if (side.holds != 0) held = o.allocate(DType::uint8, {side.holds * kUnit});
        if (!meeting_.arrive()) return;
        try {
          (void)o.allocate(DType::uint8, {side.asks * kUnit});
          ++served_;
        } catch (const CapacityError& error) {
          ++(error.facts().fragmented ? fragmented_ : refused_);
        }
        // A refused one may go on with other things; it lets go of its tensors when it ends.
      }));
    }
  }
  /// True if every run has come to an end by itself.
  bool end() {
    bool all = true;
    for (const strata::Run& run : runs_)
      all = ends(run) && all;
    return all;
  }
  [[nodiscard]] int served() const { return served_; }
  [[nodiscard]] int refused() const { return refused_; }
  /// True if at most one was served. It may be none: one that holds a block in the middle can't
  /// have all the rest in one piece, and is refused for that.
  [[nodiscard]] bool all_but_one_refused() const {
    const int all = static_cast<int>(runs_.size());
    return served_ + refused_ + fragmented_ == all && (served_ == 1 || fragmented_ > 0);
  }

 private:
  Meeting meeting_;
  std::atomic<int> served_{0};
  std::atomic<int> refused_{0};
  std::atomic<int> fragmented_{0};
  std::vector<strata::Run> runs_;
};

TEST(BlockedSubmitters, OfTwoThatCrossOneIsRefusedAndTheOtherGetsOn) {
  for (int round = 0; round < 50; ++round) {
    Engine engine(heap_of(4));
    Crossing crossing(engine, {{.holds = 2, .asks = 2}, {.holds = 2, .asks = 2}});
    ASSERT_TRUE(crossing.end());
    EXPECT_EQ(crossing.served(), 1);
    EXPECT_EQ(crossing.refused(), 1);
    EXPECT_EQ(engine.stats().heap_used, 0U);
  }
}

TEST(BlockedSubmitters, ChainOfThreeNeedsNoRefusal) {
  // The first two fit one after the other, the third once both have ended. (It asks for all there
  // is, so that fragmentation is no reason either.)
  for (int round = 0; round < 50; ++round) {
    Engine engine(heap_of(4));
    Crossing crossing(engine,
                      {{.holds = 1, .asks = 1}, {.holds = 2, .asks = 1}, {.holds = 0, .asks = 4}});
    ASSERT_TRUE(crossing.end());
    EXPECT_EQ(crossing.served(), 3);
    EXPECT_EQ(crossing.refused(), 0);
  }
}

TEST(BlockedSubmitters, OfThreeThatCrossAsManyAreRefusedAsNeeded) {
  // Each needs the room of both others: two must be refused, one after the other.
  for (int round = 0; round < 20; ++round) {
    Engine engine(heap_of(3));
    Crossing crossing(engine,
                      {{.holds = 1, .asks = 2}, {.holds = 1, .asks = 2}, {.holds = 1, .asks = 2}});
    ASSERT_TRUE(crossing.end()) << "round " << round;
    EXPECT_TRUE(crossing.all_but_one_refused());
    if (HasFailure()) break;
  }
}

TEST(BlockedSubmitters, RefusalOfOneThatHeldNothingDoesNotLeaveTheOthersWaiting) {
  for (int round = 0; round < 20; ++round) {
    Engine engine(heap_of(4));
    Crossing crossing(engine,
                      {{.holds = 2, .asks = 2}, {.holds = 2, .asks = 2}, {.holds = 0, .asks = 5}});
    ASSERT_TRUE(crossing.end()) << "round " << round;
    EXPECT_EQ(crossing.served(), 1);
    EXPECT_EQ(crossing.refused(), 2);
    if (HasFailure()) break;
  }
}

TEST(BlockedSubmitters, OfEightThatEachNeedAllSevenAreRefused) {
  // They block at about the same time, so that one blocks while another is being refused.
  for (int round = 0; round < 100; ++round) {
    Engine engine({.kinds = {{.name = "cpu", .threads = 1}}, .heap = 8 * kUnit});
    Crossing crossing(engine, std::vector<Crossing::Side>(8, {.holds = 1, .asks = 7}));
    ASSERT_TRUE(crossing.end()) << "round " << round;
    EXPECT_TRUE(crossing.all_but_one_refused());
    if (HasFailure()) break;
  }
}

TEST(BlockedSubmitters, RefusedOneThatAsksForLessGoesOn) {
  Engine engine(heap_of(4));
  Meeting meeting(2);
  std::atomic<int> refused{0};
  const auto side = [&](Orchestration& o) {
    const Scope outer = o.scope();
    {
      Scope scope = o.scope();
      (void)o.allocate(DType::uint8, {2 * kUnit});
      if (!meeting.arrive()) return;
      try {
        (void)o.allocate(DType::uint8, {2 * kUnit});
        return;
      } catch (const CapacityError&) {
        ++refused;
        scope.close();
      }
    }
    (void)o.allocate(DType::uint8, {2 * kUnit});  // Waits for the other, without the scope.
  };
  const strata::Run a = engine.submit(side);
  const strata::Run b = engine.submit(side);
  ASSERT_TRUE(ends(a));
  ASSERT_TRUE(ends(b));
  a.result();
  b.result();
  EXPECT_EQ(refused, 1);
}

TEST(BlockedSubmitters, HandleMadeWhileAnotherWaitsForItsTensorTurnsTheWaitIntoARefusal) {
  Engine engine(heap_of(2));
  Gate keep;
  TensorHandle kept;
  const strata::Run holder = engine.submit([&](Orchestration& o) {
    const Tensor t = o.allocate(DType::uint8, {2 * kUnit});
    keep.wait();
    kept = o.keep(t);
  });
  ASSERT_TRUE(eventually([&] { return engine.stats().heap_used == 2 * kUnit; }));
  const strata::Run waiter =
      engine.submit([&](Orchestration& o) { (void)o.allocate(DType::uint8, {kUnit}); });
  ASSERT_TRUE(eventually([&] { return engine.stats().blocked_submits > 0; }));
  EXPECT_FALSE(waiter.done());
  keep.open();
  ASSERT_TRUE(ends(waiter));
  EXPECT_THROW(waiter.result(), CapacityError);
  ASSERT_TRUE(ends(holder));
}

TEST(BlockedSubmitters, RunThatItsOwnOrchestrationWaitsForIsRefusedNotWaitedFor) {
  // The outer orchestration holds the heap and waits for the inner run, which can't have any.
  Engine engine(heap_of(2));
  std::atomic<bool> refused{false};
  strata::Run inner;
  std::atomic<bool> inner_known{false};
  const strata::Run outer = engine.submit([&](Orchestration& o) {
    (void)o.allocate(DType::uint8, {2 * kUnit});
    inner = engine.submit([&](Orchestration& i) {
      try {
        (void)i.allocate(DType::uint8, {kUnit});
      } catch (const CapacityError&) {
        refused = true;
      }
    });
    inner_known = true;
    inner.wait();
  });
  ASSERT_TRUE(eventually([&] { return inner_known.load(); }));
  EXPECT_TRUE(ends(inner));
  EXPECT_TRUE(ends(outer));
  EXPECT_TRUE(refused);
}

TEST(BlockedSubmitters, NestedRunOnTheSameThreadIsRefusedNotWaitedFor) {
  Engine engine(heap_of(2));
  std::atomic<bool> refused{false};
  strata::Run inner;
  std::atomic<bool> inner_known{false};
  const strata::Run outer = engine.submit([&](Orchestration& o) {
    (void)o.allocate(DType::uint8, {2 * kUnit});
    engine.run([&](Orchestration& i) {
      inner = i.run();
      inner_known = true;
      try {
        (void)i.allocate(DType::uint8, {kUnit});
      } catch (const CapacityError&) {
        refused = true;
      }
    });
  });
  ASSERT_TRUE(eventually([&] { return inner_known.load(); }));
  EXPECT_TRUE(ends(inner));
  EXPECT_TRUE(ends(outer));
  EXPECT_TRUE(refused);
}

// ---- Held lanes ---------------------------------------------------------------------------------

TEST(BlockedSubmitters, FullWindowIsADeadEndForTheThreadThatHoldsTheLanes) {
  for (const std::size_t window : {1, 2, 7}) {
    std::uint64_t suggested = 0;
    std::atomic<int> ran{0};
    Engine engine({.kinds = {{.name = "cpu", .threads = 2}}, .window = window});
    engine.run([&](Orchestration& o) {
      {
        const LaneHold hold = engine.hold_lanes();
        for (std::size_t i = 0; i < window; ++i)
          o.submit([&](TaskContext&) { ++ran; });
        try {
          o.submit([&](TaskContext&) { ran = -100; });
          ADD_FAILURE() << "was not refused";
        } catch (const CapacityError& error) {
          EXPECT_EQ(error.facts().resource, CapacityError::Resource::window);
          EXPECT_EQ(error.facts().capacity, window);
          EXPECT_EQ(error.facts().used, window);
          EXPECT_EQ(error.facts().asked, 1U);
          EXPECT_EQ(error.facts().setting, "EngineOptions::window");
          EXPECT_EQ(error.facts().scope, "root");
          suggested = error.facts().suggested;
        }
        EXPECT_EQ(ran, 0);
      }
      for (std::size_t i = 0; i < window; ++i)
        o.submit([&](TaskContext&) { ++ran; });
    });
    EXPECT_EQ(ran, static_cast<int>(2 * window));

    Engine larger({.kinds = {{.name = "cpu", .threads = 1}}, .window = suggested});
    larger.run([&](Orchestration& o) {
      const LaneHold hold = larger.hold_lanes();
      for (std::size_t i = 0; i <= window; ++i)
        o.submit(nothing);
    });
  }
}

TEST(BlockedSubmitters, FullHeapIsADeadEndForTheThreadThatHoldsTheLanes) {
  // Only a task holds the room, and that can't run: the submitter would wait for itself.
  Engine engine(heap_of(2));
  std::atomic<bool> refused{false};
  std::atomic<int> ran{0};
  const strata::Run run = engine.submit([&](Orchestration& o) {
    {
      const LaneHold hold = engine.hold_lanes();
      {
        const Scope scope = o.scope();
        Tensor t(DType::uint8, {2 * kUnit});
        o.submit([&](TaskContext&) { ++ran; }, out(t));
      }
      try {
        (void)o.allocate(DType::uint8, {kUnit});
      } catch (const CapacityError&) {
        refused = true;
      }
    }
    (void)o.allocate(DType::uint8, {kUnit});
  });
  EXPECT_TRUE(ends(run));
  EXPECT_TRUE(refused);
  EXPECT_EQ(ran, 1);
}

TEST(BlockedSubmitters, LanesHeldByAnotherThreadAreWaitedFor) {
  Engine engine({.kinds = {{.name = "cpu", .threads = 1}}, .window = 1});
  std::atomic<int> ran{0};
  strata::Run run;
  {
    const LaneHold hold = engine.hold_lanes();
    run = engine.submit([&](Orchestration& o) {
      for (int i = 0; i < 10; ++i)
        o.submit([&](TaskContext&) { ++ran; });
    });
    ASSERT_TRUE(eventually([&] { return engine.stats().blocked_submits > 0; }));
    EXPECT_EQ(ran, 0);
    EXPECT_FALSE(run.done());
  }
  ASSERT_TRUE(ends(run));
  run.result();
  EXPECT_EQ(ran, 10);
}

TEST(BlockedSubmitters, HoldBehindARunningTaskIsRefusedOnceThatHasEnded) {
  // While the task runs it may free a slot, so the submitter waits; it does, and then none is left.
  for (int round = 0; round < 200; ++round) {
    Engine engine({.kinds = {{.name = "cpu", .threads = 1}}, .window = 1});
    std::atomic<int> ran{0};
    std::atomic<bool> refused{false};
    Gate started;
    Gate proceed;
    const strata::Run run = engine.submit([&](Orchestration& o) {
      o.submit([&](TaskContext&) {
        started.open();
        proceed.wait();
        ++ran;
      });
      started.wait();
      const LaneHold hold = engine.hold_lanes();
      proceed.open();
      try {
        o.submit([&](TaskContext&) { ++ran; });
        o.submit([&](TaskContext&) { ++ran; });
      } catch (const CapacityError&) {
        refused = true;
      }
    });
    ASSERT_TRUE(ends(run)) << "round " << round;
    EXPECT_TRUE(refused);
    EXPECT_EQ(ran, 2);
    if (HasFailure()) break;
  }
}

TEST(BlockedSubmitters, HeldLanesStartNothing) {
  Engine engine({.kinds = {{.name = "cpu", .threads = 2}}});
  std::atomic<int> ran{0};
  const std::vector<LaneId> lanes = engine.lanes(KindId{0});
  engine.run([&](Orchestration& o) {
    std::vector<GroupMember> members;
    for (const LaneId lane : lanes) {
      members.push_back({.lane = lane, .body = [&](TaskContext&) { ++ran; }});
    }
    {
      const LaneHold outer = engine.hold_lanes();
      {
        const LaneHold inner = engine.hold_lanes();
        for (int i = 0; i < 100; ++i)
          o.submit([&](TaskContext&) { ++ran; });
        for (int i = 0; i < 100; ++i)
          o.submit([&](TaskContext&) { ++ran; }, on(lanes[i % 2]));
        o.submit_group({.members = members});
      }
      EXPECT_EQ(ran, 0);
    }
  });
  EXPECT_EQ(ran, 202);
}

}  // namespace
}  // namespace strata::test
