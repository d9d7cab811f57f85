// The engine at its limits: very many tasks, very little room, very many threads. Every test asks
// one thing: that nothing is lost.
//
// Sizes are for an optimised build; under the sanitizers they are a fraction.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "strata/strata.hpp"
#include "support/guard.hpp"
#include "support/process.hpp"
#include "support/random.hpp"

namespace strata {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kFraction = 50;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
constexpr int kFraction = 50;
#else
constexpr int kFraction = 1;
#endif
#else
constexpr int kFraction = 1;
#endif

EngineOptions with_lanes(unsigned threads, unsigned callers = 0) {
  EngineOptions options;
  options.kinds.push_back({.name = "cpu", .threads = threads, .callers = callers});
  return options;
}

/// What every test here begins with, so that it ends last.
struct Watch {
  test::LeakCheck leaks;
  test::Guard guard{testing::UnitTest::GetInstance()->current_test_info()->name(),
                    std::chrono::minutes(10)};
};

TEST(Stress, HoweverLanesFallIdleEveryTaskThatIsReadyFindsOne) {
  const Watch watch;
  constexpr int kRounds = 60'000 / kFraction;
  constexpr int kLanes = 4;
  Engine engine(with_lanes(kLanes));
  test::Random random(7);
  std::uint64_t pause = 0;
  // In each round there is a task for every lane, and none ends before all have begun: so none may
  // be left to a lane that is busy while another sleeps.
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> there{0};
    (void)engine.run([&](Orchestration& o) {
      for (int i = 0; i < kLanes; ++i) {
        o.submit([&](TaskContext&) {
          ++there;
          while (there.load() != kLanes)
            std::this_thread::yield();
        });
      }
    });
    // About as long as a lane spins before it sleeps, more or less.
    for (std::uint64_t i = random() % 4000; i > 0; --i)
      pause += i ^ pause;
  }
  EXPECT_NE(pause, 1u);  // Keeps the pauses.
}

TEST(Stress, AMillionTasksThatReuseTheSlotsOfASmallWindowAllRunInOrder) {
  const Watch watch;
  constexpr int kTasks = 1'000'000 / kFraction;
  EngineOptions options = with_lanes(2, 1);
  options.window = 64;
  Engine engine(options);
  // One counter per chain; each task expects exactly what its predecessor left.
  constexpr std::size_t kChains = 16;
  std::vector<std::uint64_t> counters(kChains);
  std::atomic<int> ran{0}, out_of_order{0};
  const Tensor all = engine.tensor(counters);
  const strata::Run run = engine.run([&](Orchestration& o) {
    for (int i = 0; i < kTasks; ++i) {
      const auto chain = static_cast<std::int64_t>(i % kChains);
      o.submit(
          [&ran, &out_of_order](TaskContext& c) {
            auto& counter = *c.data<std::uint64_t>(0);
            if (counter != c.scalar<std::uint64_t>(0)) ++out_of_order;
            ++counter;
            ++ran;
          },
          inout(all.slice(0, chain, chain + 1)), scalar(static_cast<std::uint64_t>(i) / kChains));
    }
  });
  EXPECT_EQ(ran, kTasks);
  EXPECT_EQ(out_of_order, 0);
  EXPECT_EQ(run.stats().tasks, static_cast<std::uint64_t>(kTasks));
}

TEST(Stress, SixtyFourWideFansLoseNeitherReadersNorWriters) {
  const Watch watch;
  constexpr int kRounds = 5'000 / kFraction;
  static constexpr std::int64_t kWide = 64;
  Engine engine(with_lanes(3));
  std::vector<std::uint64_t> hub(1), rim(kWide);
  const Tensor center = engine.tensor(hub), spokes = engine.tensor(rim);
  engine.run([&](Orchestration& o) {
    for (int round = 0; round < kRounds; ++round) {
      for (std::int64_t i = 0; i < kWide; ++i) {
        o.submit([](TaskContext& c) { *c.data<std::uint64_t>(1) += *c.data<std::uint64_t>(0) + 1; },
                 in(center), inout(spokes.slice(0, i, i + 1)));
      }
      o.submit(
          [](TaskContext& c) {
            const auto* values = c.data<std::uint64_t>(0);
            std::uint64_t sum = 0;
            for (std::int64_t i = 0; i < kWide; ++i)
              sum += values[i];
            *c.data<std::uint64_t>(1) = sum % 1'000'003;
          },
          in(spokes), out(center));
    }
  });
  std::uint64_t expected_hub = 0;
  std::vector<std::uint64_t> expected_rim(kWide);
  for (int round = 0; round < kRounds; ++round) {
    std::uint64_t sum = 0;
    for (auto& value : expected_rim)
      sum += value += expected_hub + 1;
    expected_hub = sum % 1'000'003;
  }
  EXPECT_EQ(rim, expected_rim);
  EXPECT_EQ(hub[0], expected_hub);
}

TEST(Stress, AWindowOfTwoRunsAnyNumberOfTasksToTheEnd) {
  const Watch watch;
  constexpr std::uint64_t kTasks = 100'000 / kFraction;
  EngineOptions options = with_lanes(2);
  options.window = 2;
  Engine engine(options);
  std::vector<std::uint64_t> data(4);
  const Tensor all = engine.tensor(data);
  engine.run([&](Orchestration& o) {
    for (std::uint64_t i = 0; i < kTasks; ++i) {
      const auto part = static_cast<std::int64_t>(i % 3);
      o.submit(
          [](TaskContext& c) {
            for (std::int64_t k = 0; k < c.tensor(0).extent(0); ++k)
              ++c.data<std::uint64_t>(0)[k];
          },
          inout(all.slice(0, part, part + 2)));
    }
  });
  std::vector<std::uint64_t> expected(4);
  for (std::uint64_t i = 0; i < kTasks; ++i)
    ++expected[i % 3], ++expected[i % 3 + 1];
  EXPECT_EQ(data, expected);
}

TEST(Stress, AHeapOfExactlyOneTensorServesOneAfterTheOther) {
  const Watch watch;
  constexpr int kRounds = 20'000 / kFraction;
  static constexpr std::int64_t kElements = 128;
  EngineOptions options = with_lanes(2);
  options.heap = kElements * sizeof(std::uint64_t);
  Engine engine(options);
  std::vector<std::uint64_t> sum(1);
  const Tensor total = engine.tensor(sum);
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < kRounds; ++i) {
      const Scope scope = o.scope();
      Tensor only(DType::uint64, {kElements});
      o.submit(
          [](TaskContext& c) {
            for (std::int64_t k = 0; k < kElements; ++k) {
              c.data<std::uint64_t>(0)[k] = c.scalar<std::uint64_t>(0);
            }
          },
          out(only), scalar(static_cast<std::uint64_t>(i)));
      o.submit(
          [](TaskContext& c) {
            for (std::int64_t k = 0; k < kElements; ++k) {
              *c.data<std::uint64_t>(1) += c.data<std::uint64_t>(0)[k];
            }
          },
          in(only), inout(total));
    }
  });
  const auto n = static_cast<std::uint64_t>(kRounds);
  EXPECT_EQ(sum[0], n * (n - 1) / 2 * kElements);
  EXPECT_EQ(engine.stats().heap_peak, options.heap);
}

TEST(Stress, EightRunsThatSubmitAtOnceLoseNoUpdateOfWhatTheyShare) {
  const Watch watch;
  constexpr std::uint64_t kEach = 20'000 / kFraction;
  constexpr std::uint64_t kRuns = 8;
  EngineOptions options = with_lanes(2, 1);
  options.window = 32;
  Engine engine(options);
  std::vector<std::uint64_t> shared(4), own(kRuns);
  const Tensor common = engine.tensor(shared), mine = engine.tensor(own);
  std::vector<strata::Run> runs;
  for (std::uint64_t r = 0; r < kRuns; ++r) {
    runs.push_back(engine.submit([&, r](Orchestration& o) {
      const auto at = static_cast<std::int64_t>(r);
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const auto slot = static_cast<std::int64_t>((i + r) % 4);
        o.submit(
            [](TaskContext& c) {
              ++*c.data<std::uint64_t>(0);
              ++*c.data<std::uint64_t>(1);
            },
            inout(common.slice(0, slot, slot + 1)), inout(mine.slice(0, at, at + 1)));
      }
    }));
  }
  for (const auto& run : runs)
    run.result();
  EXPECT_EQ(own, std::vector<std::uint64_t>(kRuns, kEach));
  EXPECT_EQ(shared, std::vector<std::uint64_t>(4, kRuns * kEach / 4));
}

/// Hands what is dispatched to a pool of threads, which complete it in any order.
class PoolLane : public ExternalLane {
 public:
  explicit PoolLane(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, i] { serve(static_cast<std::uint64_t>(i)); });
    }
  }
  ~PoolLane() override { stop(); }
  void attach(Engine& engine) { engine_ = &engine; }
  void dispatch(DispatchId id, TaskContext& context, Body& body) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({id, &context, &body});
    }
    changed_.notify_one();
  }
  /// Before the engine goes: every complete() has returned then.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_)
      thread.join();
    threads_.clear();
  }

 private:
  struct Item {
    DispatchId id;
    TaskContext* context;
    Body* body;
  };
  void serve(std::uint64_t seed) {
    test::Random random(seed);
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return over_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const auto at = static_cast<std::ptrdiff_t>(random.below(queue_.size()));
      const Item item = queue_[static_cast<std::size_t>(at)];
      queue_.erase(queue_.begin() + at);
      lock.unlock();
      (*item.body)(*item.context);
      engine_->complete(item.id);
      lock.lock();
    }
  }
  Engine* engine_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

TEST(Stress, CompletionsOfExternalLanesFromSeveralThreadsAreEachCountedOnce) {
  const Watch watch;
  constexpr std::uint64_t kTasks = 50'000 / kFraction;
  EngineOptions options;
  options.window = 256;
  KindOptions kind{.name = "far"};
  std::vector<std::shared_ptr<PoolLane>> lanes;
  for (int i = 0; i < 4; ++i) {
    lanes.push_back(std::make_shared<PoolLane>(3));
    kind.external.push_back(lanes.back());
  }
  kind.depth = 4;
  options.kinds.push_back(kind);
  Engine engine(options);
  for (const auto& lane : lanes)
    lane->attach(engine);
  std::vector<std::uint64_t> counters(8);
  const Tensor all = engine.tensor(counters);
  engine.run([&](Orchestration& o) {
    for (std::uint64_t i = 0; i < kTasks; ++i) {
      const auto at = static_cast<std::int64_t>(i % 8);
      o.submit([](TaskContext& c) { ++*c.data<std::uint64_t>(0); },
               inout(all.slice(0, at, at + 1)));
    }
  });
  for (const auto& lane : lanes)
    lane->stop();
  EXPECT_EQ(counters, std::vector<std::uint64_t>(8, kTasks / 8));
}

TEST(Stress, TwoHundredEnginesStartAndStopAndLeaveNothing) {
  const Watch watch;
  const test::Holdings before = test::holdings();
  for (int i = 0; i < 200 / (kFraction > 1 ? 4 : 1); ++i) {
    std::vector<std::uint32_t> data(16);
    Engine engine(with_lanes(1 + static_cast<unsigned>(i % 4), static_cast<unsigned>(i % 2)));
    const Tensor tensor = engine.tensor(data);
    // Also engines that stop while their run is young, or that never ran anything.
    if (i % 3 != 0) {
      (void)engine.submit([tensor](Orchestration& o) {
        for (int k = 0; k < 20; ++k) {
          o.submit([](TaskContext& c) { ++*c.data<std::uint32_t>(0); }, inout(tensor));
        }
      });
    }
    if (i % 3 == 1) {
      engine.run([](Orchestration&) {});
    }
  }
  EXPECT_EQ(test::holdings().descriptors, before.descriptors);
  EXPECT_EQ(test::holdings().children, before.children);
}

TEST(Stress, AnIdleEngineUsesNoCpu) {
  const Watch watch;
  Engine engine(with_lanes(4, 1));
  std::vector<std::uint64_t> data(1);
  const Tensor tensor = engine.tensor(data);
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 1000; ++i) {
      o.submit([](TaskContext& c) { ++*c.data<std::uint64_t>(0); }, inout(tensor));
    }
  });
  // Whatever spins after the last task stops spinning at once; then a second of silence.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto before = test::process_cpu_time();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto used = test::process_cpu_time() - before;
  EXPECT_LT(used, std::chrono::milliseconds(20)) << used.count() << " ns";
}

TEST(Stress, RunsThatAreCancelledAtAnyMomentLeaveTheEngineUsable) {
  const Watch watch;
  constexpr int kRounds = 400 / (kFraction > 1 ? 8 : 1);
  EngineOptions options = with_lanes(2, 1);
  options.window = 16;
  Engine engine(options);
  std::vector<std::uint64_t> data(1);
  const Tensor tensor = engine.tensor(data);
  test::Random random(5);
  for (int round = 0; round < kRounds; ++round) {
    const strata::Run run = engine.submit([tensor](Orchestration& o) {
      for (int i = 0; i < 200; ++i) {
        o.submit([](TaskContext& c) { ++*c.data<std::uint64_t>(0); }, inout(tensor));
      }
    });
    for (auto spins = random.below(3000); spins > 0; --spins) {
      [[maybe_unused]] volatile std::uint64_t busy = spins;
    }
    run.cancel();
    run.wait();
    // What was dropped has left the bytes invalid; the host makes them valid again.
    engine.run([&](Orchestration& o) {
      o.overwrite(tensor);
      data[0] = 0;
      o.submit([](TaskContext& c) { ++*c.data<std::uint64_t>(0); }, inout(tensor));
    });
    ASSERT_EQ(data[0], 1U) << "round " << round;
  }
}

}  // namespace
}  // namespace strata
