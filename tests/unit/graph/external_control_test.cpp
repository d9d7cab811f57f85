// What an owner of external lanes can do beside completing: take lanes out of service, give tasks
// back, learn of cancellations, return values. Invariants of scheduler.hpp are named in brackets.

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine_support.hpp"
#include "mailbox_lane.hpp"

namespace strata::test {
namespace {

int number_of(const Mailbox::Item& item) { return item.context->scalar<int>(0); }

/// One task that asks for nothing but its kind, and carries a number.
void submit_numbered(Orchestration& o, int number) { o.submit(nothing, scalar(number)); }

TEST(SuspendedLanes, GetNoTasksOfTheirKind) {
  const auto a = std::make_shared<Mailbox>();
  const auto b = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a, b}, 2));
  EXPECT_FALSE(engine.lane_is_suspended(LaneId{0}));
  engine.suspend_lane(LaneId{0});
  EXPECT_TRUE(engine.lane_is_suspended(LaneId{0}));
  EXPECT_FALSE(engine.lane_is_suspended(LaneId{1}));
  const strata::Run run = engine.submit([](Orchestration& o) {
    for (int i = 0; i < 20; ++i)
      submit_numbered(o, i);
  });
  for (int i = 0; i < 20; ++i)
    engine.complete(b->take_when_there().id);
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(a->dispatched(), 0);
}

TEST(SuspendedLanes, StillGetTasksThatNameThemAndGroups) {
  const auto a = std::make_shared<Mailbox>();
  const auto b = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a, b}, 2));
  engine.suspend_lane(LaneId{0});
  const strata::Run run = engine.submit([](Orchestration& o) {
    o.submit(nothing, on(LaneId{0}));
    std::vector<GroupMember> members(2);
    for (std::uint32_t i = 0; i < 2; ++i)
      members[i] = {.lane = LaneId{i}, .body = nothing};
    o.submit_group({.members = members});
    o.submit(nothing, on(KindId{0}));
  });
  const Mailbox::Item exact = a->take_when_there();
  EXPECT_TRUE(exact.context->named_lane());
  engine.complete(exact.id);
  const Mailbox::Item member = a->take_when_there();
  EXPECT_TRUE(member.context->named_lane());
  engine.complete(member.id);
  for (int i = 0; i < 2; ++i) {
    const Mailbox::Item item = b->take_when_there();
    EXPECT_EQ(item.context->named_lane(), item.context->members() == 2);
    engine.complete(item.id);
  }
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(a->dispatched(), 2);
}

TEST(SuspendedLanes, ResumingStartsWhatWaited) {
  const auto a = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a}, 4));
  engine.suspend_lane(LaneId{0});
  const strata::Run run = engine.submit([](Orchestration& o) {
    for (int i = 0; i < 3; ++i)
      submit_numbered(o, i);
  });
  ASSERT_TRUE(eventually([&] { return run.stats().tasks == 3; }));
  EXPECT_EQ(a->dispatched(), 0);
  engine.resume_lane(LaneId{0});
  for (int i = 0; i < 3; ++i) {
    const Mailbox::Item item = a->take_when_there();
    EXPECT_EQ(number_of(item), i);
    engine.complete(item.id);
  }
  ASSERT_TRUE(ends(run));
}

TEST(SuspendedLanes, UnknownLanesAndKindsAreRefused) {
  const auto a = std::make_shared<Mailbox>();
  Engine engine(
      {.kinds = {{.name = "cpu", .threads = 1}, {.name = "chip", .external = {a}, .depth = 1}}});
  for (const LaneId lane : {LaneId{0}, LaneId{2}}) {
    EXPECT_THROW(engine.suspend_lane(lane), InvalidArgument);
    EXPECT_THROW(engine.resume_lane(lane), InvalidArgument);
    EXPECT_THROW((void)engine.lane_is_suspended(lane), InvalidArgument);
  }
  const auto error = std::make_exception_ptr(std::runtime_error("lost"));
  EXPECT_THROW(engine.fail_kind(KindId{0}, error), InvalidArgument);
  EXPECT_THROW(engine.fail_kind(KindId{2}, error), InvalidArgument);
}

TEST(GiveBack, TasksGoToAnotherLaneBeforeLaterOnes) {
  const auto a = std::make_shared<Mailbox>();
  const auto b = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a, b}, 3));
  engine.suspend_lane(LaneId{1});
  const strata::Run run = engine.submit([](Orchestration& o) {
    for (int i = 0; i < 6; ++i)
      submit_numbered(o, i);
  });
  ASSERT_TRUE(eventually([&] { return run.stats().tasks == 6 && a->size() == 3; }));
  engine.suspend_lane(LaneId{0});
  std::vector<Mailbox::Item> items(3);
  for (auto& item : items)
    item = a->take_when_there();
  // In any order: they are taken up in the order of submission.
  engine.give_back(items[1].id);
  engine.give_back(items[0].id);
  engine.give_back(items[2].id);
  EXPECT_THROW(engine.give_back(items[2].id), InvalidArgument);
  EXPECT_THROW(engine.complete(items[0].id), InvalidArgument);
  engine.resume_lane(LaneId{1});
  for (int i = 0; i < 6; ++i) {
    const Mailbox::Item item = b->take_when_there();
    EXPECT_EQ(number_of(item), i);
    engine.complete(item.id);
  }
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(a->dispatched(), 3);
}

TEST(GiveBack, WhoNamedTheLaneIsNotTakenBack) {
  const auto a = std::make_shared<Mailbox>();
  const auto b = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a, b}, 3));
  const strata::Run run = engine.submit([](Orchestration& o) {
    o.submit(nothing, on(LaneId{0}));
    std::vector<GroupMember> members(1);
    members[0] = {.lane = LaneId{1}, .body = nothing};
    o.submit_group({.members = members});
  });
  for (const auto& box : {a, b}) {
    const Mailbox::Item item = box->take_when_there();
    EXPECT_THROW(engine.give_back(item.id), InvalidArgument);
    engine.complete(item.id);  // Still there to be completed.
  }
  EXPECT_THROW(engine.give_back(DispatchId{77}), InvalidArgument);
  ASSERT_TRUE(ends(run));
  run.result();
}

TEST(GiveBack, PriorityStillChoosesAmongWhatWaits) {
  const auto a = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a}, 1));
  const strata::Run run = engine.submit([](Orchestration& o) {
    submit_numbered(o, 2);
    o.submit(nothing, scalar(4), Priority{-1});
    submit_numbered(o, 3);
    o.submit(nothing, scalar(1), Priority{1});
  });
  ASSERT_TRUE(eventually([&] { return run.stats().tasks == 4 && a->size() == 1; }));
  engine.suspend_lane(LaneId{0});
  engine.give_back(a->take_when_there().id);
  engine.resume_lane(LaneId{0});
  for (int i = 1; i <= 4; ++i) {
    const Mailbox::Item item = a->take_when_there();
    EXPECT_EQ(number_of(item), i);
    engine.complete(item.id);
  }
  ASSERT_TRUE(ends(run));
}

TEST(FailedKinds, WhatWaitsAndWhatComesFailsWithTheCause) {
  const auto a = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a}, 1));
  engine.suspend_lane(LaneId{0});
  const auto failed_as_told = [](const strata::Run& run, std::size_t tasks) {
    ASSERT_TRUE(ends(run));
    try {
      run.result();
      ADD_FAILURE() << "the run did not fail";
    } catch (const RunFailed& failed) {
      ASSERT_EQ(failed.failed().size(), tasks);
      for (const TaskFailure& failure : failed.failed())
        EXPECT_EQ(failure.message, "no chip is left");
    }
  };
  const strata::Run before = engine.submit([](Orchestration& o) {
    for (int i = 0; i < 100; ++i)
      submit_numbered(o, i);
  });
  ASSERT_TRUE(eventually([&] { return before.stats().tasks == 100; }));
  engine.fail_kind(KindId{0}, std::make_exception_ptr(std::runtime_error("no chip is left")));
  failed_as_told(before, 100);
  failed_as_told(engine.submit([](Orchestration& o) { submit_numbered(o, 0); }), 1);
  EXPECT_EQ(a->dispatched(), 0);

  engine.fail_kind(KindId{0}, nullptr);
  engine.resume_lane(LaneId{0});
  const strata::Run after = engine.submit([](Orchestration& o) { submit_numbered(o, 0); });
  engine.complete(a->take_when_there().id);
  ASSERT_TRUE(ends(after));
  after.result();
}

TEST(Cancellation, LanesAreToldOfCancelDeadlineAndFailedGroups) {
  const auto a = std::make_shared<Mailbox>();
  const auto b = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a, b}, 1));
  const auto two = [](Orchestration& o) {
    std::vector<GroupMember> members(2);
    for (std::uint32_t i = 0; i < 2; ++i)
      members[i] = {.lane = LaneId{i}, .body = nothing};
    o.submit_group({.members = members});
  };
  {
    const strata::Run run = engine.submit(two);
    const Mailbox::Item first = a->take_when_there();
    const Mailbox::Item second = b->take_when_there();
    const int before = b->cancellations();
    engine.complete(first.id, std::make_exception_ptr(std::runtime_error("first")));
    EXPECT_GT(b->cancellations(), before);
    EXPECT_TRUE(second.context->cancelled());
    engine.complete(second.id);
    ASSERT_TRUE(ends(run));
  }
  {
    const strata::Run run = engine.submit(two);
    const Mailbox::Item first = a->take_when_there();
    const Mailbox::Item second = b->take_when_there();
    const int before = a->cancellations();
    run.cancel();
    EXPECT_GT(a->cancellations(), before);
    EXPECT_TRUE(first.context->cancelled());
    engine.complete(first.id);
    engine.complete(second.id);
    ASSERT_TRUE(ends(run));
  }
  {
    const int before = a->cancellations();
    const strata::Run run = engine.submit(
        two, {.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(1)});
    // It may pass before the group starts; then nothing is dispatched.
    ASSERT_TRUE(eventually([&] { return a->cancellations() > before; }));
    Mailbox::Item item{};
    while (!run.done()) {
      if (a->take(item) || b->take(item)) engine.complete(item.id);
    }
    EXPECT_THROW(run.result(), DeadlineExceeded);
  }
}

TEST(Cancellation, ReachesTasksThatWaitForSuspendedLanes) {
  const auto a = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a}, 1));
  engine.suspend_lane(LaneId{0});
  const strata::Run lost = engine.submit([](Orchestration& o) {
    for (int i = 0; i < 10; ++i)
      submit_numbered(o, i);
  });
  const strata::Run kept = engine.submit([](Orchestration& o) { submit_numbered(o, 7); });
  ASSERT_TRUE(eventually([&] { return lost.stats().tasks == 10 && kept.stats().tasks == 1; }));
  lost.cancel();
  ASSERT_TRUE(ends(lost));
  EXPECT_THROW(lost.result(), Cancelled);
  EXPECT_FALSE(kept.done());
  engine.resume_lane(LaneId{0});
  const Mailbox::Item item = a->take_when_there();
  EXPECT_EQ(number_of(item), 7);
  engine.complete(item.id);
  ASSERT_TRUE(ends(kept));
  kept.result();
}

/// Completes, and then throws nevertheless.
class Contradictory : public ExternalLane {
 public:
  Engine* engine = nullptr;
  void dispatch(DispatchId id, TaskContext& /*context*/, Body& /*body*/) override {
    engine->complete(id);
    throw std::runtime_error("after the fact");
  }
};

TEST(ExternalControl, WhatIsThrownAfterTheCompletionDoesNotCount) {
  const auto lane = std::make_shared<Contradictory>();
  Engine engine({.kinds = {{.name = "chip", .external = {lane}}}});
  lane->engine = &engine;
  for (int round = 0; round < 3; ++round) {
    const strata::Run run = engine.submit([](Orchestration& o) {
      for (int i = 0; i < 10; ++i)
        submit_numbered(o, i);
    });
    ASSERT_TRUE(ends(run));
    run.result();
  }
}

TEST(ExternalControl, ArgumentRecordsAreThoseOfTheTask) {
  const auto a = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a}, 1));
  Floats x(engine, {4, 2});
  const strata::Run run = engine.submit([&](Orchestration& o) {
    o.submit(nothing, in(x.tensor.select(0, 1)), out(x.tensor.select(0, 2)), scalar(5));
  });
  const Mailbox::Item item = a->take_when_there();
  const detail::ArgumentBlock& block = item.context->arguments();
  ASSERT_EQ(block.tensor_count, 2U);
  ASSERT_EQ(block.scalar_count, 1U);
  EXPECT_EQ(block.scalars[0], Scalar::of(5).bits);
  EXPECT_EQ(block.tensors[0].buffer, x.tensor.buffer());
  EXPECT_EQ(block.tensors[0].byte_offset, 8);
  EXPECT_EQ(block.tensors[0].access, Access::in);
  EXPECT_EQ(block.tensors[1].byte_offset, 16);
  EXPECT_EQ(block.tensors[1].access, Access::out);
  EXPECT_FALSE(item.context->named_lane());
  engine.complete(item.id);
  ASSERT_TRUE(ends(run));
}

TEST(ExternalControl, IdsGrowBeyondTheLastTask) {
  const auto a = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a}, 4));
  EXPECT_EQ(engine.last_task().number(), 0U);
  std::vector<TaskId> ids;
  std::vector<TaskId> bounds;
  const strata::Run run = engine.submit([&](Orchestration& o) {
    for (int i = 0; i < 4; ++i) {
      bounds.push_back(engine.last_task());
      ids.push_back(o.submit(nothing));
      EXPECT_GT(ids.back(), bounds.back());
      EXPECT_LE(ids.back(), engine.last_task());
    }
  });
  for (int i = 0; i < 4; ++i)
    engine.complete(a->take_when_there().id);
  ASSERT_TRUE(ends(run));
}

TEST(Values, AreKeptInTheOrderInWhichTasksEnded) {
  const auto a = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a}, 4));
  std::vector<TaskId> ids;
  const strata::Run run = engine.submit([&](Orchestration& o) {
    for (int i = 0; i < 4; ++i)
      ids.push_back(o.submit(nothing));
  });
  std::vector<Mailbox::Item> items(4);
  for (auto& item : items)
    item = a->take_when_there();
  EXPECT_EQ(run.value(items[0].context->task()), std::nullopt);
  const TaskId tasks[] = {items[0].context->task(), items[1].context->task(),
                          items[2].context->task(), items[3].context->task()};
  std::string binary("a\0b", 3);
  engine.complete(items[2].id, nullptr, binary);
  engine.complete(items[0].id, nullptr, std::string());
  engine.complete(items[1].id);
  engine.complete(items[3].id, std::make_exception_ptr(std::runtime_error("no")), "dropped");
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(run.value(tasks[2]), binary);
  EXPECT_EQ(run.value(tasks[0]), std::string());  // Empty is a value.
  EXPECT_EQ(run.value(tasks[1]), std::nullopt);
  EXPECT_EQ(run.value(tasks[3]), std::nullopt);
  const auto values = run.values();
  ASSERT_EQ(values.size(), 2U);
  EXPECT_EQ(values[0], std::pair(tasks[2], binary));
  EXPECT_EQ(values[1], std::pair(tasks[0], std::string()));
}

TEST(Values, EachMemberOfAGroupHasItsOwn) {
  const auto a = std::make_shared<Mailbox>();
  const auto b = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a, b}, 1));
  TaskId group;
  const strata::Run run = engine.submit([&](Orchestration& o) {
    std::vector<GroupMember> members(2);
    for (std::uint32_t i = 0; i < 2; ++i)
      members[i] = {.lane = LaneId{i}, .body = nothing};
    group = o.submit_group({.members = members});
  });
  engine.complete(b->take_when_there().id, nullptr, "one");
  engine.complete(a->take_when_there().id, nullptr, "zero");
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(run.value(group, 0), "zero");
  EXPECT_EQ(run.value(group, 1), "one");
  EXPECT_EQ(run.value(group, 2), std::nullopt);
  EXPECT_EQ(run.values().size(), 2U);
}

TEST(Values, AreThereForAnOrchestrationThatWaitedForTheTask) {
  const auto a = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a}, 1));
  std::optional<std::string> seen;
  const strata::Run run = engine.submit([&](Orchestration& o) {
    const TaskId task = o.submit(nothing);
    o.wait(task);
    seen = o.run().value(task);
  });
  engine.complete(a->take_when_there().id, nullptr, std::string(1 << 20, 'x'));
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(seen, std::string(1 << 20, 'x'));
}

TEST(ExternalControl, LongTextsOfNestedErrorsArriveWhole) {
  const auto a = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a}, 1));
  const strata::Run run = engine.submit([](Orchestration& o) { o.submit(nothing, named("far")); });
  const std::string inner(10'000, 'i');
  const std::string outer(10'000, 'o');
  std::exception_ptr error;
  try {
    try {
      throw std::runtime_error(inner);
    } catch (...) {
      std::throw_with_nested(InvalidState(outer));
    }
  } catch (...) {
    error = std::current_exception();
  }
  engine.complete(a->take_when_there().id, error);
  ASSERT_TRUE(ends(run));
  try {
    run.result();
    ADD_FAILURE() << "the run did not fail";
  } catch (const RunFailed& failed) {
    EXPECT_EQ(failed.failed().at(0).message, outer + ": " + inner);
    EXPECT_NE(std::string(failed.what()).find(outer + ": " + inner), std::string::npos);
    EXPECT_THROW(std::rethrow_exception(failed.failed().at(0).exception), InvalidState);
  }
}

/// Lanes that come and go, tasks that are given back, runs that are cancelled, all at once: every
/// task ends exactly once, and nothing is dispatched to a lane beyond its depth.
TEST(ExternalControl, NothingIsLostWhileLanesComeAndGo) {
  constexpr unsigned kLanes = 3;
  constexpr unsigned kDepth = 4;
  std::vector<std::shared_ptr<Mailbox>> boxes;
  for (unsigned i = 0; i < kLanes; ++i)
    boxes.push_back(std::make_shared<Mailbox>());
  EngineOptions options = mailboxes(boxes, kDepth);
  options.window = 64;
  Engine engine(std::move(options));
  std::atomic<bool> stop{false};
  std::atomic<int> completed{0};
  std::atomic<int> given_back{0};
  std::vector<std::thread> workers;
  for (unsigned w = 0; w < kLanes; ++w) {
    workers.emplace_back([&, w] {
      std::minstd_rand random(w + 1);
      while (!stop) {
        Mailbox::Item item{};
        if (!boxes[w]->take(item)) {
          std::this_thread::yield();
          continue;
        }
        if (random() % 4 == 0 && !item.context->named_lane()) {
          engine.give_back(item.id);
          given_back.fetch_add(1);
        } else {
          if (!item.context->cancelled()) completed.fetch_add(1);
          engine.complete(item.id, nullptr, "v");
        }
      }
    });
  }
  std::thread switcher([&] {
    std::minstd_rand random(99);
    while (!stop) {
      const LaneId lane{static_cast<std::uint32_t>(random() % kLanes)};
      engine.suspend_lane(lane);
      std::this_thread::yield();
      engine.resume_lane(lane);
    }
  });
  constexpr int kTasks = 500;
  for (int round = 0; round < 6; ++round) {
    const auto work = [&](Orchestration& o) {
      for (int i = 0; i < kTasks; ++i) {
        if (i % 10 == 0) {
          o.submit(nothing, on(LaneId{static_cast<std::uint32_t>(i / 10) % kLanes}));
        } else if (i % 25 == 1) {
          std::vector<GroupMember> members(2);
          for (std::uint32_t m = 0; m < 2; ++m)
            members[m] = {.lane = LaneId{m}, .body = nothing};
          o.submit_group({.members = members});
        } else {
          submit_numbered(o, i);
        }
      }
    };
    const strata::Run kept = engine.submit(work);
    const strata::Run dropped = engine.submit(work);
    std::this_thread::yield();
    dropped.cancel();
    ASSERT_TRUE(ends(dropped));
    ASSERT_TRUE(ends(kept));
    EXPECT_NO_THROW(kept.result());
    // A value of each member of each task, those of groups included.
    EXPECT_EQ(kept.values().size(), static_cast<std::size_t>(kTasks + kTasks / 25));
  }
  stop = true;
  for (std::thread& worker : workers)
    worker.join();
  switcher.join();
  EXPECT_GT(given_back.load(), 0);
  for (const auto& box : boxes) {
    EXPECT_EQ(box->size(), 0U);
    EXPECT_LE(box->most(), kDepth);
  }
}

}  // namespace
}  // namespace strata::test
