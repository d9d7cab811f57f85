// Buffers that are removed while tasks use them (Engine::remove_buffer_later).

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine_support.hpp"

namespace strata::test {
namespace {

TEST(RemoveLater, UnusedBufferIsFreedAtOnce) {
  Engine engine(thread_lanes(1));
  std::vector<float> data(4);
  const Tensor x = engine.tensor(data);
  int freed = 0;
  engine.remove_buffer_later(x.buffer(), [&] { ++freed; });
  EXPECT_EQ(freed, 1);
  EXPECT_EQ(engine.stats().live_buffers, 0U);
  engine.remove_buffer_later(engine.add_buffer(data.data(), 16), nullptr);  // Nobody to tell.
  EXPECT_EQ(engine.stats().live_buffers, 0U);
}

TEST(RemoveLater, UnknownAndRemovedBuffersAreRefused) {
  Engine engine(thread_lanes(1));
  std::vector<float> data(4);
  const BufferId buffer = engine.add_buffer(data.data(), 16);
  EXPECT_THROW(engine.remove_buffer_later(BufferId{}, {}), InvalidArgument);
  EXPECT_THROW(engine.remove_buffer_later(BufferId{buffer.value + 1}, {}), InvalidArgument);
  engine.remove_buffer_later(buffer, {});
  int freed = 0;
  EXPECT_THROW(engine.remove_buffer_later(buffer, [&] { ++freed; }), InvalidArgument);
  EXPECT_THROW(engine.remove_buffer(buffer), InvalidArgument);
  EXPECT_EQ(freed, 0);
}

/// A use of a buffer that is under way while the buffer is removed.
struct Use {
  const char* name;
  std::function<void(Orchestration&, const Tensor&, Body)> submit;
};

TEST(RemoveLater, WaitsForEveryKindOfUserAndRefusesNewOnes) {
  const std::vector<Use> uses = {
      {"reader", [](auto& o, auto& t, Body b) { o.submit(std::move(b), in(t)); }},
      {"writer", [](auto& o, auto& t, Body b) { o.submit(std::move(b), out(t)); }},
      {"part", [](auto& o, auto& t, Body b) { o.submit(std::move(b), inout(t.slice(0, 1, 2))); }},
      {"creator only",
       [](auto& o, auto& t, Body b) { o.submit(std::move(b), creator_only(out(t))); }},
      {"no_dep", [](auto& o, auto& t, Body b) { o.submit(std::move(b), no_dep(in(t))); }},
      {"manual scope",
       [](auto& o, auto& t, Body b) {
         const Scope scope = o.scope({.manual = true});
         o.submit(std::move(b), in(t));
       }},
      {"behind another",
       [](auto& o, auto& t, Body b) {
         o.submit(std::move(b), inout(t));
         for (int i = 0; i < 20; ++i)
           o.submit(nothing, in(t));
       }},
      {"epoch of readers",
       [](auto& o, auto& t, Body b) {
         o.submit(std::move(b), in(t));
         for (int i = 0; i < 40; ++i)
           o.submit(nothing, in(t));
       }},
  };
  for (const Use& use : uses) {
    for (const bool raw_only : {false, true}) {
      Engine engine(thread_lanes(2));
      std::vector<float> data(4);
      const Tensor x = engine.tensor(data);
      Gate started;
      Gate go_on;
      Gate submitted;
      Gate removed;
      std::atomic<int> freed{0};
      const strata::Run run = engine.submit(
          [&](Orchestration& o) {
            use.submit(o, x, [&](TaskContext&) {
              started.open();
              go_on.wait();
              EXPECT_EQ(freed, 0) << use.name;
            });
            submitted.open();
            removed.wait();
            EXPECT_THROW(o.submit(nothing, in(x)), InvalidArgument) << use.name;
            EXPECT_THROW(o.submit(nothing, in(x.slice(0, 1, 2))), InvalidArgument) << use.name;
          },
          {.read_after_write_only = raw_only});
      ASSERT_TRUE(started.wait());
      ASSERT_TRUE(submitted.wait());
      engine.remove_buffer_later(x.buffer(), [&] { ++freed; });
      removed.open();
      EXPECT_EQ(freed, 0) << use.name;
      EXPECT_EQ(engine.stats().live_buffers, 1U);
      go_on.open();
      ASSERT_TRUE(ends(run));
      run.result();
      EXPECT_TRUE(eventually([&] { return freed == 1; })) << use.name;
      EXPECT_EQ(engine.stats().live_buffers, 0U);
    }
  }
}

TEST(RemoveLater, ItsPlaceIsUsedAgainByAnotherBuffer) {
  Engine engine(thread_lanes(1));
  std::vector<float> data(4);
  for (int round = 0; round < 200; ++round) {
    const Tensor x = engine.tensor(data);
    std::atomic<int> freed{0};
    engine.run([&](Orchestration& o) {
      o.submit([](TaskContext& c) { c.data<float>(0)[0] += 1; }, inout(x));
      o.submit(nothing, no_dep(in(x)));
      engine.remove_buffer_later(x.buffer(), [&] { ++freed; });
    });
    EXPECT_TRUE(eventually([&] { return freed == 1; }));
  }
  EXPECT_EQ(data[0], 200);
  EXPECT_EQ(engine.stats().live_buffers, 0U);
  EXPECT_EQ(engine.stats().live_regions, 0U);
}

TEST(RemoveLater, FailedUsersCount) {
  Engine engine(thread_lanes(1));
  std::vector<float> data(4);
  const Tensor x = engine.tensor(data);
  std::atomic<int> freed{0};
  const strata::Run run = engine.submit([&](Orchestration& o) {
    const LaneHold hold = engine.hold_lanes();
    o.submit([](TaskContext&) { throw std::runtime_error("no"); }, out(x));
    o.submit(nothing, in(x));
    engine.remove_buffer_later(x.buffer(), [&] { ++freed; });
    EXPECT_EQ(freed, 0);
  });
  ASSERT_TRUE(ends(run));
  EXPECT_THROW(run.result(), RunFailed);
  EXPECT_TRUE(eventually([&] { return freed == 1; }));
}

TEST(RemoveLater, HasBeenToldWhenTheEngineIsGone) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> freed{0};
    std::vector<float> data(4);
    {
      Engine engine(thread_lanes(2));
      const Tensor x = engine.tensor(data);
      // Waited for by the engine's destructor alone: the tensor, which goes first, is copied.
      (void)engine.submit([&, x](Orchestration& o) {
        for (int i = 0; i < 10; ++i)
          o.submit(nothing, in(x));
        engine.remove_buffer_later(x.buffer(), [&] { ++freed; });
      });
    }
    EXPECT_EQ(freed, 1);
  }
}

TEST(RemoveLater, MayAddAndRemoveOtherBuffers) {
  Engine engine(thread_lanes(1));
  std::vector<float> data(4);
  std::atomic<int> freed{0};
  const BufferId second = engine.add_buffer(data.data(), 16);
  engine.run([&](Orchestration& o) {
    const Tensor x = engine.tensor(data);
    o.submit(nothing, in(x));
    engine.remove_buffer_later(x.buffer(), [&] {
      (void)engine.add_buffer(data.data(), 16);
      engine.remove_buffer_later(second, [&] { ++freed; });
    });
  });
  EXPECT_TRUE(eventually([&] { return freed == 1; }));
  EXPECT_EQ(engine.stats().live_buffers, 1U);
}

/// Users of all sorts end on several threads while buffers are removed: each is freed once, and
/// after its last user.
TEST(RemoveLater, RacesWithItsUsersAreDecidedOnce) {
  Engine engine(thread_lanes(3));
  constexpr int kBuffers = 400;
  struct Buffer {
    std::vector<float> data = std::vector<float>(4);
    std::atomic<int> users{0};
    std::atomic<int> freed{0};
  };
  std::vector<Buffer> buffers(kBuffers);
  const auto work = [&](int begin) {
    return [&, begin](Orchestration& o) {
      for (int i = begin; i < kBuffers; i += 2) {
        Buffer& buffer = buffers[static_cast<std::size_t>(i)];
        const Tensor x = engine.tensor(buffer.data);
        const auto use = [&buffer](TaskContext&) {
          EXPECT_EQ(buffer.freed, 0);
          buffer.users.fetch_sub(1);
        };
        buffer.users = 6;
        for (int k = 0; k < 2; ++k) {
          o.submit(use, in(x));
          o.submit(use, no_dep(in(x)));
          o.submit(use, inout(x.slice(0, k, k + 1)));
        }
        engine.remove_buffer_later(x.buffer(), [&buffer] {
          EXPECT_EQ(buffer.users, 0);
          buffer.freed.fetch_add(1);
        });
      }
    };
  };
  const strata::Run first = engine.submit(work(0));
  const strata::Run second = engine.submit(work(1));
  ASSERT_TRUE(ends(first));
  ASSERT_TRUE(ends(second));
  for (Buffer& buffer : buffers)
    EXPECT_TRUE(eventually([&] { return buffer.freed == 1; }));
  EXPECT_EQ(engine.stats().live_buffers, 0U);
}

TEST(HeapMemory, OfTheCallerIsUsedAndLeftAlone) {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory(64);
  auto* const first = reinterpret_cast<std::byte*>(memory.data());
  const std::size_t bytes = memory.size() * sizeof(Line);
  {
    Engine engine({.kinds = {{.name = "cpu", .threads = 1}}, .heap = bytes, .heap_memory = first});
    engine.run([&](Orchestration& o) {
      Tensor t(DType::uint8, {static_cast<std::int64_t>(bytes)});
      o.submit(
          [&](TaskContext& c) {
            EXPECT_EQ(c.data<std::byte>(0), first);
            std::fill_n(c.data<std::byte>(0), bytes, std::byte{7});
          },
          out(t));
    });
  }
  EXPECT_EQ(memory.back().bytes[63], std::byte{7});
  EXPECT_THROW(Engine({.heap = 64, .heap_memory = first + 8}), InvalidArgument);
}

}  // namespace
}  // namespace strata::test
