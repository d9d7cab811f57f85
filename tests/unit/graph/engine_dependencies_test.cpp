// Which tasks wait for which: hazards, overlap, and the weaker modes. Numbers in the tests'
// comments are invariants of src/graph/dependency_tracker.hpp.

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "engine_support.hpp"

namespace strata::test {
namespace {

class EngineDependencies : public testing::Test {
 protected:
  Engine engine_{thread_lanes(2)};
  Floats a_{engine_, {8, 8}};
  Floats b_{engine_, {8, 8}};
  const Tensor& x_ = a_.tensor;
  const Tensor& y_ = b_.tensor;
};

// ---- Hazards ------------------------------------------------------------------------------------

TEST_F(EngineDependencies, ReaderWaitsForTheWriter) {
  EXPECT_TRUE(waits(engine_, {out(x_)}, {in(x_)}));
  EXPECT_TRUE(waits(engine_, {inout(x_)}, {in(x_)}));
}

TEST_F(EngineDependencies, WriterWaitsForTheWriterBefore) {
  EXPECT_TRUE(waits(engine_, {out(x_)}, {out(x_)}));
  EXPECT_TRUE(waits(engine_, {inout(x_)}, {inout(x_)}));
}

TEST_F(EngineDependencies, WriterWaitsForTheReaderBefore) {
  EXPECT_TRUE(waits(engine_, {in(x_)}, {out(x_)}));
  EXPECT_TRUE(waits(engine_, {in(x_)}, {inout(x_)}));
}

TEST_F(EngineDependencies, ReadersNeverWaitForEachOther) {
  EXPECT_FALSE(waits(engine_, {in(x_)}, {in(x_)}));
  EXPECT_FALSE(waits(engine_, {in(x_)}, {in(x_.slice(0, 0, 4))}));
  EXPECT_FALSE(waits(engine_, {in(x_), in(y_)}, {in(y_), in(x_.transpose(0, 1))}));
}

TEST_F(EngineDependencies, TasksOfOtherBuffersDoNotWait) {
  EXPECT_FALSE(waits(engine_, {inout(x_)}, {inout(y_)}));
}

TEST_F(EngineDependencies, AnyOneConflictingArgumentIsEnough) {
  EXPECT_TRUE(waits(engine_, {in(x_), out(y_)}, {in(x_), in(y_)}));
  EXPECT_TRUE(waits(engine_, {in(x_), in(y_)}, {in(x_), out(y_.select(0, 7))}));
}

TEST_F(EngineDependencies, ExplicitEdgeIsKeptWithoutAnyArgument) {
  std::atomic<bool> first_ended{false};
  std::atomic<bool> right{false};
  engine_.run([&](Orchestration& o) {
    const TaskId first = o.submit([&](TaskContext&) { first_ended = true; });
    const TaskId edges_only = o.submit(nullptr, after(first));
    o.submit([&](TaskContext&) { right = first_ended.load(); }, after(edges_only));
  });
  EXPECT_TRUE(right);
}

TEST_F(EngineDependencies, ExplicitEdgeWaitsForARunningTask) {
  std::atomic<bool> second_ran{false};
  std::atomic<bool> waited{false};
  Gate third_ran;
  engine_.run([&](Orchestration& o) {
    const TaskId first = o.submit([&](TaskContext&) {
      third_ran.wait();
      waited = !second_ran;
    });
    o.submit([&](TaskContext&) { second_ran = true; }, after(first));
    o.submit([&](TaskContext&) { third_ran.open(); });
  });
  EXPECT_TRUE(waited);
}

// ---- Overlap of strided regions (1) -------------------------------------------------------------

TEST_F(EngineDependencies, DisjointTilesDoNotWait) {
  EXPECT_FALSE(waits(engine_, {inout(x_.tile({0, 0}, {4, 4}))}, {inout(x_.tile({0, 4}, {4, 4}))}));
  EXPECT_FALSE(waits(engine_, {inout(x_.tile({0, 0}, {4, 4}))}, {inout(x_.tile({4, 0}, {4, 4}))}));
  EXPECT_FALSE(waits(engine_, {inout(x_.tile({1, 1}, {3, 3}))}, {inout(x_.tile({4, 1}, {4, 3}))}));
}

TEST_F(EngineDependencies, TilesThatShareOneElementWait) {
  EXPECT_TRUE(waits(engine_, {out(x_.tile({0, 0}, {4, 4}))}, {in(x_.tile({3, 3}, {4, 4}))}));
  EXPECT_TRUE(waits(engine_, {in(x_.tile({3, 3}, {4, 4}))}, {out(x_.tile({0, 0}, {4, 4}))}));
}

TEST_F(EngineDependencies, InterleavedColumnsDoNotWait) {
  EXPECT_FALSE(waits(engine_, {inout(x_.select(1, 2))}, {inout(x_.select(1, 3))}));
  EXPECT_FALSE(waits(engine_, {inout(x_.slice(1, 0, 8, 2))}, {inout(x_.slice(1, 1, 8, 2))}));
  EXPECT_TRUE(waits(engine_, {inout(x_.slice(1, 0, 8, 2))}, {inout(x_.slice(1, 0, 8, 3))}));
}

TEST_F(EngineDependencies, TransposedViewsAreComparedByTheirBytes) {
  const Tensor turned = x_.transpose(0, 1);
  EXPECT_FALSE(waits(engine_, {inout(x_.select(0, 1))}, {inout(turned.select(1, 2))}));
  EXPECT_TRUE(waits(engine_, {inout(x_.select(0, 1))}, {inout(turned.select(1, 1))}));
  EXPECT_FALSE(
      waits(engine_, {inout(x_.tile({0, 4}, {4, 4}))}, {inout(turned.tile({0, 4}, {4, 4}))}));
  EXPECT_TRUE(
      waits(engine_, {inout(x_.tile({0, 4}, {4, 4}))}, {inout(turned.tile({4, 0}, {4, 4}))}));
}

TEST_F(EngineDependencies, TilesOfFourDimensionsAreExact) {
  Floats c(engine_, {4, 4, 4, 4});
  const Tensor& z = c.tensor;
  EXPECT_FALSE(waits(engine_, {inout(z.tile({0, 0, 0, 0}, {4, 4, 4, 2}))},
                     {inout(z.tile({0, 0, 0, 2}, {4, 4, 4, 2}))}));
  EXPECT_FALSE(waits(engine_, {inout(z.tile({0, 0, 0, 0}, {4, 2, 4, 4}))},
                     {inout(z.tile({0, 2, 0, 0}, {4, 2, 4, 4}))}));
  EXPECT_TRUE(waits(engine_, {inout(z.tile({0, 0, 0, 0}, {4, 3, 4, 4}))},
                    {inout(z.tile({1, 2, 0, 0}, {1, 2, 1, 1}))}));
}

TEST_F(EngineDependencies, OtherElementTypesOverTheSameBytesWait) {
  const Tensor bytes(x_.buffer(), 0, DType::uint8, std::vector<std::int64_t>{256});
  EXPECT_TRUE(waits(engine_, {out(x_.select(0, 0))}, {in(bytes.slice(0, 31, 32))}));
  EXPECT_FALSE(waits(engine_, {out(x_.select(0, 0))}, {in(bytes.slice(0, 32, 33))}));
}

TEST_F(EngineDependencies, ReversedViewCoversTheSameBytes) {
  const std::vector<std::int64_t> shape{8};
  const std::vector<std::int64_t> back{-1};
  const Tensor reversed(x_.buffer(), 7 * 4, DType::float32, shape, back);
  EXPECT_TRUE(waits(engine_, {out(reversed)}, {in(x_.select(0, 0))}));
  EXPECT_FALSE(waits(engine_, {out(reversed)}, {in(x_.select(0, 1))}));
}

TEST_F(EngineDependencies, BroadcastViewCoversItsOneElement) {
  const std::vector<std::int64_t> shape{8};
  const std::vector<std::int64_t> still{0};
  const Tensor broadcast(x_.buffer(), 4, DType::float32, shape, still);
  EXPECT_TRUE(waits(engine_, {in(broadcast)}, {out(x_.tile({0, 1}, {1, 1}))}));
  EXPECT_FALSE(waits(engine_, {in(broadcast)}, {out(x_.tile({0, 2}, {1, 1}))}));
}

TEST_F(EngineDependencies, ZeroSizedViewOrdersNothing) {
  const Tensor none = x_.slice(0, 3, 3);
  EXPECT_FALSE(waits(engine_, {inout(x_)}, {inout(none)}));
  EXPECT_FALSE(waits(engine_, {inout(none)}, {inout(x_)}));
  EXPECT_FALSE(waits(engine_, {inout(none)}, {inout(none)}));
}

// ---- Several accesses of one region -------------------------------------------------------------

TEST_F(EngineDependencies, WriteBetweenDoesNotHideTheReaderBefore) {
  // (2): the first task reads; a write of another part must not make the engine forget it.
  const Probe probe{
      .between = [&](Orchestration& o) { o.submit(nothing, out(x_.slice(0, 4, 8))); }};
  EXPECT_TRUE(probe.waits(engine_, {in(x_.slice(0, 0, 4))}, {out(x_)}));
}

TEST_F(EngineDependencies, PartOfALargeWriteStaysOrderedAfterAPartialOverwrite) {
  // (3): the first writes all, the one between overwrites the upper half only after it.
  std::atomic<bool> first_ended{false};
  std::atomic<int> right{0};
  engine_.run([&](Orchestration& o) {
    const TaskId hold = o.submit(nothing);
    o.submit([&](TaskContext&) { first_ended = true; }, out(x_), after(hold));
    o.submit([&](TaskContext&) { right += first_ended ? 1 : 0; }, out(x_.slice(0, 0, 4)));
    o.submit([&](TaskContext&) { right += first_ended ? 1 : 0; }, in(x_.slice(0, 3, 5)));
  });
  EXPECT_EQ(right, 2);
}

TEST_F(EngineDependencies, WriterWaitsForEveryReaderOfAnEpoch) {
  // (2): far more readers than a region's list holds, so they are collapsed.
  constexpr int kReaders = 200;
  for (int missing = 0; missing < 4; ++missing) {
    std::atomic<int> read{0};
    std::atomic<int> seen{-1};
    const std::uint64_t epochs = engine_.stats().reader_epochs;
    engine_.run([&](Orchestration& o) {
      Gate start;
      // Held back, so that all readers are unfinished while they are submitted.
      const TaskId first = o.submit([&](TaskContext&) { start.wait(); });
      for (int i = 0; i < kReaders; ++i) {
        o.submit([&](TaskContext&) { read.fetch_add(1); }, in(x_), after(first));
      }
      const TaskId writer = o.submit([&](TaskContext&) { seen = read.load(); }, out(x_));
      start.open();
      o.wait(writer);
    });
    EXPECT_EQ(seen, kReaders);
    EXPECT_GT(engine_.stats().reader_epochs, epochs);
  }
}

TEST_F(EngineDependencies, ReadersAfterAnEpochDoNotWaitForIt) {
  const Probe probe{.between = [&](Orchestration& o) {
    for (int i = 0; i < 40; ++i)
      o.submit(nothing, in(x_), inout(y_));
  }};
  EXPECT_FALSE(probe.waits(engine_, {in(x_)}, {in(x_)}));
}

// ---- Weaker modes -------------------------------------------------------------------------------

TEST_F(EngineDependencies, CreatorOnlyDoesNotWaitForWritersOfCallersMemory) {
  EXPECT_FALSE(waits(engine_, {out(x_)}, {creator_only(in(x_))}));
  EXPECT_FALSE(waits(engine_, {in(x_)}, {creator_only(out(x_))}));
  EXPECT_FALSE(waits(engine_, {inout(x_)}, {inout(x_.tracked(Tracking::creator_only))}));
}

TEST_F(EngineDependencies, OthersWaitForACreatorOnlyWriter) {
  EXPECT_TRUE(waits(engine_, {creator_only(out(x_))}, {in(x_)}));
  EXPECT_TRUE(waits(engine_, {creator_only(inout(x_))}, {out(x_)}));
}

TEST_F(EngineDependencies, ReaderWaitsForEveryCreatorOnlyWriter) {
  constexpr int kWriters = 50;
  std::atomic<int> written{0};
  std::atomic<int> seen{-1};
  engine_.run([&](Orchestration& o) {
    Gate start;
    const TaskId first = o.submit([&](TaskContext&) { start.wait(); });
    for (int i = 0; i < kWriters; ++i) {
      o.submit([&](TaskContext&) { written.fetch_add(1); }, creator_only(inout(x_)), after(first));
    }
    const TaskId reader = o.submit([&](TaskContext&) { seen = written.load(); }, in(x_));
    start.open();
    o.wait(reader);
  });
  EXPECT_EQ(seen, kWriters);
}

TEST_F(EngineDependencies, NobodyWaitsForANoDepWriter) {
  EXPECT_FALSE(waits(engine_, {no_dep(out(x_))}, {in(x_)}));
  EXPECT_FALSE(waits(engine_, {no_dep(out(x_))}, {out(x_)}));
  EXPECT_FALSE(waits(engine_, {out(x_)}, {no_dep(inout(x_))}));
  EXPECT_FALSE(waits(engine_, {out(x_.tracked(Tracking::no_dep))}, {in(x_)}));
}

TEST_F(EngineDependencies, WeakerModesWaitForTheTaskThatAllocated) {
  for (const Tracking tracking : {Tracking::creator_only, Tracking::no_dep}) {
    std::atomic<bool> created{false};
    std::atomic<bool> right{false};
    Gate both_submitted;
    engine_.run([&](Orchestration& o) {
      Tensor t(DType::float32, {4});
      o.submit(
          [&](TaskContext&) {
            both_submitted.wait();
            created = true;
          },
          out(t));
      const Tensor weak = t.tracked(tracking);
      const TaskId user = o.submit([&](TaskContext&) { right = created.load(); }, inout(weak));
      both_submitted.open();
      o.wait(user);
    });
    EXPECT_TRUE(right) << static_cast<int>(tracking);
  }
}

TEST_F(EngineDependencies, ReadAfterWriteOnlyRunKeepsOnlyThat) {
  const Probe probe{.options = {.read_after_write_only = true}};
  EXPECT_TRUE(probe.waits(engine_, {out(x_)}, {in(x_)}));
  EXPECT_TRUE(probe.waits(engine_, {out(x_)}, {inout(x_)}));
  EXPECT_FALSE(probe.waits(engine_, {in(x_)}, {out(x_)}));
  EXPECT_FALSE(probe.waits(engine_, {out(x_)}, {out(x_)}));
}

TEST_F(EngineDependencies, ManualScopeInfersNothing) {
  const Probe probe{.scope = {.name = "by hand", .manual = true}};
  EXPECT_FALSE(probe.waits(engine_, {out(x_)}, {in(x_)}));
  EXPECT_FALSE(probe.waits(engine_, {in(x_)}, {out(x_)}));
  EXPECT_FALSE(probe.waits(engine_, {inout(x_)}, {inout(x_)}));
}

TEST_F(EngineDependencies, ManualScopeKeepsExplicitEdges) {
  std::vector<int> order;
  engine_.run([&](Orchestration& o) {
    const Scope scope = o.scope({.manual = true});
    TaskId last = o.submit([&](TaskContext&) { order.push_back(0); });
    for (int i = 1; i < 100; ++i) {
      last = o.submit([&order, i](TaskContext&) { order.push_back(i); }, after(last));
    }
  });
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_F(EngineDependencies, TasksOfAManualScopeAreSeenByNobodyElse) {
  std::atomic<bool> second_ran{false};
  std::atomic<bool> waited{true};
  Gate third_ran;
  engine_.run([&](Orchestration& o) {
    {
      const Scope scope = o.scope({.manual = true});
      o.submit(
          [&](TaskContext&) {
            third_ran.wait();
            waited = !second_ran;
          },
          out(x_));
    }
    o.submit([&](TaskContext&) { second_ran = true; }, inout(x_));
    o.submit([&](TaskContext&) { third_ran.open(); });
  });
  EXPECT_FALSE(waited);
}

// ---- Overlap that can't be decided --------------------------------------------------------------

/// Two views whose bytes interleave in a way that no bounded test decides: the engine may assume.
struct Undecided {
  static Tensor view(const Tensor& of, std::int64_t offset, std::vector<std::int64_t> strides) {
    const std::vector<std::int64_t> shape(strides.size(), 7);
    return Tensor(of.buffer(), offset, DType::uint8, shape, strides);
  }
  explicit Undecided(Engine& engine) : memory(engine, {1 << 18}) {
    // Sums of many unrelated strides, each side another set.
    first = view(memory.tensor, 0, {10007, 1009, 907, 613, 401, 211, 97, 31});
    second = view(memory.tensor, 1, {9973, 1013, 911, 617, 397, 223, 89, 37});
  }
  Floats memory;
  Tensor first;
  Tensor second;
};

TEST_F(EngineDependencies, AssumedEdgesAreCountedAndStrictRunsRefuseThem) {
  const Undecided views(engine_);
  const auto submit_both = [&](Orchestration& o, const Gate& submitted) {
    o.submit([&](TaskContext&) { submitted.wait(); }, out(views.first), named("first"));
    o.submit(nothing, in(x_), in(views.second), named("second"));
  };
  Gate submitted;
  const strata::Run loose = engine_.submit([&](Orchestration& o) {
    submit_both(o, submitted);
    submitted.open();
  });
  ASSERT_TRUE(ends(loose));
  loose.result();
  // If a better test decides these views one day, this needs others that it does not decide.
  ASSERT_NE(loose.stats().assumed_edges, 0U);
  EXPECT_EQ(loose.stats().assumed_edges, 1U);
  EXPECT_GE(engine_.stats().overlap_assumed, 1U);

  Gate again;
  bool went_on = false;
  engine_.run(
      [&](Orchestration& o) {
        const std::string message = message_of<InvalidArgument>([&] { submit_both(o, again); });
        EXPECT_NE(message.find("second"), std::string::npos) << message;
        EXPECT_NE(message.find("tensor argument 1"), std::string::npos) << message;
        again.open();
        o.submit([&](TaskContext&) { went_on = true; }, inout(x_));
      },
      {.strict = true});
  EXPECT_TRUE(went_on);
}

TEST_F(EngineDependencies, StrictRunAcceptsWhatIsDecided) {
  const strata::Run run = engine_.run(
      [&](Orchestration& o) {
        for (int i = 0; i < 8; ++i) {
          o.submit(nothing, inout(x_.select(1, i)));
          o.submit(nothing, inout(x_.transpose(0, 1).tile({i, 0}, {1, 4})));
        }
      },
      {.strict = true});
  EXPECT_EQ(run.stats().assumed_edges, 0U);
}

// ---- What is kept -------------------------------------------------------------------------------

TEST_F(EngineDependencies, RegionsOfEndedTasksAreForgotten) {
  // (4), and its other half: an entry does not stay for ever either.
  Floats large(engine_, {100, 1000});
  for (int round = 0; round < 4; ++round) {
    engine_.run([&](Orchestration& o) {
      for (int i = 0; i < 1000; ++i)
        o.submit(nothing, inout(large.tensor.select(1, i)));
      o.wait(large.tensor);
    });
  }
  EXPECT_LT(engine_.stats().live_regions, 2200U);
}

}  // namespace
}  // namespace strata::test
