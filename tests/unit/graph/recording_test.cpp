// Recording and replay: a replayed graph does and orders what the direct one would.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "recording_support.hpp"

namespace strata::test {
namespace {

TEST_F(EngineRecording, RecordingExecutesNothing) {
  std::atomic<int> ran{0};
  const Recording recording =
      engine_.record({.tensors = {tensor(0)}}, [&](Orchestration& o, const Parameters& p) {
        o.submit([&](TaskContext&) { ++ran; }, inout(p.tensor(0)));
        o.submit([&](TaskContext&) { ++ran; }, in(p.tensor(0)));
      });
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(recording.stats().tasks, 2U);
  EXPECT_EQ(recording.stats().replays, 0U);
  engine_.run([&](Orchestration& o) { o.replay(recording, {tensor(1)}); });
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(recording.stats().replays, 1U);
}

TEST_F(EngineRecording, ScalarsAndViewsAreBoundAtEachReplay) {
  const Recording recording = engine_.record(
      {.tensors = {tensor(0)}, .scalars = 2}, [](Orchestration& o, const Parameters& p) {
        const Tensor& x = p.tensor(0);
        o.submit(add_scalar, inout(x.slice(0, 0, 8)), p.scalar(0));
        o.submit(add_scalar, inout(x.slice(0, 1, 16, 2)), p.scalar(1));
        o.submit(add_scalar, inout(x), scalar(0.5F));
      });
  engine_.run([&](Orchestration& o) {
    o.replay(recording, {tensor(1)}, {scalar(1.0F), scalar(10.0F)});
    o.replay(recording, {tensor(2)}, {scalar(2.0F), scalar(20.0F)});
    o.replay(recording, {tensor(1)}, {scalar(100.0F), scalar(1000.0F)});
  });
  for (int i = 0; i < 16; ++i) {
    const float low = i < 8 ? 1 : 0;
    const float odd = i % 2 == 1 ? 1 : 0;
    const auto k = static_cast<std::size_t>(i);
    EXPECT_EQ(data(0)[k], 0) << i;
    EXPECT_EQ(data(1)[k], 101 * low + 1010 * odd + 1) << i;
    EXPECT_EQ(data(2)[k], 2 * low + 20 * odd + 0.5F) << i;
  }
}

TEST_F(EngineRecording, ReplayReturnsItsLastTaskForOthersToWaitFor) {
  const Recording recording =
      engine_.record({.tensors = {tensor(0)}}, [](Orchestration& o, const Parameters& p) {
        const TaskId write = o.submit(add_scalar, inout(p.tensor(0)), scalar(1.0F));
        o.submit(nullptr, after(write));
      });
  const Recording empty = engine_.record({}, [](Orchestration&, const Parameters&) {});
  std::atomic<float> seen{0};
  engine_.run([&](Orchestration& o) {
    const TaskId last = o.replay(recording, {tensor(0)});
    o.submit([&](TaskContext&) { seen = data(0)[0]; }, after(last));
    EXPECT_FALSE(o.replay(empty, {}));
  });
  EXPECT_EQ(seen, 1.0F);
}

TEST_F(EngineRecording, ParameterMayBeBoundToAViewInTheMiddleOfABuffer) {
  Floats large(engine_, {16, 16});
  const Recording recording = engine_.record(
      {.tensors = {large.tensor.select(1, 0)}}, [](Orchestration& o, const Parameters& p) {
        o.submit(add_scalar, inout(p.tensor(0).slice(0, 4, 6)), scalar(1.0F));
      });
  engine_.run([&](Orchestration& o) {
    for (int column = 3; column < 5; ++column) {
      o.replay(recording, {large.tensor.select(1, column)});
    }
  });
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) {
      const bool inside = (row == 4 || row == 5) && (column == 3 || column == 4);
      EXPECT_EQ(large.data[static_cast<std::size_t>(row * 16 + column)], inside ? 1 : 0);
    }
  }
}

TEST_F(EngineRecording, FixedTensorsStayWhatTheyWere) {
  const Recording recording =
      engine_.record({.tensors = {tensor(0)}}, [&](Orchestration& o, const Parameters& p) {
        o.submit(mix_in, in(tensor(3)), inout(p.tensor(0)));
      });
  engine_.run([&](Orchestration& o) {
    o.submit(add_scalar, inout(tensor(3)), scalar(7.0F));
    o.replay(recording, {tensor(1)});
    o.submit(add_scalar, inout(tensor(3)), scalar(1.0F));
    o.replay(recording, {tensor(2)});
  });
  EXPECT_EQ(data(1)[0], 7);
  EXPECT_EQ(data(2)[0], 8);
}

TEST_F(EngineRecording, TemporariesAreNewInEachReplayAndFreedWithTheirScope) {
  const float start = 3;
  const Recording recording =
      engine_.record({.tensors = {tensor(0)}}, [&](Orchestration& o, const Parameters& p) {
        const Scope scope = o.scope();
        Tensor t(DType::float32, {16});
        o.submit(add_scalar, out(t, &start), scalar(1.0F));
        o.submit(mix_in, in(t), inout(p.tensor(0)));
      });
  engine_.run([&](Orchestration& o) {
    for (int i = 0; i < 10; ++i) {
      o.replay(recording, {tensor(1)});
      o.replay(recording, {tensor(2)});
    }
    o.wait(tensor(1));
    o.wait(tensor(2));
    EXPECT_TRUE(eventually([&] { return engine_.stats().heap_used == 0; }));
  });
  float expected = 0;
  for (int i = 0; i < 10; ++i) {
    expected = 2 * expected + 4;
    while (expected > 1000)
      expected -= 997;
  }
  EXPECT_EQ(data(1)[5], expected);
  EXPECT_EQ(data(2)[5], expected);
}

TEST_F(EngineRecording, TemporaryOutsideOfAScopeLivesAsLongAsTheReplayingScope) {
  const Recording recording =
      engine_.record({.tensors = {tensor(0)}}, [&](Orchestration& o, const Parameters& p) {
        Tensor t(DType::float32, {16});
        o.submit(nothing, out(t));
        o.submit(mix_in, in(t), inout(p.tensor(0)));
      });
  engine_.run([&](Orchestration& o) {
    Scope scope = o.scope();
    o.replay(recording, {tensor(0)});
    o.wait(tensor(0));
    EXPECT_EQ(engine_.stats().heap_used, 64U);
    scope.close();
    EXPECT_TRUE(eventually([&] { return engine_.stats().heap_used == 0; }));
  });
}

TEST_F(EngineRecording, ReplayedTasksAreOrderedWithThoseAroundThem) {
  const Recording recording = engine_.record(
      {.tensors = {tensor(0), tensor(1)}}, [&](Orchestration& o, const Parameters& p) {
        for (int i = 0; i < 5; ++i) {
          o.submit(mix_in, in(p.tensor(0)), inout(p.tensor(1)), scalar(1.0F));
          o.submit(mix_in, in(p.tensor(1)), inout(p.tensor(0)), scalar(2.0F));
        }
      });
  const auto program = [&](Orchestration& o, const Tensor& x, const Tensor& y, bool replayed) {
    for (int round = 0; round < 20; ++round) {
      o.submit(add_scalar, inout(x), scalar(static_cast<float>(round)));
      if (replayed) {
        o.replay(recording, {x, y});
      } else {
        for (int i = 0; i < 5; ++i) {
          o.submit(mix_in, in(x), inout(y), scalar(1.0F));
          o.submit(mix_in, in(y), inout(x), scalar(2.0F));
        }
      }
      o.submit(mix_in, in(y.slice(0, 0, 8)), inout(x.slice(0, 8, 16)), scalar(3.0F));
    }
  };
  engine_.run([&](Orchestration& o) { program(o, tensor(0), tensor(1), true); });
  engine_.run([&](Orchestration& o) { program(o, tensor(2), tensor(3), false); });
  EXPECT_EQ(data(0), data(2));
  EXPECT_EQ(data(1), data(3));
}

TEST_F(EngineRecording, IndependentReplaysDoNotWaitForEachOther) {
  Meeting meeting(2);
  std::atomic<int> met{0};
  const Recording recording =
      engine_.record({.tensors = {tensor(0)}}, [&](Orchestration& o, const Parameters& p) {
        o.submit(nothing, out(p.tensor(0)));
        o.submit([&](TaskContext&) { met += meeting.arrive() ? 1 : 0; }, inout(p.tensor(0)));
      });
  engine_.run([&](Orchestration& o) {
    o.replay(recording, {tensor(0)});
    o.replay(recording, {tensor(1)});
  });
  EXPECT_EQ(met, 2);
}

TEST_F(EngineRecording, ExplicitEdgesGroupsAndExactLanesAreKept) {
  std::vector<int> order;
  std::atomic<int> members{0};
  const Recording recording = engine_.record({}, [&](Orchestration& o, const Parameters&) {
    const Scope manual = o.scope({.manual = true});
    TaskId last = o.submit([&](TaskContext&) { order.push_back(0); });
    for (int i = 1; i < 20; ++i) {
      last = o.submit([&order, i](TaskContext&) { order.push_back(i); }, after(last));
    }
    GroupMember group[] = {
        {.lane = LaneId{1},
         .body =
             [&](TaskContext& c) { members += c.lane() == LaneId{1} && c.member() == 0 ? 1 : 0; }},
        {.lane = LaneId{0}, .body = [&](TaskContext& c) {
           members += c.lane() == LaneId{0} && c.member() == 1 ? 1 : 0;
         }}};
    const TaskId together = o.submit_group({.members = group, .after = {&last, 1}});
    o.submit([&](TaskContext& c) { order.push_back(c.lane() == LaneId{1} ? 100 : -1); },
             on(LaneId{1}), after(together));
  });
  for (int replay = 1; replay <= 5; ++replay) {
    order.clear();
    engine_.run([&](Orchestration& o) { o.replay(recording, {}); });
    ASSERT_EQ(order.size(), 21U);
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
    EXPECT_EQ(order[20], 100);
    EXPECT_EQ(members, 2 * replay);
  }
}

// ---- Bounds and runs ----------------------------------------------------------------------------

TEST_F(EngineRecording, RecordingLargerThanTheWindowIsReplayed) {
  for (const std::size_t window : {1, 3, 64}) {
    Engine engine({.kinds = {{.name = "cpu", .threads = 1, .callers = 1}}, .window = window});
    Floats a(engine, {8});
    Floats b(engine, {8});
    const Recording recording =
        engine.record({.tensors = {a.tensor, b.tensor}}, [](Orchestration& o, const Parameters& p) {
          for (int i = 0; i < 500; ++i) {
            o.submit(add_scalar, inout(p.tensor(i % 2)), scalar(1.0F));
            if (i % 50 == 0) o.submit(mix_in, in(p.tensor(0)), inout(p.tensor(1)));
          }
        });
    engine.run([&](Orchestration& o) { o.replay(recording, {a.tensor, b.tensor}); });
    EXPECT_EQ(a.data[0], 250);
    const std::vector<float> first = b.data;
    std::fill(a.data.begin(), a.data.end(), 0.0F);
    std::fill(b.data.begin(), b.data.end(), 0.0F);
    engine.run([&](Orchestration& o) { o.replay(recording, {a.tensor, b.tensor}); });
    EXPECT_EQ(b.data, first);
  }
}

TEST_F(EngineRecording, TemporariesLargerThanTheHeapPassThroughItScopeByScope) {
  Engine engine({.kinds = {{.name = "cpu", .threads = 1, .callers = 1}}, .heap = 4096});
  Floats a(engine, {8});
  const Recording recording =
      engine.record({.tensors = {a.tensor}}, [](Orchestration& o, const Parameters& p) {
        for (int i = 0; i < 100; ++i) {
          const Scope scope = o.scope();
          Tensor t(DType::float32, {1024});
          const float one = 1;
          o.submit(nothing, out(t, &one));
          o.submit(mix_in, in(t.slice(0, 1016, 1024)), inout(p.tensor(0)));
        }
      });
  float expected = 0;
  for (int i = 0; i < 200; ++i) {
    expected = 2 * expected + 1;
    while (expected > 1000)
      expected -= 997;
  }
  engine.run([&](Orchestration& o) {
    o.replay(recording, {a.tensor});
    o.replay(recording, {a.tensor});
  });
  EXPECT_EQ(a.data[7], expected);
}

TEST_F(EngineRecording, SeveralRunsReplayOneRecordingAtOnce) {
  const Recording recording = engine_.record(
      {.tensors = {tensor(0)}, .scalars = 1}, [](Orchestration& o, const Parameters& p) {
        for (int i = 0; i < 10; ++i)
          o.submit(add_scalar, inout(p.tensor(0)), p.scalar(0));
      });
  std::vector<strata::Run> runs;
  for (int r = 0; r < 6; ++r) {
    runs.push_back(engine_.submit([&, r](Orchestration& o) {
      for (int i = 0; i < 20; ++i) {
        o.replay(recording, {tensor(r % 3)}, {scalar(static_cast<float>(r))});
      }
    }));
  }
  for (const strata::Run& run : runs) {
    ASSERT_TRUE(ends(run));
    run.result();
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(data(i)[9], static_cast<float>(200 * i + 200 * (i + 3))) << i;
  }
  EXPECT_EQ(recording.stats().replays, 120U);
}

TEST_F(EngineRecording, RecordingMayBeDroppedWhileItsTasksRun) {
  Gate proceed;
  strata::Run run;
  {
    const Recording recording =
        engine_.record({.tensors = {tensor(0)}}, [&](Orchestration& o, const Parameters& p) {
          const std::string text(100, 'x');  // A body that owns memory.
          o.submit(
              [&proceed, text](TaskContext& c) {
                proceed.wait();
                c.data<float>(0)[0] = static_cast<float>(text.size());
              },
              inout(p.tensor(0)));
        });
    Gate replayed;
    run = engine_.submit([&, recording](Orchestration& o) {
      o.replay(recording, {tensor(0)});
      replayed.open();
    });
    ASSERT_TRUE(replayed.wait());
  }
  proceed.open();
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(data(0)[0], 100);
}

TEST_F(EngineRecording, FailureInAReplaySkipsItsReadersOnly) {
  std::atomic<bool> broken{true};
  std::atomic<int> read{0};
  const Recording recording = engine_.record(
      {.tensors = {tensor(0), tensor(1)}}, [&](Orchestration& o, const Parameters& p) {
        o.submit(
            [&](TaskContext&) {
              if (broken) throw std::runtime_error("recorded, and broken");
            },
            out(p.tensor(0)), named("writer"));
        o.submit([&](TaskContext&) { read += 1; }, in(p.tensor(0)), named("reader"));
        o.submit([&](TaskContext&) { read += 10; }, inout(p.tensor(1)), named("other"));
      });
  const strata::Run bad = engine_.submit([&](Orchestration& o) {
    o.replay(recording, {tensor(0), tensor(1)});
  });
  ASSERT_TRUE(ends(bad));
  EXPECT_EQ(read, 10);
  try {
    bad.result();
    ADD_FAILURE() << "the run did not fail";
  } catch (const RunFailed& failed) {
    EXPECT_EQ(failed.failed().at(0).name, "writer");
    EXPECT_EQ(failed.skipped().at(0).name, "reader");
  }
  broken = false;
  engine_.run([&](Orchestration& o) { o.replay(recording, {tensor(0), tensor(1)}); });
  EXPECT_EQ(read, 21);
}

}  // namespace
}  // namespace strata::test
