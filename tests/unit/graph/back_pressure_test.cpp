// Full windows and heaps: submitters wait as long as something can free room, and are refused at
// once when it is proved that nothing will. See src/graph/back_pressure.cpp for the proof.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "engine_support.hpp"

namespace strata::test {
namespace {

using Facts = CapacityError::Facts;
using Resource = CapacityError::Resource;

constexpr std::uint64_t kUnit = 4096;

EngineOptions heap_of(std::uint64_t bytes) {
  return {.kinds = {{.name = "cpu", .threads = 2}}, .heap = bytes};
}

Tensor units(std::uint64_t count) {
  return Tensor(DType::uint8, {static_cast<std::int64_t>(count * kUnit)});
}

/// Runs `f`, which must be refused for lack of room, and returns what the error says. The proof is
/// no search and no timer: the bound on time is in the issue, and far above what it takes.
template <class F>
Facts refused(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    f();
  } catch (const CapacityError& error) {
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took, std::chrono::milliseconds(100));
    const std::string what = error.what();
    const Facts& facts = error.facts();
    EXPECT_NE(what.find(facts.scope), std::string::npos) << what;
    EXPECT_NE(what.find(facts.setting), std::string::npos) << what;
    EXPECT_NE(what.find(std::to_string(facts.suggested)), std::string::npos) << what;
    EXPECT_NE(what.find(std::to_string(facts.asked)), std::string::npos) << what;
    return facts;
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

// ---- Waiting that ends --------------------------------------------------------------------------

TEST(BackPressure, WindowOfOneRunsEveryTask) {
  for (const unsigned threads : {0U, 1U, 2U}) {
    Engine engine({.kinds = {{.name = "cpu", .threads = threads, .callers = 1}}, .window = 1});
    Floats a(engine, {4});
    engine.run([&](Orchestration& o) {
      for (int i = 0; i < 500; ++i) {
        o.submit([](TaskContext& c) { c.data<float>(0)[0] += 1; }, inout(a.tensor));
      }
      EXPECT_EQ(o.read<float>(a.tensor, {0}), 500);
    });
    EXPECT_LE(engine.stats().window_used, 1U);
  }
}

TEST(BackPressure, WindowOfTwoKeepsOrderOverManyBlocks) {
  Engine engine({.kinds = {{.name = "cpu", .threads = 1, .callers = 1}}, .window = 2});
  Floats a(engine, {4});
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 1000; ++i) {
      o.submit([](TaskContext& c) { c.data<float>(0)[0] += c.data<float>(1)[0] + 1; },
               inout(a.tensor.slice(0, 0, 1)), in(a.tensor.slice(0, 1, 2)));
    }
  });
  EXPECT_EQ(a.data[0], 1000);
}

TEST(BackPressure, SlowTaskIsWaitedForWithoutATimer) {
  // The task ends only once the submitter has been seen to block, however long that takes.
  Engine engine({.kinds = {{.name = "cpu", .threads = 1}}, .window = 1, .heap = kUnit});
  Gate proceed;
  std::atomic<int> ran{0};
  const strata::Run run = engine.submit([&](Orchestration& o) {
    o.submit([&](TaskContext&) {
      proceed.wait();
      ++ran;
    });
    o.submit([&](TaskContext&) { ++ran; });
  });
  ASSERT_TRUE(eventually([&] { return engine.stats().blocked_submits > 0; }));
  EXPECT_EQ(run.stats().tasks, 1U);
  EXPECT_FALSE(run.done());
  proceed.open();
  ASSERT_TRUE(ends(run));
  run.result();
  EXPECT_EQ(ran, 2);
}

TEST(BackPressure, HeapOfOneTensorServesThousands) {
  for (const unsigned threads : {0U, 1U}) {
    Engine engine({.kinds = {{.name = "cpu", .threads = threads, .callers = 1}}, .heap = kUnit});
    std::atomic<int> ran{0};
    engine.run([&](Orchestration& o) {
      for (int i = 0; i < 2000; ++i) {
        const Scope scope = o.scope();
        Tensor t = units(1);
        o.submit([&](TaskContext& c) { *c.data<int>(0) = 1; }, out(t));
        o.submit([&](TaskContext& c) { ran += *c.data<int>(0); }, inout(t));
      }
    });
    EXPECT_EQ(ran, 2000);
    EXPECT_EQ(engine.stats().heap_used, 0U);
  }
}

TEST(BackPressure, HeapHeldByASlowTaskOfAClosedScopeIsWaitedFor) {
  Engine engine(heap_of(kUnit));
  Gate proceed;
  const strata::Run run = engine.submit([&](Orchestration& o) {
    {
      const Scope scope = o.scope();
      Tensor t = units(1);
      o.submit([&](TaskContext&) { proceed.wait(); }, out(t));
    }
    const Tensor next = o.allocate(DType::uint8, {kUnit});
    o.submit(nothing, in(next));
  });
  ASSERT_TRUE(eventually([&] { return engine.stats().blocked_submits > 0; }));
  EXPECT_FALSE(run.done());
  proceed.open();
  ASSERT_TRUE(ends(run));
  run.result();
}

TEST(BackPressure, HeapHeldByAnotherOrchestrationThatGetsOnIsWaitedFor) {
  Engine engine(heap_of(kUnit));
  Gate proceed;
  const strata::Run holder = engine.submit([&](Orchestration& o) {
    const Tensor t = o.allocate(DType::uint8, {kUnit});
    proceed.wait();
    o.submit(nothing, in(t));
  });
  ASSERT_TRUE(eventually([&] { return engine.stats().heap_used == kUnit; }));
  const strata::Run waiter = engine.submit(
      [&](Orchestration& o) { o.submit(nothing, in(o.allocate(DType::uint8, {kUnit}))); });
  ASSERT_TRUE(eventually([&] { return engine.stats().blocked_submits > 0; }));
  EXPECT_FALSE(waiter.done());
  proceed.open();
  ASSERT_TRUE(ends(holder));
  ASSERT_TRUE(ends(waiter));
  holder.result();
  waiter.result();
}

TEST(BackPressure, DroppedHandleLetsABlockedSubmitterOn) {
  // The handle's tensor is also in a scope of an orchestration that gets on, so it is waited for
  // although there is a handle among the holders.
  Engine engine(heap_of(2 * kUnit));
  Gate handle_made;
  Gate drop;
  const strata::Run holder = engine.submit([&](Orchestration& o) {
    const Tensor t = o.allocate(DType::uint8, {2 * kUnit});
    handle_made.open();
    drop.wait();
    o.submit(nothing, in(t));
  });
  ASSERT_TRUE(handle_made.wait());
  const strata::Run waiter =
      engine.submit([&](Orchestration& o) { (void)o.allocate(DType::uint8, {kUnit}); });
  ASSERT_TRUE(eventually([&] { return engine.stats().blocked_submits > 0; }));
  drop.open();
  ASSERT_TRUE(ends(holder));
  ASSERT_TRUE(ends(waiter));
  waiter.result();
}

TEST(BackPressure, CancelLetsABlockedSubmitterOut) {
  Engine engine(heap_of(kUnit));
  Gate proceed;
  const strata::Run holder = engine.submit([&](Orchestration& o) {
    (void)o.allocate(DType::uint8, {kUnit});
    proceed.wait();
  });
  ASSERT_TRUE(eventually([&] { return engine.stats().heap_used == kUnit; }));
  std::atomic<bool> told{false};
  const strata::Run waiter = engine.submit([&](Orchestration& o) {
    try {
      (void)o.allocate(DType::uint8, {kUnit});
    } catch (const Cancelled&) {
      told = true;
      throw;
    }
  });
  ASSERT_TRUE(eventually([&] { return engine.stats().blocked_submits > 0; }));
  waiter.cancel();
  EXPECT_TRUE(waiter.wait_for(kPatience));
  EXPECT_TRUE(told);
  EXPECT_THROW(waiter.result(), Cancelled);
  proceed.open();
  ASSERT_TRUE(ends(holder));
}

TEST(BackPressure, DrainedHeapGivesItsFullSize) {
  Engine engine(heap_of(16 * kUnit));
  for (std::uint64_t round = 1; round <= 16; ++round) {
    engine.run([&](Orchestration& o) {
      {
        const Scope scope = o.scope();
        for (std::uint64_t i = 0; i < 16 / round; ++i) {
          Tensor t = units(round);
          o.submit(nothing, out(t));
        }
      }
      Tensor all = units(16);
      o.submit(nothing, out(all));
    });
  }
  EXPECT_EQ(engine.stats().heap_used, 0U);
}

// ---- Dead ends ----------------------------------------------------------------------------------

TEST(BackPressure, MoreThanTheHeapIsRefusedWithEveryFact) {
  Engine engine(heap_of(4 * kUnit));
  Facts facts;
  std::atomic<int> ran{0};
  engine.run(
      [&](Orchestration& o) {
        const Scope scope = o.scope({.name = "tiles"});
        facts = refused([&] {
          Tensor t = units(5);
          o.submit(nothing, out(t));
        });
        Tensor fits = units(4);
        o.submit([&](TaskContext&) { ++ran; }, out(fits));
      },
      {.name = "greedy"});
  EXPECT_EQ(facts.resource, Resource::heap);
  EXPECT_EQ(facts.run, "greedy");
  EXPECT_EQ(facts.scope, "root/tiles");
  EXPECT_EQ(facts.asked, 5 * kUnit);
  EXPECT_EQ(facts.capacity, 4 * kUnit);
  EXPECT_EQ(facts.used, 0U);
  EXPECT_EQ(facts.largest_hole, 4 * kUnit);
  EXPECT_FALSE(facts.fragmented);
  EXPECT_EQ(facts.oldest_holder, "");
  EXPECT_EQ(facts.setting, "EngineOptions::heap");
  EXPECT_EQ(ran, 1);

  Engine larger(heap_of(facts.suggested));
  larger.run([&](Orchestration& o) {
    Tensor t = units(5);
    o.submit([&](TaskContext&) { ++ran; }, out(t));
  });
  EXPECT_EQ(ran, 2);
}

TEST(BackPressure, OwnScopesAreADeadEndWithTheOldestHolderNamed) {
  const auto program = [](Orchestration& o) {
    Tensor first = units(2);
    const TaskId task = o.submit(nothing, out(first));
    const Scope scope = o.scope({.name = "inner"});
    Tensor second = units(1);
    o.submit(nothing, out(second));
    Tensor third = units(2);
    o.submit(nothing, out(third));
    return task;
  };
  Engine engine(heap_of(4 * kUnit));
  Facts facts;
  std::uint64_t first_task = 0;
  engine.run(
      [&](Orchestration& o) {
        Tensor first = units(2);
        first_task = o.submit(nothing, out(first)).number();
        const Scope scope = o.scope({.name = "inner"});
        Tensor second = units(1);
        o.submit(nothing, out(second));
        facts = refused([&] {
          Tensor third = units(2);
          o.submit(nothing, out(third));
        });
      },
      {.name = "hoarder"});
  EXPECT_EQ(facts.scope, "root/inner");
  EXPECT_EQ(facts.asked, 2 * kUnit);
  EXPECT_EQ(facts.used, 3 * kUnit);
  EXPECT_EQ(facts.largest_hole, kUnit);
  EXPECT_FALSE(facts.fragmented);
  EXPECT_NE(facts.oldest_holder.find("task " + std::to_string(first_task)), std::string::npos)
      << facts.oldest_holder;
  EXPECT_NE(facts.oldest_holder.find("hoarder"), std::string::npos) << facts.oldest_holder;
  EXPECT_NE(facts.oldest_holder.find("scope 'root'"), std::string::npos) << facts.oldest_holder;
  Engine larger(heap_of(facts.suggested));
  larger.run([&](Orchestration& o) { (void)program(o); });
}

TEST(BackPressure, UserHandleIsADeadEndAndNamed) {
  Engine engine(heap_of(4 * kUnit));
  TensorHandle kept;
  engine.run([&](Orchestration& o) { kept = o.keep(o.allocate(DType::uint8, {3 * kUnit})); },
             {.name = "keeper"});
  Facts facts;
  const auto ask = [](Orchestration& o) { (void)o.allocate(DType::uint8, {2 * kUnit}); };
  engine.run([&](Orchestration& o) { facts = refused([&] { ask(o); }); });
  EXPECT_EQ(facts.used, 3 * kUnit);
  EXPECT_EQ(facts.largest_hole, kUnit);
  EXPECT_NE(facts.oldest_holder.find("TensorHandle"), std::string::npos) << facts.oldest_holder;
  EXPECT_NE(facts.oldest_holder.find("keeper"), std::string::npos) << facts.oldest_holder;
  kept = TensorHandle();
  engine.run(ask);

  Engine larger(heap_of(facts.suggested));
  TensorHandle again;
  larger.run([&](Orchestration& o) { again = o.keep(o.allocate(DType::uint8, {3 * kUnit})); });
  larger.run(ask);
}

/// Leaves kept blocks of one unit with holes of one unit between them.
std::vector<TensorHandle> leave_holes(Engine& engine, std::uint64_t of_units) {
  std::vector<TensorHandle> kept;
  engine.run([&](Orchestration& o) {
    const Scope scope = o.scope();
    for (std::uint64_t i = 0; i < of_units; ++i) {
      const Tensor t = o.allocate(DType::uint8, {kUnit});
      if (i % 2 == 1) kept.push_back(o.keep(t));
    }
  });
  return kept;
}

TEST(BackPressure, FragmentationIsCalledThat) {
  Engine engine(heap_of(8 * kUnit));
  const auto ask = [](Orchestration& o) { (void)o.allocate(DType::uint8, {2 * kUnit}); };
  Facts facts;
  {
    const std::vector<TensorHandle> kept = leave_holes(engine, 8);
    engine.run([&](Orchestration& o) { facts = refused([&] { ask(o); }); });
  }
  EXPECT_TRUE(facts.fragmented);
  EXPECT_EQ(facts.used, 4 * kUnit);
  EXPECT_EQ(facts.largest_hole, kUnit);
  engine.run(ask);

  Engine larger(heap_of(facts.suggested));
  const std::vector<TensorHandle> kept = leave_holes(larger, 8);
  larger.run(ask);
}

TEST(BackPressure, SuggestedHeapCountsHolesThatAreTooSmall) {
  // Less than what is asked is free in all, and not in one piece: what is kept plus what is asked
  // would not do.
  Engine engine(heap_of(8 * kUnit));
  const auto ask = [](Orchestration& o) { (void)o.allocate(DType::uint8, {6 * kUnit}); };
  Facts facts;
  {
    const std::vector<TensorHandle> kept = leave_holes(engine, 8);
    engine.run([&](Orchestration& o) { facts = refused([&] { ask(o); }); });
  }
  EXPECT_FALSE(facts.fragmented);
  Engine larger(heap_of(facts.suggested));
  const std::vector<TensorHandle> kept = leave_holes(larger, 8);
  larger.run([&](Orchestration& o) { EXPECT_NO_THROW(ask(o)); });
}

TEST(BackPressure, TaskWithSeveralOutputsIsRefusedAsAWhole) {
  Engine engine(heap_of(4 * kUnit));
  Facts facts;
  std::atomic<int> ran{0};
  engine.run([&](Orchestration& o) {
    Tensor a = units(3);
    Tensor b = units(3);
    facts = refused([&] { o.submit(nothing, out(a), out(b)); });
    EXPECT_FALSE(a.has_storage());
    EXPECT_FALSE(b.has_storage());
    EXPECT_EQ(engine.stats().heap_used, 0U);
    Tensor all = units(4);
    o.submit([&](TaskContext&) { ++ran; }, out(all));
  });
  EXPECT_EQ(ran, 1);
  Engine larger(heap_of(facts.suggested));
  larger.run([&](Orchestration& o) {
    Tensor a = units(3);
    Tensor b = units(3);
    o.submit([&](TaskContext&) { ++ran; }, out(a), out(b));
  });
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace strata::test
