// Where and in which order ready tasks run. Numbers in comments are invariants of
// src/graph/scheduler.hpp.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "engine_support.hpp"
#include "support/random.hpp"

namespace strata::test {
namespace {

/// Numbers in the order in which tasks were started, from several threads.
class Order {
 public:
  void add(int number) {
    const std::lock_guard lock(mutex_);
    numbers_.push_back(number);
  }
  [[nodiscard]] std::vector<int> numbers() const {
    const std::lock_guard lock(mutex_);
    return numbers_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int> numbers_;
};

std::vector<int> up_to(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// ---- Kinds --------------------------------------------------------------------------------------

TEST(Scheduling, ReadyTasksOfAKindRunFirstInFirstOut) {
  Engine engine(thread_lanes(1));
  Order order;
  engine.run([&](Orchestration& o) {
    const LaneHold hold = engine.hold_lanes();
    for (int i = 0; i < 300; ++i)
      o.submit([&order, i](TaskContext&) { order.add(i); });
  });
  EXPECT_EQ(order.numbers(), up_to(300));
}

TEST(Scheduling, SuccessorsAreReleasedInSubmissionOrder) {
  Engine engine(thread_lanes(1));
  Order order;
  Gate start;
  engine.run([&](Orchestration& o) {
    const TaskId first = o.submit([&](TaskContext&) { start.wait(); });
    for (int i = 0; i < 100; ++i) {
      o.submit([&order, i](TaskContext&) { order.add(i); }, after(first));
    }
    start.open();
    o.wait(o.submit(nothing));
  });
  EXPECT_EQ(order.numbers(), up_to(100));
}

TEST(Scheduling, HigherPriorityRunsFirstAndEqualOnesInOrder) {
  Engine engine(thread_lanes(1));
  struct Submitted {
    std::int32_t priority;
    int number;
  };
  std::vector<Submitted> submitted;
  Random random(11);
  for (int i = 0; i < 200; ++i) {
    submitted.push_back({static_cast<std::int32_t>(random.between(-3, 3)), i});
  }
  Order order;
  engine.run([&](Orchestration& o) {
    const LaneHold hold = engine.hold_lanes();
    for (const Submitted& s : submitted) {
      o.submit([&order, n = s.number](TaskContext&) { order.add(n); }, Priority{s.priority});
    }
  });
  std::stable_sort(submitted.begin(), submitted.end(),
                   [](const auto& a, const auto& b) { return a.priority > b.priority; });
  std::vector<int> expected;
  for (const Submitted& s : submitted)
    expected.push_back(s.number);
  EXPECT_EQ(order.numbers(), expected);
}

TEST(Scheduling, PriorityDoesNotOverrideDependencies) {
  Engine engine(thread_lanes(2));
  Floats a(engine, {4});
  Order order;
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 100; ++i) {
      o.submit([&order, i](TaskContext&) { order.add(i); }, inout(a.tensor), Priority{i});
    }
  });
  EXPECT_EQ(order.numbers(), up_to(100));
}

TEST(Scheduling, TaskRunsOnALaneOfTheKindItNames) {
  Engine engine({.kinds = {{.name = "a", .threads = 2}, {.name = "b", .threads = 1}}});
  std::atomic<int> wrong{0};
  for (const char* name : {"a", "b"}) {
    const std::vector<LaneId> lanes = engine.lanes(engine.kind(name));
    engine.run([&](Orchestration& o) {
      for (int i = 0; i < 200; ++i) {
        o.submit(
            [&](TaskContext& c) {
              wrong += std::count(lanes.begin(), lanes.end(), c.lane()) == 1 ? 0 : 1;
            },
            on(engine.kind(name)));
      }
    });
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Scheduling, LanesOfOneKindRunAtTheSameTime) {
  Engine engine(thread_lanes(4));
  Meeting meeting(4);
  std::atomic<int> met{0};
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 4; ++i) {
      o.submit([&](TaskContext&) { met += meeting.arrive() ? 1 : 0; });
    }
  });
  EXPECT_EQ(met, 4);
}

TEST(Scheduling, SuccessorOfAnotherKindIsReleasedByTheFinishingLane) {
  Engine engine({.kinds = {{.name = "a", .threads = 1}, {.name = "b", .threads = 1}}});
  Floats a(engine, {1});
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 1000; ++i) {
      o.submit([](TaskContext& c) { c.data<float>(0)[0] += 1; }, inout(a.tensor),
               on(KindId{static_cast<std::uint32_t>(i % 2)}));
    }
  });
  EXPECT_EQ(a.data[0], 1000);
}

TEST(Scheduling, CallerLaneRunsEveryKindOfTask) {
  Engine engine(caller_lane());
  Order order;
  engine.run([&](Orchestration& o) {
    o.submit([&](TaskContext&) { order.add(0); });
    o.submit([&](TaskContext&) { order.add(1); }, on(LaneId{0}), after(o.submit(nullptr)));
    GroupMember member{.lane = LaneId{0}, .body = [&](TaskContext&) { order.add(2); }};
    o.submit_group({.members = {&member, 1}});
  });
  std::vector<int> numbers = order.numbers();
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(numbers, up_to(3));
}

TEST(Scheduling, WaitingThreadsShareTheCallerLane) {
  // Several threads wait at once, one at a time drives the lane, and none is left out.
  Engine engine(caller_lane());
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        engine.run([&](Orchestration& o) {
          for (int i = 0; i < 10; ++i)
            o.submit([&](TaskContext&) { ++ran; });
        });
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(ran, 2000);
}

// ---- Exact lanes --------------------------------------------------------------------------------

TEST(Scheduling, TasksOfAnExactLaneRunThereStrictlyInSubmissionOrder) {
  Engine engine(thread_lanes(3));
  std::vector<Order> orders(3);
  std::atomic<int> wrong{0};
  engine.run([&](Orchestration& o) {
    TaskId any{};
    for (int i = 0; i < 300; ++i) {
      const std::uint32_t lane = static_cast<std::uint32_t>(i) % 3;
      const auto body = [&, lane, i](TaskContext& c) {
        wrong += c.lane() == LaneId{lane} ? 0 : 1;
        orders[lane].add(i / 3);
      };
      // Every other one gets ready late: those behind it on the lane must wait all the same.
      if (i % 2 == 0) any = o.submit([](TaskContext&) { std::this_thread::yield(); });
      if (i % 2 == 0) {
        o.submit(body, on(LaneId{lane}), after(any));
      } else {
        o.submit(body, on(LaneId{lane}));
      }
    }
  });
  EXPECT_EQ(wrong, 0);
  for (const Order& order : orders)
    EXPECT_EQ(order.numbers(), up_to(100));
}

TEST(Scheduling, ExactTaskThatIsReadyWaitsForTheOneBeforeItOnTheLane) {
  Engine engine(thread_lanes(2));
  Order order;
  Gate start;
  engine.run([&](Orchestration& o) {
    const TaskId late = o.submit([&](TaskContext&) { start.wait(); }, on(LaneId{1}));
    o.submit([&](TaskContext&) { order.add(0); }, on(LaneId{0}), after(late));
    o.submit([&](TaskContext&) { order.add(1); }, on(LaneId{0}));
    // The lane is free for tasks of its kind meanwhile.
    o.wait(o.submit([&](TaskContext& c) { order.add(c.lane() == LaneId{0} ? 10 : -1); }));
    start.open();
  });
  EXPECT_EQ(order.numbers(), (std::vector<int>{10, 0, 1}));
}

TEST(Scheduling, UnorderedTaskOvertakesOnItsLane) {
  Engine engine(thread_lanes(2));
  Order order;
  Gate start;
  engine.run([&](Orchestration& o) {
    const TaskId late = o.submit([&](TaskContext&) { start.wait(); }, on(LaneId{1}));
    o.submit([&](TaskContext&) { order.add(0); }, on(LaneId{0}), after(late));
    const TaskId loose =
        o.submit([&](TaskContext& c) { order.add(c.lane() == LaneId{0} ? 1 : -1); }, on(LaneId{0}),
                 unordered);
    o.wait(loose);
    start.open();
  });
  EXPECT_EQ(order.numbers(), (std::vector<int>{1, 0}));
}

TEST(Scheduling, ExactOrderHoldsOverRuns) {
  Engine engine(thread_lanes(2));
  Order order;
  Gate start;
  Gate first_submitted;
  const strata::Run first = engine.submit([&](Orchestration& o) {
    o.submit(
        [&](TaskContext&) {
          start.wait();
          order.add(0);
        },
        on(LaneId{0}));
    first_submitted.open();
  });
  ASSERT_TRUE(first_submitted.wait());
  Gate second_submitted;
  const strata::Run second = engine.submit([&](Orchestration& o) {
    o.submit([&](TaskContext&) { order.add(1); }, on(LaneId{0}));
    second_submitted.open();
  });
  ASSERT_TRUE(second_submitted.wait());
  start.open();
  ASSERT_TRUE(ends(second));
  ASSERT_TRUE(ends(first));
  EXPECT_EQ(order.numbers(), (std::vector<int>{0, 1}));
}

TEST(Scheduling, SkippedTaskGivesItsPlaceOnTheLaneUp) {
  Engine engine(thread_lanes(2));
  Floats a(engine, {1});
  Order order;
  const strata::Run run = engine.submit([&](Orchestration& o) {
    o.submit([](TaskContext&) { throw std::runtime_error("no"); }, out(a.tensor));
    o.submit([&](TaskContext&) { order.add(-1); }, in(a.tensor), on(LaneId{0}));
    o.submit([&](TaskContext&) { order.add(1); }, on(LaneId{0}));
  });
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(order.numbers(), (std::vector<int>{1}));
}

TEST(Scheduling, TaskWithoutABodyTakesNoLane) {
  Engine engine(thread_lanes(1));
  Gate start;
  engine.run([&](Orchestration& o) {
    o.submit([&](TaskContext&) { start.wait(); });
    o.wait(o.submit(nullptr));  // The only lane is taken.
    start.open();
  });
}

TEST(Scheduling, TaskOfAKindIsTakenThoughTheLaneWokenForItGotOtherWork) {
  // (3): the exact task occupies lane 1 until the other one has run, which only lane 0 can do.
  Engine engine(thread_lanes(2));
  engine.run([&](Orchestration& o) {
    for (int round = 0; round < 500; ++round) {
      Gate taken;
      std::atomic<bool> in_time{false};
      const TaskId exact = o.submit([&](TaskContext&) { in_time = taken.wait(); }, on(LaneId{1}));
      o.submit([&](TaskContext&) { taken.open(); });
      o.wait(exact);
      ASSERT_TRUE(in_time) << "round " << round;
    }
  });
}

TEST(Scheduling, NothingIsLostWhenLanesFallAsleepAndWake) {
  // (3): single tasks, far enough apart for the lanes to be asleep or just falling asleep.
  Engine engine(thread_lanes(3));
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 3000; ++i) {
      if (i % 3 == 0) {
        o.wait(o.submit(nothing));
      } else {
        o.wait(o.submit(nothing, on(LaneId{static_cast<std::uint32_t>(i) % 3})));
      }
      if (i % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
}

}  // namespace
}  // namespace strata::test
