// Lanes whose tasks run elsewhere: dispatched by the engine, completed by somebody else, some time.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine_support.hpp"
#include "mailbox_lane.hpp"

namespace strata::test {
namespace {

/// Runs bodies at once, from within dispatch().
class Inline : public ExternalLane {
 public:
  Engine* engine = nullptr;
  void dispatch(DispatchId id, TaskContext& context, Body& body) override {
    std::exception_ptr error;
    try {
      body(context);
    } catch (...) {
      error = std::current_exception();
    }
    engine->complete(id, error);
  }
};

/// Runs bodies on a thread of its own, as a process behind a mailbox would.
class Remote {
 public:
  explicit Remote(Engine& engine, std::shared_ptr<Mailbox> mailbox)
      : mailbox_(std::move(mailbox)), thread_([this, &engine] {
          while (!stop_) {
            Mailbox::Item item{};
            if (!mailbox_->take(item)) {
              std::this_thread::yield();
              continue;
            }
            std::exception_ptr error;
            try {
              (*item.body)(*item.context);
            } catch (...) {
              error = std::current_exception();
            }
            engine.complete(item.id, error);
          }
        }) {}
  ~Remote() {
    stop_ = true;
    thread_.join();
  }
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

 private:
  std::shared_ptr<Mailbox> mailbox_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(ExternalLanes, LateCompletionsKeepTheOrderOfDependencies) {
  for (const unsigned depth : {1U, 3U}) {
    const auto a = std::make_shared<Mailbox>();
    const auto b = std::make_shared<Mailbox>();
    Engine engine(mailboxes({a, b}, depth));
    const Remote first(engine, a);
    const Remote second(engine, b);
    Floats x(engine, {1});
    engine.run([&](Orchestration& o) {
      for (int i = 0; i < 1000; ++i) {
        o.submit([](TaskContext& c) { c.data<float>(0)[0] += 1; }, inout(x.tensor));
      }
    });
    EXPECT_EQ(x.data[0], 1000);
    EXPECT_EQ(a->dispatched() + b->dispatched(), 1000);
  }
}

TEST(ExternalLanes, InlineCompletionsOfALongChainDoNotNest) {
  const auto lane = std::make_shared<Inline>();
  Engine engine({.kinds = {{.name = "chip", .external = {lane}}}, .window = 1 << 17});
  lane->engine = &engine;
  Floats x(engine, {1});
  const strata::Run run = engine.submit([&](Orchestration& o) {
    const LaneHold hold = engine.hold_lanes();  // So that the chain unrolls all at once.
    for (int i = 0; i < 100'000; ++i) {
      o.submit([](TaskContext& c) { c.data<float>(0)[0] += 1; }, inout(x.tensor));
    }
  });
  ASSERT_TRUE(ends(run));
  run.result();
  EXPECT_EQ(x.data[0], 100'000);
}

TEST(ExternalLanes, DepthBoundsWhatIsAtALaneAndIsUsed) {
  for (const unsigned depth : {1U, 2U, 4U}) {
    const auto box = std::make_shared<Mailbox>();
    Engine engine(mailboxes({box}, depth));
    const strata::Run run = engine.submit([&](Orchestration& o) {
      for (int i = 0; i < 40; ++i)
        o.submit(nothing);
    });
    for (int done = 0; done < 40; ++done) {
      const int left = 40 - done;
      ASSERT_TRUE(eventually([&] {
        return box->size() == std::min<std::size_t>(depth, static_cast<std::size_t>(left));
      })) << depth
          << ' ' << done << ' ' << box->size();
      engine.complete(box->take_when_there().id);
    }
    ASSERT_TRUE(ends(run));
    EXPECT_EQ(box->most(), depth);
  }
}

TEST(ExternalLanes, IdleLaneIsPreferredToABusyOneWithRoom) {
  const auto a = std::make_shared<Mailbox>();
  const auto b = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a, b}, 4));
  const strata::Run run = engine.submit([&](Orchestration& o) {
    for (int i = 0; i < 2; ++i)
      o.submit(nothing);
  });
  ASSERT_TRUE(eventually([&] { return a->size() + b->size() == 2; }));
  EXPECT_EQ(a->size(), 1U);
  EXPECT_EQ(b->size(), 1U);
  engine.complete(a->take_when_there().id);
  engine.complete(b->take_when_there().id);
  ASSERT_TRUE(ends(run));
}

TEST(ExternalLanes, ExactTasksArriveInSubmissionOrderAtAnyDepth) {
  const auto box = std::make_shared<Mailbox>();
  Engine engine(mailboxes({box}, 3));
  const strata::Run run = engine.submit([&](Orchestration& o) {
    for (int i = 0; i < 200; ++i)
      o.submit(nothing, on(LaneId{0}), scalar(i));
  });
  for (int i = 0; i < 200; ++i) {
    const Mailbox::Item item = box->take_when_there();
    ASSERT_NE(item.context, nullptr);
    EXPECT_EQ(item.context->scalar<int>(0), i);
    engine.complete(item.id);
  }
  ASSERT_TRUE(ends(run));
}

TEST(ExternalLanes, GroupIsDispatchedToAllItsLanesWithNothingBeforeIt) {
  const auto a = std::make_shared<Mailbox>();
  const auto b = std::make_shared<Mailbox>();
  Engine engine(mailboxes({a, b}, 4));
  const strata::Run run = engine.submit([&](Orchestration& o) {
    o.submit(nothing, on(LaneId{0}), scalar(0));
    std::vector<GroupMember> members(2);
    const Scalar one[] = {Scalar::of(1)};
    for (std::uint32_t i = 0; i < 2; ++i) {
      members[i] = {.lane = LaneId{i}, .body = nothing, .scalars = one};
    }
    o.submit_group({.members = members});
    o.submit(nothing, on(LaneId{0}), scalar(2));
    o.submit(nothing, on(LaneId{1}), scalar(2));
  });
  ASSERT_TRUE(eventually([&] { return run.stats().tasks == 4 && a->size() == 1; }));
  EXPECT_EQ(b->size(), 0U);  // Though it is idle and has room.
  const Mailbox::Item before = a->take_when_there();
  EXPECT_EQ(before.context->scalar<int>(0), 0);
  engine.complete(before.id);
  for (int value = 1; value <= 2; ++value) {
    for (const auto& box : {a, b}) {
      const Mailbox::Item item = box->take_when_there();
      ASSERT_NE(item.context, nullptr);
      EXPECT_EQ(item.context->scalar<int>(0), value);
      engine.complete(item.id);
    }
  }
  ASSERT_TRUE(ends(run));
  run.result();
}

TEST(ExternalLanes, ErrorOfACompletionIsTheTasksFailure) {
  const auto box = std::make_shared<Mailbox>();
  Engine engine(mailboxes({box}, 2));
  Floats x(engine, {1});
  const strata::Run run = engine.submit([&](Orchestration& o) {
    o.submit(nothing, out(x.tensor), named("remote"));
    o.submit(nothing, in(x.tensor), named("reader"));
  });
  engine.complete(box->take_when_there().id,
                  std::make_exception_ptr(std::runtime_error("the chip is gone")));
  ASSERT_TRUE(ends(run));
  try {
    run.result();
    ADD_FAILURE() << "the run did not fail";
  } catch (const RunFailed& failed) {
    EXPECT_EQ(failed.failed().at(0).name, "remote");
    EXPECT_EQ(failed.failed().at(0).message, "the chip is gone");
    EXPECT_EQ(failed.skipped().at(0).name, "reader");
  }
  EXPECT_EQ(box->dispatched(), 1);
}

TEST(ExternalLanes, WrongAndDuplicateCompletionsAreRefusedAndHarmless) {
  const auto box = std::make_shared<Mailbox>();
  Engine engine(mailboxes({box}, 1));
  const strata::Run run = engine.submit([&](Orchestration& o) {
    for (int i = 0; i < 3; ++i)
      o.submit(nothing);
  });
  const DispatchId first = box->take_when_there().id;
  EXPECT_THROW(engine.complete(DispatchId{0}), InvalidArgument);
  EXPECT_THROW(engine.complete(DispatchId{first.value + 1}), InvalidArgument);
  EXPECT_THROW(engine.complete(DispatchId{~std::uint64_t{0}}), InvalidArgument);
  EXPECT_FALSE(run.done());
  engine.complete(first);
  const DispatchId second = box->take_when_there().id;
  EXPECT_NE(first.value, second.value);
  EXPECT_THROW(engine.complete(first), InvalidArgument);  // Its place is in use by the second.
  EXPECT_FALSE(run.done());
  engine.complete(second);
  EXPECT_THROW(engine.complete(second), InvalidArgument);
  engine.complete(box->take_when_there().id);
  ASSERT_TRUE(ends(run));
  EXPECT_THROW(engine.complete(second), InvalidArgument);
  run.result();
}

TEST(ExternalLanes, ContextIsValidUntilTheCompletion) {
  const auto box = std::make_shared<Mailbox>();
  Engine engine(mailboxes({box}, 8));
  Floats x(engine, {8, 2});
  const strata::Run run = engine.submit([&](Orchestration& o) {
    for (int i = 0; i < 8; ++i) {
      o.submit(nothing, inout(x.tensor.select(0, i)), scalar(i), named("row"));
    }
  });
  ASSERT_TRUE(eventually([&] { return box->size() == 8; }));
  std::vector<Mailbox::Item> items(8);
  for (auto& item : items)
    item = box->take_when_there();
  std::reverse(items.begin(), items.end());  // Completed in another order than dispatched.
  for (const auto& item : items) {
    const int row = item.context->scalar<int>(0);
    EXPECT_EQ(item.context->data<float>(0), &x.data[static_cast<std::size_t>(row) * 2]);
    EXPECT_EQ(item.context->name(), "row");
    EXPECT_FALSE(item.context->cancelled());
    engine.complete(item.id);
  }
  ASSERT_TRUE(ends(run));
}

TEST(ExternalLanes, CancelIsSeenThroughTheTokenOfADispatchedTask) {
  const auto box = std::make_shared<Mailbox>();
  Engine engine(mailboxes({box}, 1));
  const strata::Run run = engine.submit([&](Orchestration& o) {
    o.submit(nothing);
    o.submit(nothing);
  });
  const Mailbox::Item item = box->take_when_there();
  EXPECT_FALSE(item.context->cancelled());
  run.cancel();
  EXPECT_TRUE(item.context->cancelled());
  engine.complete(item.id);
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(box->dispatched(), 1);
  EXPECT_THROW(run.result(), Cancelled);
}

}  // namespace
}  // namespace strata::test
