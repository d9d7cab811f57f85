// Runs: several at a time, their handles, and the end of the engine.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine_support.hpp"
#include "support/process.hpp"

namespace strata::test {
namespace {

TEST(Runs, SubmitReturnsBeforeTheOrchestrationHasEnded) {
  Engine engine(thread_lanes(1));
  Gate proceed;
  const strata::Run run = engine.submit([&](Orchestration&) { proceed.wait(); });
  EXPECT_FALSE(run.done());
  EXPECT_FALSE(run.wait_until(std::chrono::steady_clock::now()));
  proceed.open();
  ASSERT_TRUE(ends(run));
  EXPECT_TRUE(run.done());
  run.result();
}

TEST(Runs, RunEndsOnlyWhenAllItsTasksHave) {
  Engine engine(thread_lanes(1));
  Gate proceed;
  Gate submitted;
  const strata::Run run = engine.submit([&](Orchestration& o) {
    o.submit([&](TaskContext&) { proceed.wait(); });
    submitted.open();
  });
  ASSERT_TRUE(submitted.wait());
  EXPECT_FALSE(run.done());
  proceed.open();
  EXPECT_TRUE(ends(run));
}

TEST(Runs, TasksOfTwoRunsOverlap) {
  Engine engine(thread_lanes(2));
  Meeting meeting(2);
  std::atomic<int> met{0};
  const auto meet = [&](Orchestration& o) {
    o.submit([&](TaskContext&) { met += meeting.arrive() ? 1 : 0; });
  };
  const strata::Run first = engine.submit(meet);
  const strata::Run second = engine.submit(meet);
  ASSERT_TRUE(ends(first));
  ASSERT_TRUE(ends(second));
  EXPECT_EQ(met, 2);
}

TEST(Runs, DependenciesHoldAcrossRunsInFlight) {
  Engine engine(thread_lanes(2));
  Floats a(engine, {4});
  Gate proceed;
  Gate submitted;
  std::atomic<bool> second_ran{false};
  std::atomic<bool> waited{false};
  const strata::Run first = engine.submit([&](Orchestration& o) {
    o.submit(
        [&](TaskContext&) {
          proceed.wait();
          waited = !second_ran;
        },
        out(a.tensor));
    submitted.open();
  });
  ASSERT_TRUE(submitted.wait());
  const strata::Run second = engine.submit([&](Orchestration& o) {
    o.submit([&](TaskContext&) { second_ran = true; }, in(a.tensor));
    o.submit([&](TaskContext&) { proceed.open(); });  // On the other lane, behind the reader.
  });
  ASSERT_TRUE(ends(second));
  ASSERT_TRUE(ends(first));
  EXPECT_TRUE(waited);
  EXPECT_TRUE(second_ran);
}

TEST(Runs, ManyRunsAddUpInOneTensor) {
  Engine engine(thread_lanes(2));
  Floats a(engine, {4});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::vector<strata::Run> runs;
      for (int i = 0; i < 50; ++i) {
        runs.push_back(engine.submit([&](Orchestration& o) {
          for (int k = 0; k < 5; ++k) {
            o.submit([](TaskContext& c) { c.data<float>(0)[0] += 1; }, inout(a.tensor));
          }
        }));
      }
      for (const strata::Run& run : runs)
        run.result();
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(a.data[0], 1000);
}

TEST(Runs, NoMoreAreOpenThanAllowed) {
  EngineOptions options = thread_lanes(2);
  options.max_open_runs = 2;
  Engine engine(options);
  std::atomic<int> open{0};
  std::atomic<int> most{0};
  std::vector<strata::Run> runs;
  for (int i = 0; i < 100; ++i) {
    runs.push_back(engine.submit([&](Orchestration& o) {
      const int now = ++open;
      int seen = most;
      while (now > seen && !most.compare_exchange_weak(seen, now)) {
      }
      o.wait(o.submit([](TaskContext&) { std::this_thread::yield(); }));
      --open;
    }));
  }
  for (const strata::Run& run : runs)
    ASSERT_TRUE(ends(run));
  EXPECT_LE(most, 2);
}

TEST(Runs, SubmitBeyondTheLimitWaitsForAPlace) {
  EngineOptions options = thread_lanes(1);
  options.max_open_runs = 1;
  Engine engine(options);
  Gate proceed;
  const strata::Run first = engine.submit([&](Orchestration&) { proceed.wait(); });
  std::atomic<bool> submitted{false};
  std::thread other([&] {
    const strata::Run second = engine.submit([](Orchestration&) {});
    submitted = true;
    second.wait();
  });
  EXPECT_FALSE(first.done());
  EXPECT_FALSE(submitted);
  proceed.open();
  other.join();
  EXPECT_TRUE(submitted);
}

TEST(Runs, SubmitFromAnOrchestrationOpensARunOfItsOwn) {
  Engine engine(thread_lanes(1));
  std::atomic<int> ran{0};
  std::string names;
  const strata::Run outer = engine.submit(
      [&](Orchestration& o) {
        const strata::Run inner = engine.submit(
            [&](Orchestration& i) { i.submit([&](TaskContext&) { ++ran; }); }, {.name = "inner"});
        inner.result();
        engine.run([&](Orchestration& i) { i.submit([&](TaskContext&) { ++ran; }); });
        o.submit([&](TaskContext&) { ++ran; });
        names = o.run().name() + " " + inner.name();
      },
      {.name = "outer"});
  ASSERT_TRUE(ends(outer));
  outer.result();
  EXPECT_EQ(ran, 3);
  EXPECT_EQ(names, "outer inner");
}

TEST(Runs, SubmitThatWouldWaitForItselfIsRefused) {
  EngineOptions options = thread_lanes(1);
  options.max_open_runs = 1;
  Engine engine(options);
  const strata::Run outer = engine.submit([&](Orchestration&) {
    const std::string message =
        message_of<InvalidState>([&] { (void)engine.submit([](Orchestration&) {}); });
    EXPECT_NE(message.find("max_open_runs"), std::string::npos) << message;
    EXPECT_THROW((void)engine.run([](Orchestration&) {}), InvalidState);
  });
  ASSERT_TRUE(ends(outer));
  outer.result();
}

TEST(Runs, ManyThreadsWaitForOneRunWithAndWithoutDeadline) {
  Engine engine(thread_lanes(1));
  Gate proceed;
  const strata::Run run =
      engine.submit([&](Orchestration& o) { o.submit([&](TaskContext&) { proceed.wait(); }); });
  std::atomic<int> too_early{0};
  std::atomic<int> looked{0};
  std::atomic<int> came{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const strata::Run mine = run;
      too_early += mine.wait_for(std::chrono::microseconds(100 * t)) ? 1 : 0;
      ++looked;
      if (t % 2 == 0) {
        mine.wait();
        ++came;
      } else if (mine.wait_for(kPatience)) {
        ++came;
      }
      EXPECT_TRUE(mine.done());
    });
  }
  EXPECT_TRUE(eventually([&] { return looked == 8; }));
  EXPECT_EQ(too_early, 0);
  proceed.open();
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(came, 8);
  EXPECT_TRUE(run.wait_until(std::chrono::steady_clock::time_point::min()));
}

TEST(Runs, EmptyHandleSaysSo) {
  const strata::Run none;
  EXPECT_THROW((void)none.done(), InvalidState);
  EXPECT_THROW(none.wait(), InvalidState);
  EXPECT_THROW(none.result(), InvalidState);
  EXPECT_THROW(none.cancel(), InvalidState);
  EXPECT_THROW((void)none.stats(), InvalidState);
}

TEST(Runs, EmptyOrchestrationIsRefusedAndEmptyRunEnds) {
  Engine engine(caller_lane());
  EXPECT_THROW((void)engine.submit(nullptr), InvalidArgument);
  EXPECT_THROW((void)engine.run(nullptr), InvalidArgument);
  const strata::Run run = engine.run([](Orchestration&) {});
  EXPECT_EQ(run.stats().tasks, 0U);
}

TEST(Runs, StatisticsCountTasksAndEdges) {
  Engine engine(thread_lanes(1));
  Floats a(engine, {4});
  strata::Run run = engine.submit([&](Orchestration& o) {
    const LaneHold hold = engine.hold_lanes();
    o.submit(nothing, out(a.tensor));
    o.submit(nothing, in(a.tensor));
    o.submit(nothing, in(a.tensor));
    o.submit(nothing, out(a.tensor));  // After both readers, which are after the writer.
  });
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(run.stats().tasks, 4U);
  EXPECT_EQ(run.stats().edges, 4U);
}

// ---- The end of the engine ----------------------------------------------------------------------

TEST(Runs, DestructorWaitsForOpenRuns) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ran{0};
    std::vector<strata::Run> runs;
    {
      Engine engine(thread_lanes(2));
      for (int r = 0; r < 4; ++r) {
        runs.push_back(engine.submit([&](Orchestration& o) {
          for (int i = 0; i < 50; ++i) {
            o.submit([&](TaskContext&) {
              std::this_thread::yield();
              ++ran;
            });
          }
        }));
      }
    }
    EXPECT_EQ(ran, 200);
    for (const strata::Run& run : runs)
      EXPECT_TRUE(run.done());
  }
}

TEST(Runs, HandlesOutliveTheEngine) {
  strata::Run good;
  strata::Run bad;
  std::vector<float> memory(4);  // Its tasks run until the engine has gone.
  Tensor a;
  {
    Engine engine(thread_lanes(1));
    a = engine.tensor(memory);
    good = engine.submit(
        [&](Orchestration& o) {
          o.submit(nothing, out(std::as_const(a)), named("writer"));
          o.submit(nothing, in(a), named("reader"));
        },
        {.name = "good", .keep_graph = true});
    bad = engine.submit([&](Orchestration& o) {
      o.submit([](TaskContext&) { throw std::runtime_error("no"); }, named("bad"));
    });
  }
  EXPECT_TRUE(good.done());
  good.wait();
  EXPECT_TRUE(good.wait_for(std::chrono::nanoseconds(0)));
  good.result();
  good.cancel();
  EXPECT_EQ(good.name(), "good");
  EXPECT_EQ(good.stats().tasks, 2U);
  const Graph graph = good.graph();
  ASSERT_EQ(graph.nodes.size(), 2U);
  EXPECT_EQ(good.why(graph.nodes[1].task).size(), 1U);
  EXPECT_THROW(bad.result(), RunFailed);
  EXPECT_THROW((void)bad.why(TaskId{1}), InvalidState);
}

TEST(Runs, TensorHandleThatOutlivesTheEngineIsHarmless) {
  TensorHandle kept;
  {
    Engine engine(caller_lane());
    engine.run([&](Orchestration& o) { kept = o.keep(o.allocate(DType::uint8, {64})); });
  }
  kept = TensorHandle();
}

TEST(Runs, BufferIsRemovedOnlyOnceNoTaskUsesIt) {
  Engine engine(thread_lanes(2));
  Gate proceed;
  Gate submitted;
  std::atomic<int> sum{0};
  auto data = std::make_unique<std::vector<float>>(16, 2.0F);
  const Tensor x = engine.tensor(*data);
  const strata::Run run = engine.submit([&](Orchestration& o) {
    for (int i = 0; i < 4; ++i) {
      o.submit(
          [&](TaskContext& c) {
            proceed.wait();
            for (int k = 0; k < 16; ++k)
              sum += static_cast<int>(c.data<float>(0)[k]);
          },
          in(x));
    }
    submitted.open();
  });
  ASSERT_TRUE(submitted.wait());
  std::thread opener([&] { proceed.open(); });
  engine.remove_buffer(x.buffer());
  data.reset();
  EXPECT_EQ(sum, 128);
  opener.join();
  ASSERT_TRUE(ends(run));
}

// ---- Long lives ---------------------------------------------------------------------------------

TEST(Runs, ManySmallRunsLeaveNothingBehind) {
  Engine engine({.kinds = {{.name = "cpu", .threads = 1, .callers = 1}}});
  Floats a(engine, {64});
  const auto small = [&](Orchestration& o) {
    const Scope scope = o.scope({.name = "small"});
    Tensor t(DType::float32, {64});
    o.submit([](TaskContext& c) { c.data<float>(0)[0] = 1; }, out(t));
    o.submit([](TaskContext& c) { c.data<float>(1)[0] += c.data<float>(0)[0]; }, in(t),
             inout(a.tensor.slice(0, 0, 8)));
  };
  for (int i = 0; i < 10'000; ++i)
    engine.run(small);
  const std::size_t before = allocated_bytes();
  for (int i = 0; i < 100'000; ++i)
    engine.run(small);
  const std::size_t after = allocated_bytes();
  // Fewer than ten bytes a run: any list that is only added to would show.
  EXPECT_LT(after, before + 100'000 * 10);
  EXPECT_EQ(engine.stats().heap_used, 0U);
  EXPECT_EQ(engine.stats().live_buffers, 1U);
  EXPECT_EQ(engine.stats().window_used, 0U);
  EXPECT_LT(engine.stats().live_regions, 100U);
}

TEST(Runs, FailedRunsLeaveNothingBehind) {
  Engine engine(thread_lanes(1));
  Floats a(engine, {64});
  const auto token = std::make_shared<int>(1);
  struct Holder : std::runtime_error {
    explicit Holder(std::shared_ptr<int> t) : std::runtime_error("no"), token(std::move(t)) {}
    std::shared_ptr<int> token;
  };
  for (int i = 0; i < 200; ++i) {
    const strata::Run run = engine.submit([&](Orchestration& o) {
      o.submit([token](TaskContext&) { throw Holder(token); }, out(a.tensor));
      o.submit(nothing, in(a.tensor));
      o.submit(nothing, out(a.tensor));
    });
    ASSERT_TRUE(ends(run));
    EXPECT_THROW(run.result(), RunFailed);
  }
  engine.run([&](Orchestration& o) { o.wait(o.submit(nothing, out(a.tensor))); });
  // No handle is left, and the bytes are valid: the exceptions are of no use to anyone. A few may
  // stay until their place is used again.
  EXPECT_LT(token.use_count(), 20);
}

}  // namespace
}  // namespace strata::test
