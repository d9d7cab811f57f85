// Threads that wait poll a source of completions. Invariants of poller.hpp are named in brackets.

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine_support.hpp"

namespace strata::test {
namespace {

/// A lane whose tasks are done by whoever polls, or by a supervisor's thread when nobody does. It
/// checks the rules of ProgressSource as it goes.
class Source : public ProgressSource, public ExternalLane {
 public:
  Engine* engine = nullptr;
  /// With it a thread looks while nobody polls; it must be stopped before the engine goes.
  void start_supervisor() {
    supervisor_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      while (!stop_) {
        changed_.wait(lock, [this] { return stop_ || (!polled_ && !items_.empty()); });
        if (stop_) return;
        polled_ = true;
        lock.unlock();
        (void)look();
        by_supervisor_.fetch_add(1);
        lock.lock();
        polled_ = false;
      }
    });
  }
  void stop_supervisor() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    supervisor_.join();
  }
  void allow_spinning(bool allowed) { may_spin_ = allowed; }

  void dispatch(DispatchId id, TaskContext& context, Body& body) override {
    const std::lock_guard lock(mutex_);
    items_.push_back({id, &context, &body});
    if (!polled_) changed_.notify_all();
  }

  bool try_acquire() override {
    const std::lock_guard lock(mutex_);
    if (polled_) return false;
    polled_ = true;
    poller_ = std::this_thread::get_id();
    acquired_.fetch_add(1);
    return true;
  }
  bool poll() override {
    EXPECT_TRUE(is_poller());
    return look();
  }
  void release() override {
    EXPECT_TRUE(is_poller());
    EXPECT_FALSE(spins_);  // (2)
    const std::lock_guard lock(mutex_);
    polled_ = false;
    poller_ = {};
    changed_.notify_all();
  }
  bool begin_spin() override {
    EXPECT_TRUE(is_poller());
    EXPECT_FALSE(spins_);
    spins_ = may_spin_.load();
    return spins_;
  }
  void end_spin() override {
    EXPECT_TRUE(is_poller());
    EXPECT_TRUE(spins_);
    spins_ = false;
  }

  [[nodiscard]] bool is_poller() const {
    const std::lock_guard lock(mutex_);
    return poller_ == std::this_thread::get_id();
  }
  [[nodiscard]] bool is_polled() const {
    const std::lock_guard lock(mutex_);
    return polled_;
  }
  [[nodiscard]] int acquired() const { return acquired_.load(); }
  [[nodiscard]] int by_supervisor() const { return by_supervisor_.load(); }

 private:
  struct Item {
    DispatchId id;
    TaskContext* context;
    Body* body;
  };
  bool look() {
    Item item{};
    {
      const std::lock_guard lock(mutex_);
      if (items_.empty()) return false;
      item = items_.front();
      items_.pop_front();
    }
    std::exception_ptr error;
    try {
      (*item.body)(*item.context);
    } catch (...) {
      error = std::current_exception();
    }
    engine->complete(item.id, error);
    return true;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool polled_ = false;
  bool stop_ = false;
  std::thread::id poller_;
  bool spins_ = false;  ///< The poller's.
  std::atomic<bool> may_spin_{true};
  std::atomic<int> acquired_{0};
  std::atomic<int> by_supervisor_{0};
  std::thread supervisor_;
};

EngineOptions polled(const std::shared_ptr<Source>& source, unsigned depth = 4) {
  return {.kinds = {{.name = "chip", .external = {source}, .depth = depth}}, .progress = source};
}

TEST(Progress, WhoWaitsForARunCompletesItsTasks) {
  const auto source = std::make_shared<Source>();
  Engine engine(polled(source));
  source->engine = &engine;
  std::thread::id ran_on;
  // No supervisor, no other thread: the waiting one alone brings it to its end.
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 100; ++i)
      o.submit([&](TaskContext&) { ran_on = std::this_thread::get_id(); }, on(LaneId{0}));
  });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_GT(source->acquired(), 0);
  EXPECT_FALSE(source->is_polled());  // (1): it has returned.
}

TEST(Progress, BlockedSubmitsAndHostAccessesPollToo) {
  const auto source = std::make_shared<Source>();
  EngineOptions options = polled(source);
  options.window = 4;
  options.heap = 4096;
  Engine engine(std::move(options));
  source->engine = &engine;
  Floats x(engine, {1});
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 50; ++i)
      o.submit([](TaskContext& c) { c.data<float>(0)[0] += 1; }, inout(x.tensor));
    EXPECT_EQ(o.read<float>(x.tensor, {0}), 50.0F);
    for (int i = 0; i < 20; ++i) {  // Each takes more than half of the heap.
      const Scope scope = o.scope();
      Tensor t(DType::uint8, {3000});
      o.submit(nothing, out(t));
    }
    o.wait(o.submit(nothing));
  });
  EXPECT_FALSE(source->is_polled());
}

TEST(Progress, WaitsForPlacesAndRemovedBuffersPollToo) {
  const auto source = std::make_shared<Source>();
  EngineOptions options = polled(source);
  options.max_open_runs = 1;
  Engine engine(std::move(options));
  source->engine = &engine;
  std::vector<float> data(1);
  const Tensor x = engine.tensor(data);
  const auto add = [&](Orchestration& o) {
    o.submit([](TaskContext& c) { c.data<float>(0)[0] += 1; }, inout(x));
  };
  const strata::Run first = engine.submit(add);
  const strata::Run second = engine.submit(add);
  ASSERT_TRUE(eventually([&] { return second.stats().tasks == 1; }));
  engine.remove_buffer(x.buffer());
  EXPECT_EQ(data[0], 2);
  ASSERT_TRUE(ends(first));
  ASSERT_TRUE(ends(second));
}

TEST(Progress, OfManyWaitersOnePollsAndNoneIsForgotten) {
  for (const bool spins : {true, false}) {
    const auto source = std::make_shared<Source>();
    source->allow_spinning(spins);
    source->start_supervisor();
    {
      Engine engine(polled(source, 2));
      source->engine = &engine;
      std::vector<std::thread> users;
      for (int u = 0; u < 4; ++u) {
        users.emplace_back([&] {
          for (int round = 0; round < 50; ++round) {
            const strata::Run run = engine.submit([](Orchestration& o) {
              TaskId last;
              for (int i = 0; i < 5; ++i)
                last = o.submit(nothing, after(last));
            });
            EXPECT_TRUE(ends(run));
            run.result();
          }
        });
      }
      for (std::thread& user : users)
        user.join();
      EXPECT_TRUE(eventually([&] { return !source->is_polled(); }));
    }
    source->stop_supervisor();
  }
}

TEST(Progress, AWaitWithADeadlineReturnsThoughNothingEnds) {
  const auto source = std::make_shared<Source>();
  Engine engine(polled(source));
  source->engine = &engine;
  const strata::Run run = engine.submit([&](Orchestration& o) {
    while (!o.cancelled())
      std::this_thread::yield();
  });
  EXPECT_FALSE(run.wait_for(std::chrono::milliseconds(5)));
  EXPECT_FALSE(source->is_polled());
  run.cancel();
  ASSERT_TRUE(ends(run));
}

TEST(Progress, TasksOnACallerLaneAreRunByAThreadThatDoesNotPoll) {
  const auto source = std::make_shared<Source>();
  Engine engine(
      {.kinds = {{.name = "cpu", .callers = 1}, {.name = "chip", .external = {source}, .depth = 2}},
       .progress = source});
  source->engine = &engine;
  std::atomic<int> here{0};
  Floats x(engine, {1});
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 100; ++i) {
      o.submit([](TaskContext& c) { c.data<float>(0)[0] += 1; }, inout(x.tensor), on(KindId{1}));
      o.submit(
          [&](TaskContext& c) {
            EXPECT_FALSE(source->is_poller());  // (1)
            c.data<float>(0)[0] += 1;
            ++here;
          },
          inout(x.tensor), on(KindId{0}));
      o.submit([&](TaskContext&) { EXPECT_FALSE(source->is_poller()); }, on(LaneId{0}));
    }
  });
  EXPECT_EQ(x.data[0], 200);
  EXPECT_EQ(here.load(), 100);
}

TEST(Progress, ASupervisorTakesOverWhileNobodyWaits) {
  const auto source = std::make_shared<Source>();
  source->start_supervisor();
  {
    Engine engine(polled(source, 2));
    source->engine = &engine;
    std::atomic<bool> go_on{false};
    const strata::Run run = engine.submit([&](Orchestration& o) {
      for (int i = 0; i < 20; ++i)
        o.submit(nothing);
      while (!go_on)
        std::this_thread::yield();  // Neither blocks nor waits.
    });
    EXPECT_TRUE(eventually([&] { return source->by_supervisor() >= 20; }));
    go_on = true;
    ASSERT_TRUE(ends(run));
  }
  source->stop_supervisor();
}

}  // namespace
}  // namespace strata::test
