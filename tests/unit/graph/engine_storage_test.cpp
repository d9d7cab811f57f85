// Runtime-allocated tensors: their life, their initial values and the accounts kept of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine_support.hpp"

namespace strata::test {
namespace {

constexpr std::int64_t kKilo = 256;  ///< Floats in a KiB.

TEST(EngineStorage, OutWithoutStorageIsGivenMemoryOfItsOwn) {
  Engine engine(thread_lanes(2));
  engine.run([&](Orchestration& o) {
    Tensor a(DType::float32, {kKilo});
    Tensor b(DType::float64, {3, 5});
    EXPECT_FALSE(a.has_storage());
    o.submit([](TaskContext& c) { std::fill_n(c.data<float>(0), kKilo, 1.0F); }, out(a));
    o.submit([](TaskContext& c) { std::fill_n(c.data<double>(0), 15, 2.0); }, out(b));
    EXPECT_TRUE(a.has_storage());
    EXPECT_NE(a.buffer(), b.buffer());
    EXPECT_EQ(a.byte_offset(), 0);
    EXPECT_TRUE(b.contiguous());
    EXPECT_EQ(o.read<float>(a, {kKilo - 1}), 1.0F);
    EXPECT_EQ(o.read<double>(b, {2, 4}), 2.0);
    EXPECT_EQ(o.read<float>(a, {0}), 1.0F);
  });
}

TEST(EngineStorage, SecondOutOfTheSameTensorWritesTheSameMemory) {
  Engine engine(caller_lane());
  engine.run([&](Orchestration& o) {
    Tensor a(DType::int32, {4});
    o.submit([](TaskContext& c) { std::fill_n(c.data<int>(0), 4, 1); }, out(a));
    const BufferId first = a.buffer();
    o.submit([](TaskContext& c) { c.data<int>(0)[0] += 1; }, out(a));
    EXPECT_EQ(a.buffer(), first);
    EXPECT_EQ(o.read<int>(a, {0}), 2);
  });
}

TEST(EngineStorage, InitialValueFillsEveryElement) {
  Engine engine(caller_lane());
  for (const std::int64_t count : {1, 2, 3, 7, 100, 4097}) {
    const double value = 0.1 * static_cast<double>(count);
    bool right = false;
    engine.run([&](Orchestration& o) {
      Tensor a(DType::float64, {count});
      o.submit(
          [&](TaskContext& c) {
            right = std::all_of(c.data<double>(0), c.data<double>(0) + count,
                                [&](double v) { return v == value; });
          },
          out(a, &value));
      const Tensor b = o.allocate(DType::float64, {count}, &value);
      EXPECT_EQ(o.read<double>(b, {count - 1}), value);
    });
    EXPECT_TRUE(right) << count;
  }
}

TEST(EngineStorage, InitialValueIsReadBeforeSubmitReturns) {
  Engine engine(thread_lanes(1));
  Gate start;
  engine.run([&](Orchestration& o) {
    o.submit([&](TaskContext&) { start.wait(); });
    Tensor a(DType::int32, {8});
    int value = 5;
    o.submit(nothing, out(a, &value));
    value = 6;
    start.open();
    EXPECT_EQ(o.read<int>(a, {7}), 5);
  });
}

TEST(EngineStorage, StorageOutlivesItsScopeUntilTheLastUserIsDone) {
  Engine engine(thread_lanes(1));
  Gate proceed;
  engine.run([&](Orchestration& o) {
    std::atomic<int> sum{0};
    TaskId user;
    {
      const Scope scope = o.scope();
      Tensor a(DType::int32, {64});
      o.submit([](TaskContext& c) { std::fill_n(c.data<int>(0), 64, 3); }, out(a));
      user = o.submit(
          [&](TaskContext& c) {
            proceed.wait();
            for (int i = 0; i < 64; ++i)
              sum += c.data<int>(0)[i];
          },
          in(a));
    }
    EXPECT_EQ(engine.stats().heap_used, 256U);
    proceed.open();
    o.wait(user);
    EXPECT_TRUE(eventually([&] { return engine.stats().heap_used == 0; }));
    EXPECT_EQ(sum, 192);
  });
}

TEST(EngineStorage, StorageLivesAsLongAsItsScopeThoughAllUsersAreDone) {
  Engine engine(caller_lane());
  engine.run([&](Orchestration& o) {
    Tensor a(DType::int32, {16});
    Scope outer = o.scope({.name = "outer"});
    o.submit(nothing, out(a));
    {
      const Scope inner = o.scope({.name = "inner"});
      Tensor b(DType::int32, {16});
      o.wait(o.submit(nothing, in(a), out(b)));
      EXPECT_EQ(engine.stats().heap_used, 128U);
    }
    EXPECT_TRUE(eventually([&] { return engine.stats().heap_used == 64; }));
    o.wait(o.submit(nothing, inout(a)));
    outer.close();
    EXPECT_TRUE(eventually([&] { return engine.stats().heap_used == 0; }));
    EXPECT_THROW(o.submit(nothing, in(a)), InvalidArgument);
  });
}

TEST(EngineStorage, RunIsTheOutermostScope) {
  Engine engine(caller_lane());
  Tensor a(DType::int32, {16});
  engine.run([&](Orchestration& o) {
    o.wait(o.submit(nothing, out(a)));
    EXPECT_EQ(engine.stats().heap_used, 64U);
  });
  EXPECT_EQ(engine.stats().heap_used, 0U);
  EXPECT_EQ(engine.stats().live_buffers, 0U);
  engine.run([&](Orchestration& o) { EXPECT_THROW(o.submit(nothing, in(a)), InvalidArgument); });
}

TEST(EngineStorage, ScopesMustBeClosedInnermostFirst) {
  Engine engine(caller_lane());
  engine.run([&](Orchestration& o) {
    Scope outer = o.scope({.name = "outer"});
    Scope inner = o.scope({.name = "inner"});
    const std::string message = message_of<InvalidState>([&] { outer.close(); });
    EXPECT_NE(message.find("outer"), std::string::npos) << message;
    EXPECT_NE(message.find("inner"), std::string::npos) << message;
    inner.close();
    EXPECT_THROW(inner.close(), InvalidState);
  });
}

TEST(EngineStorage, RefusedCloseLeavesTheScopeOpen) {
  Engine engine(caller_lane());
  engine.run([&](Orchestration& o) {
    Scope outer = o.scope({.name = "outer"});
    Tensor a(DType::int32, {16});
    o.wait(o.submit(nothing, out(a)));
    Scope inner = o.scope({.name = "inner"});
    EXPECT_THROW(outer.close(), InvalidState);
    inner.close();
    EXPECT_EQ(engine.stats().heap_used, 64U);
    outer.close();
    EXPECT_EQ(engine.stats().heap_used, 0U);
  });
}

TEST(EngineStorage, HandleKeepsStorageBeyondScopeAndRun) {
  Engine engine(thread_lanes(1));
  TensorHandle kept;
  engine.run([&](Orchestration& o) {
    const Scope scope = o.scope();
    Tensor a(DType::int32, {4, 4});
    o.submit([](TaskContext& c) { std::fill_n(c.data<int>(0), 16, 9); }, out(a));
    kept = o.keep(a.select(0, 1));
  });
  EXPECT_EQ(engine.stats().heap_used, 64U);
  EXPECT_EQ(reinterpret_cast<const int*>(kept.data())[0], 9);
  EXPECT_EQ(kept.tensor().byte_offset(), 16);
  // It is a tensor like any other in later runs.
  engine.run([&](Orchestration& o) {
    o.submit([](TaskContext& c) { c.data<int>(0)[0] += 1; }, inout(kept.tensor()));
  });
  EXPECT_EQ(reinterpret_cast<const int*>(kept.data())[0], 10);
  TensorHandle moved = std::move(kept);
  EXPECT_EQ(kept.data(), nullptr);  // NOLINT(bugprone-use-after-move): moved from is empty.
  EXPECT_EQ(engine.stats().heap_used, 64U);
  moved = TensorHandle();
  EXPECT_EQ(engine.stats().heap_used, 0U);
}

TEST(EngineStorage, HandleDroppedWhileATaskUsesItLeavesTheTaskItsStorage) {
  Engine engine(thread_lanes(1));
  Gate proceed;
  engine.run([&](Orchestration& o) {
    std::atomic<int> value{0};
    TaskId user;
    {
      TensorHandle handle;
      {
        const Scope scope = o.scope();
        Tensor a(DType::int32, {16});
        o.submit([](TaskContext& c) { std::fill_n(c.data<int>(0), 16, 4); }, out(a));
        handle = o.keep(a);
      }
      user = o.submit(
          [&](TaskContext& c) {
            proceed.wait();
            value = c.data<int>(0)[15];
          },
          in(handle.tensor()));
    }
    EXPECT_EQ(engine.stats().heap_used, 64U);
    proceed.open();
    o.wait(user);
    EXPECT_EQ(value, 4);
    EXPECT_TRUE(eventually([&] { return engine.stats().heap_used == 0; }));
  });
}

TEST(EngineStorage, HandlesOfOneTensorCountEach) {
  Engine engine(caller_lane());
  TensorHandle first;
  TensorHandle second;
  engine.run([&](Orchestration& o) {
    const Tensor a = o.allocate(DType::int32, {16});
    first = o.keep(a);
    second = o.keep(a);
  });
  first = TensorHandle();
  EXPECT_EQ(engine.stats().heap_used, 64U);
  second = TensorHandle();
  EXPECT_EQ(engine.stats().heap_used, 0U);
}

TEST(EngineStorage, LifetimeHoldsInEveryMode) {
  Engine engine(thread_lanes(1));
  for (const Tracking tracking : {Tracking::full, Tracking::creator_only, Tracking::no_dep}) {
    for (const bool manual : {false, true}) {
      Gate proceed;
      std::atomic<int> value{0};
      const strata::Run run = engine.submit(
          [&](Orchestration& o) {
            const Scope scope = o.scope({.manual = manual});
            Tensor a(DType::int32, {16});
            const int seven = 7;
            const TaskId first = o.submit([&](TaskContext&) { proceed.wait(); }, out(a, &seven));
            o.submit([&](TaskContext& c) { value = c.data<int>(0)[15]; }, in(a.tracked(tracking)),
                     after(first));
          },
          {.read_after_write_only = true});
      ASSERT_TRUE(eventually([&] { return run.stats().tasks == 2; }));
      EXPECT_EQ(engine.stats().heap_used, 64U);
      proceed.open();
      ASSERT_TRUE(ends(run));
      run.result();
      EXPECT_EQ(value, 7);
      EXPECT_TRUE(eventually([&] { return engine.stats().heap_used == 0; }));
    }
  }
}

TEST(EngineStorage, LongLivedTensorKeepsOnlyItsOwnRoom) {
  // Room for four: one stays, and thousands of others pass through what is left.
  Engine engine({.kinds = {{.name = "cpu", .threads = 1}}, .heap = 4096});
  engine.run([&](Orchestration& o) {
    const Tensor stays = o.allocate(DType::uint8, {1024});
    for (int i = 0; i < 3000; ++i) {
      const Scope scope = o.scope();
      Tensor passing(DType::uint8, {3072});
      o.submit(nothing, in(stays), out(passing));
    }
  });
  EXPECT_EQ(engine.stats().heap_peak, 4096U);
  EXPECT_EQ(engine.stats().heap_used, 0U);
}

TEST(EngineStorage, RunAccountsForItsOwnTensorsOnly) {
  Engine engine(thread_lanes(2));
  Gate proceed;
  const auto orchestration = [&](std::int64_t bytes) {
    return [&proceed, bytes](Orchestration& o) {
      {
        const Scope scope = o.scope();
        o.wait(o.submit(nothing));
        Tensor early(DType::uint8, {bytes});
        o.wait(o.submit(nothing, out(early)));
      }
      EXPECT_TRUE(eventually([&] { return o.run().stats().heap_bytes == 0; }));
      Tensor late(DType::uint8, {bytes / 2});
      o.submit(nothing, out(late));
      proceed.wait();
    };
  };
  const strata::Run small = engine.submit(orchestration(1024));
  const strata::Run large = engine.submit(orchestration(8192));
  EXPECT_TRUE(eventually([&] { return small.stats().heap_bytes == 512; }));
  EXPECT_TRUE(eventually([&] { return large.stats().heap_bytes == 4096; }));
  EXPECT_EQ(engine.stats().heap_used, 4608U);
  proceed.open();
  ASSERT_TRUE(ends(small));
  ASSERT_TRUE(ends(large));
  EXPECT_EQ(small.stats().heap_bytes, 0U);
  EXPECT_EQ(large.stats().heap_bytes, 0U);
  EXPECT_EQ(small.stats().heap_peak_bytes, 1024U);
  EXPECT_EQ(large.stats().heap_peak_bytes, 8192U);
  EXPECT_EQ(engine.stats().heap_used, 0U);
}

TEST(EngineStorage, AccountOutlivesTheRunWithAHandle) {
  Engine engine(caller_lane());
  TensorHandle kept;
  const strata::Run run =
      engine.run([&](Orchestration& o) { kept = o.keep(o.allocate(DType::uint8, {128})); });
  EXPECT_EQ(run.stats().heap_bytes, 128U);
  kept = TensorHandle();
  EXPECT_EQ(run.stats().heap_bytes, 0U);
}

TEST(EngineStorage, StorageOfAFailedTaskIsFreedLikeAnyOther) {
  Engine engine(thread_lanes(1));
  const strata::Run run = engine.submit([&](Orchestration& o) {
    const Scope scope = o.scope();
    Tensor a(DType::uint8, {4096});
    Tensor b(DType::uint8, {4096});
    o.submit([](TaskContext&) { throw std::runtime_error("no"); }, out(a));
    o.submit(nothing, in(a), out(b));
    o.submit(nothing, in(b));
  });
  ASSERT_TRUE(ends(run));
  EXPECT_THROW(run.result(), RunFailed);
  EXPECT_EQ(engine.stats().heap_used, 0U);
  EXPECT_EQ(engine.stats().live_buffers, 0U);
}

}  // namespace
}  // namespace strata::test
