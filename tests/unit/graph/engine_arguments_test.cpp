// What tasks are given: any number of arguments, without allocation in the common case, and a clear
// refusal of bad ones.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "engine_support.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STRATA_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STRATA_TEST_SANITIZED 1
#endif
#endif

#ifndef STRATA_TEST_SANITIZED
namespace {
/// Allocations of this thread since it last set this to zero.
thread_local std::uint64_t allocations = 0;

void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* memory = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    memory = std::malloc(bytes);
  } else if (::posix_memalign(&memory, alignment, bytes) != 0) {
    memory = nullptr;
  }
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
#endif

namespace strata::test {
namespace {

using Shape = std::vector<std::int64_t>;

// ---- Number and values --------------------------------------------------------------------------

TEST(EngineArguments, ThreeHundredTensorsAndTwoHundredScalarsArriveInOrder) {
  Engine engine(thread_lanes(1));
  Floats a(engine, {300, 4});
  std::vector<Tensor> rows;
  for (int i = 0; i < 300; ++i)
    rows.push_back(a.tensor.select(0, i));
  Args args;
  for (const Tensor& row : rows)
    args.push_back(args.size() % 2 == 0 ? inout(row) : in(row));
  std::vector<Scalar> scalars;
  for (int i = 0; i < 200; ++i)
    scalars.push_back(Scalar::of(0.5 * i));
  int wrong = -1;
  for (int round = 0; round < 3; ++round) {
    engine.run([&](Orchestration& o) {
      TaskSpec spec;
      spec.body = [&](TaskContext& c) {
        wrong = (c.tensor_count() == 300 ? 0 : 1) + (c.scalar_count() == 200 ? 0 : 1);
        for (std::size_t i = 0; i < c.tensor_count(); ++i) {
          const TensorView view = c.tensor(i);
          wrong += c.data<float>(i) == &a.data[i * 4] ? 0 : 1;
          wrong += view.rank() == 1 && view.extent(0) == 4 && view.stride(0) == 1 ? 0 : 1;
          wrong += view.access() == (i % 2 == 0 ? Access::inout : Access::in) ? 0 : 1;
          wrong += view.byte_offset() == static_cast<std::int64_t>(i * 16) ? 0 : 1;
        }
        for (std::size_t i = 0; i < c.scalar_count(); ++i) {
          wrong += c.scalar<double>(i) == 0.5 * static_cast<double>(i) ? 0 : 1;
        }
      };
      spec.tensors = args;
      spec.scalars = scalars;
      o.submit_task(spec);
    });
    EXPECT_EQ(wrong, 0);
  }
}

TEST(EngineArguments, EveryOneOfManyTensorsIsTracked) {
  Engine engine(thread_lanes(2));
  Floats a(engine, {300, 4});
  std::vector<Tensor> rows;
  for (int i = 0; i < 300; ++i)
    rows.push_back(a.tensor.select(0, i));
  Args all;
  for (const Tensor& row : rows)
    all.push_back(in(row));
  EXPECT_TRUE(waits(engine, {out(rows[0])}, all));
  EXPECT_TRUE(waits(engine, {out(rows[150])}, all));
  EXPECT_TRUE(waits(engine, {out(rows[299])}, all));
  EXPECT_TRUE(waits(engine, all, {out(rows[299])}));
  EXPECT_FALSE(waits(engine, all, all));
}

TEST(EngineArguments, ScalarsOfEverySortKeepTheirBits) {
  struct Pair {
    std::int16_t a;
    float b;
  };
  Engine engine(caller_lane());
  bool right = false;
  engine.run([&](Orchestration& o) {
    o.submit(
        [&](TaskContext& c) {
          right = c.scalar<bool>(0) && c.scalar<std::int8_t>(1) == -3 &&
                  c.scalar<std::uint64_t>(2) == ~std::uint64_t{0} && c.scalar<float>(3) == 1.5F &&
                  c.scalar<Pair>(4).a == -7 && c.scalar<Pair>(4).b == 2.25F;
        },
        scalar(true), scalar(std::int8_t{-3}), scalar(~std::uint64_t{0}), scalar(1.5F),
        scalar(Pair{-7, 2.25F}));
  });
  EXPECT_TRUE(right);
}

TEST(EngineArguments, ViewOfEightDimensionsArrivesAsItWas) {
  Engine engine(caller_lane());
  Floats a(engine, {2, 1, 3, 2, 1, 2, 2, 4});
  const Tensor view = a.tensor.transpose(0, 7).slice(0, 1, 4, 2);
  bool right = false;
  engine.run([&](Orchestration& o) {
    o.submit(
        [&](TaskContext& c) {
          right = c.tensor(0).rank() == 8 && c.tensor(0).dtype() == DType::float32;
          for (int d = 0; d < 8; ++d) {
            right = right && c.tensor(0).extent(d) == view.extent(d) &&
                    c.tensor(0).stride(d) == view.stride(d);
          }
          right = right && c.data<float>(0) == a.data.data() + 1;
        },
        in(view));
  });
  EXPECT_TRUE(right);
}

TEST(EngineArguments, BodyOfAnySizeIsRunOnceAndDestroyed) {
  Engine engine(thread_lanes(2));
  const auto token = std::make_shared<int>(7);
  const std::vector<double> large(100, 0.25);
  std::atomic<int> sum{0};
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 100; ++i) {
      o.submit(
          [token, large, &sum](TaskContext&) { sum += *token + (large.size() == 100 ? 1 : 0); });
    }
  });
  EXPECT_EQ(sum, 800);
  EXPECT_EQ(token.use_count(), 1);
}

/// What a task stands for, for a lane that does not run bodies itself.
struct Call {
  int id;
  void operator()(TaskContext& /*context*/) const {}
};
struct SameCall {
  int id;
  void operator()(TaskContext& /*context*/) const {}
};
struct LongCall {
  std::string text;
  void operator()(TaskContext& /*context*/) const {}
};

TEST(Body, SaysWhatItHoldsOnlyToWhoNamesTheType) {
  const Body small = Call{.id = 5};
  ASSERT_NE(small.target<Call>(), nullptr);
  EXPECT_EQ(small.target<Call>()->id, 5);
  EXPECT_EQ(small.target<SameCall>(), nullptr);
  EXPECT_EQ(small.target<LongCall>(), nullptr);

  Body large = LongCall{.text = std::string(100, 'x')};
  ASSERT_NE(large.target<LongCall>(), nullptr);
  EXPECT_EQ(large.target<LongCall>()->text, std::string(100, 'x'));
  EXPECT_EQ(large.target<Call>(), nullptr);
  const Body moved = std::move(large);
  EXPECT_EQ(large.target<LongCall>(), nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_NE(moved.target<LongCall>(), nullptr);

  const Body function = nothing;
  EXPECT_NE(function.target<void (*)(TaskContext&)>(), nullptr);
  EXPECT_EQ(Body().target<Call>(), nullptr);
  EXPECT_EQ(Body(nullptr).target<LongCall>(), nullptr);
}

// ---- Cost ---------------------------------------------------------------------------------------

#ifndef STRATA_TEST_SANITIZED
/// Allocations of the submitting thread in the last of many equal rounds of submissions.
template <class SubmitRound>
std::uint64_t allocations_when_warm(Engine& engine, SubmitRound&& submit_round) {
  std::uint64_t last = 0;
  engine.run([&](Orchestration& o) {
    for (int round = 0; round < 60; ++round) {
      allocations = 0;
      const TaskId newest = submit_round(o);
      if (round >= 50) last += allocations;
      o.wait(newest);
    }
  });
  return last;
}

TEST(EngineArguments, EightTensorsCostNoAllocation) {
  Engine engine({.kinds = {{.name = "cpu", .threads = 1}}, .window = 128});
  std::vector<std::unique_ptr<Floats>> data;
  for (int i = 0; i < 8; ++i) {
    data.push_back(std::make_unique<Floats>(engine, std::initializer_list<std::int64_t>{4, 4}));
  }
  const auto& d = data;
  const auto round = [&](Orchestration& o) {
    TaskId last;
    for (int i = 0; i < 60; ++i) {
      last = o.submit(nothing, in(d[0]->tensor), in(d[1]->tensor), in(d[2]->tensor),
                      in(d[3]->tensor), inout(d[4]->tensor), inout(d[5]->tensor), out(d[6]->tensor),
                      out(d[7]->tensor), scalar(i), scalar(0.5));
    }
    return last;
  };
  EXPECT_EQ(allocations_when_warm(engine, round), 0U);
}

TEST(EngineArguments, EightTilesOfOneMatrixCostNoAllocation) {
  Engine engine({.kinds = {{.name = "cpu", .threads = 1}}, .window = 128});
  Floats a(engine, {8, 8, 8, 8});
  const auto round = [&](Orchestration& o) {
    TaskId last;
    for (std::int64_t i = 0; i < 60; ++i) {
      const auto part = [&](std::int64_t k) {
        return a.tensor.tile({k, 0, i % 8, 0}, {1, 8, 1, 8});
      };
      const Tensor t[] = {part(0), part(1), part(2), part(3), part(4), part(5), part(6), part(7)};
      last = o.submit(nothing, in(t[0]), in(t[1]), in(t[2]), in(t[3]), in(t[4]), in(t[5]), in(t[6]),
                      inout(t[7]));
    }
    return last;
  };
  EXPECT_EQ(allocations_when_warm(engine, round), 0U);
}
#endif

// ---- Legal, though it looks odd -----------------------------------------------------------------

TEST(EngineArguments, ZeroSizedViewIsLegalWhereverItPoints) {
  Engine engine(caller_lane());
  Floats a(engine, {4, 4});
  int ran = 0;
  engine.run([&](Orchestration& o) {
    const Tensor none = a.tensor.slice(1, 2, 2);
    o.submit([&](TaskContext& c) { ran += c.tensor(0).extent(1) == 0 ? 1 : 0; }, in(none));
    o.submit([&](TaskContext&) { ++ran; }, inout(none), inout(a.tensor));
    // It covers no bytes, so none of them is outside of the buffer.
    const Tensor far(a.tensor.buffer(), 1000, DType::float32, Shape{0, 5});
    o.submit([&](TaskContext&) { ++ran; }, out(far));
  });
  EXPECT_EQ(ran, 3);
}

TEST(EngineArguments, OverlappingInAndOutOfOneTaskAreAnInout) {
  Engine engine(thread_lanes(2));
  Floats a(engine, {8});
  const Tensor& x = a.tensor;
  // As a whole, and shifted by one.
  EXPECT_TRUE(waits(engine, {out(x)}, {in(x), out(x)}));
  EXPECT_TRUE(waits(engine, {in(x), out(x)}, {in(x)}));
  EXPECT_TRUE(waits(engine, {out(x), in(x)}, {in(x)}));
  EXPECT_TRUE(waits(engine, {in(x.slice(0, 0, 7)), out(x.slice(0, 1, 8))},
                    {in(x.slice(0, 0, 7)), out(x.slice(0, 1, 8))}));
  EXPECT_TRUE(
      waits(engine, {in(x.slice(0, 0, 7)), out(x.slice(0, 1, 8))}, {out(x.slice(0, 0, 1))}));
  EXPECT_FALSE(
      waits(engine, {in(x.slice(0, 0, 4)), out(x.slice(0, 1, 5))}, {inout(x.slice(0, 5, 8))}));
}

TEST(EngineArguments, TaskDoesNotWaitForItself) {
  Engine engine(caller_lane());
  Floats a(engine, {8, 8});
  int ran = 0;
  engine.run([&](Orchestration& o) {
    for (int i = 0; i < 10; ++i) {
      o.submit([&](TaskContext&) { ++ran; }, out(a.tensor), inout(a.tensor.select(1, 3)),
               in(a.tensor.transpose(0, 1)), out(a.tensor));
    }
  });
  EXPECT_EQ(ran, 10);
}

// ---- Bad input ----------------------------------------------------------------------------------

/// A run in which things are refused: each refusal must name the argument, leave nothing behind,
/// and let the run go on.
class EngineBadInput : public testing::Test {
 protected:
  /// Submits `bad` as tensor argument 1 of a task named "picky".
  void refused(const TensorArg& bad, const std::string& because) {
    const EngineStats before = engine_.stats();
    int good = 0;
    const strata::Run run = engine_.run([&](Orchestration& o) {
      const std::string message = message_of<InvalidArgument>([&] {
        o.submit([&](TaskContext&) { good = -100; }, in(a_.tensor), bad, named("picky"));
      });
      EXPECT_NE(message.find("'picky'"), std::string::npos) << message;
      EXPECT_NE(message.find("tensor argument 1"), std::string::npos) << message;
      EXPECT_NE(message.find(because), std::string::npos) << message;
      o.submit([&](TaskContext&) { ++good; }, inout(a_.tensor));
    });
    EXPECT_EQ(good, 1);
    EXPECT_EQ(run.stats().tasks, 1U);
    EXPECT_EQ(engine_.stats().heap_used, before.heap_used);
    EXPECT_EQ(engine_.stats().live_buffers, before.live_buffers);
  }

  Engine engine_{caller_lane()};
  Floats a_{engine_, {4, 4}};
};

TEST_F(EngineBadInput, ViewBehindTheBufferIsRefused) {
  refused(in(Tensor(a_.tensor.buffer(), 4, DType::float32, Shape{16})), "68 of a buffer of 64");
  refused(in(Tensor(a_.tensor.buffer(), 64, DType::uint8, Shape{1})), "buffer of 64 bytes");
}

TEST_F(EngineBadInput, ViewBeforeTheBufferIsRefused) {
  refused(in(Tensor(a_.tensor.buffer(), -4, DType::float32, Shape{1})), "reaches bytes -4");
  refused(out(Tensor(a_.tensor.buffer(), 4, DType::float32, Shape{3}, Shape{-1})),
          "reaches bytes -4");
}

TEST_F(EngineBadInput, StridesThatLeaveTheBufferAreRefused) {
  refused(inout(Tensor(a_.tensor.buffer(), 0, DType::float32, Shape{2, 2}, Shape{16, 1})),
          "of a buffer of 64 bytes");
}

TEST_F(EngineBadInput, StridesThatOverflowAreRefused) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 2;
  refused(in(Tensor(a_.tensor.buffer(), 0, DType::float32, Shape{3, 3}, Shape{huge, huge})),
          "overflow");
  refused(in(Tensor(a_.tensor.buffer(), std::numeric_limits<std::int64_t>::max() - 1,
                    DType::float64, Shape{2})),
          "");
}

TEST_F(EngineBadInput, UnknownBufferIsRefused) {
  refused(in(Tensor(BufferId{12345}, 0, DType::float32, Shape{1})), "does not know");
  refused(out(Tensor(BufferId{~std::uint64_t{0}}, 0, DType::float32, Shape{1})), "does not know");
}

TEST_F(EngineBadInput, BufferOfAnotherEngineIsRefused) {
  Engine other(caller_lane());
  std::vector<std::unique_ptr<Floats>> theirs;
  for (int i = 0; i < 3; ++i) {
    theirs.push_back(std::make_unique<Floats>(other, std::initializer_list<std::int64_t>{4}));
  }
  refused(in(theirs.back()->tensor), "does not know");
}

TEST_F(EngineBadInput, RemovedBufferIsRefused) {
  std::vector<float> data(4);
  const Tensor gone = engine_.tensor(data);
  engine_.remove_buffer(gone.buffer());
  refused(in(gone), "removed");
  EXPECT_THROW(engine_.remove_buffer(gone.buffer()), InvalidArgument);
  std::vector<float> more(4);
  EXPECT_NE(engine_.tensor(more).buffer(), gone.buffer());
  refused(in(gone), "removed");
}

TEST_F(EngineBadInput, TensorWithoutStorageIsRefusedUnlessItIsAnOut) {
  Tensor none(DType::float32, {4});
  const Tensor constant(DType::float32, {4});
  refused(in(none), "without storage");
  refused(inout(none), "without storage");
  refused(out(constant), "without storage");
  EXPECT_FALSE(none.has_storage());
}

TEST_F(EngineBadInput, AllocationOfNothingIsRefused) {
  Tensor empty(DType::float32, {4, 0});
  refused(out(empty), "nothing to allocate");
  EXPECT_FALSE(empty.has_storage());
  engine_.run([&](Orchestration& o) {
    EXPECT_THROW((void)o.allocate(DType::float32, {0}), InvalidArgument);
    EXPECT_THROW((void)o.allocate(DType::float32, {-1}), InvalidArgument);
  });
}

TEST_F(EngineBadInput, EarlierAllocationsOfARefusedTaskAreTakenBack) {
  const EngineStats before = engine_.stats();
  engine_.run([&](Orchestration& o) {
    Tensor good(DType::float32, {16});
    const Tensor bad(BufferId{999}, 0, DType::float32, Shape{1});
    EXPECT_THROW(o.submit(nothing, out(good), in(bad)), InvalidArgument);
    EXPECT_FALSE(good.has_storage());
    EXPECT_EQ(engine_.stats().heap_used, before.heap_used);
    EXPECT_EQ(o.run().stats().heap_bytes, 0U);
  });
}

TEST_F(EngineBadInput, UnknownLaneAndKindAreRefused) {
  int good = 0;
  engine_.run([&](Orchestration& o) {
    const std::string lane =
        message_of<InvalidArgument>([&] { o.submit(nothing, on(LaneId{1}), named("lost")); });
    EXPECT_NE(lane.find("'lost'"), std::string::npos) << lane;
    EXPECT_NE(lane.find("lane 1"), std::string::npos) << lane;
    const std::string kind = message_of<InvalidArgument>([&] { o.submit(nothing, on(KindId{9})); });
    EXPECT_NE(kind.find("kind 9"), std::string::npos) << kind;
    o.submit([&](TaskContext&) { ++good; });
  });
  EXPECT_EQ(good, 1);
  EXPECT_THROW((void)engine_.kind("gpu"), InvalidArgument);
  EXPECT_THROW((void)engine_.lanes(KindId{1}), InvalidArgument);
}

TEST_F(EngineBadInput, BadArgumentOfAGroupNamesTheMember) {
  Engine engine(thread_lanes(2));
  std::atomic<int> ran{0};
  engine.run([&](Orchestration& o) {
    const Tensor bad(BufferId{999}, 0, DType::float32, Shape{1});
    const TensorArg args[] = {in(bad)};
    GroupMember members[] = {
        {.lane = LaneId{0}, .body = [&](TaskContext&) { ++ran; }},
        {.lane = LaneId{1}, .body = [&](TaskContext&) { ++ran; }, .tensors = args}};
    const std::string message =
        message_of<InvalidArgument>([&] { o.submit_group({.members = members, .name = "pair"}); });
    EXPECT_NE(message.find("'pair'"), std::string::npos) << message;
    EXPECT_NE(message.find("member 1"), std::string::npos) << message;
    EXPECT_NE(message.find("tensor argument 0"), std::string::npos) << message;
    // The bodies are still there, and the lanes were not taken.
    members[1].tensors = {};
    o.submit_group({.members = members});
  });
  EXPECT_EQ(ran, 2);
}

TEST_F(EngineBadInput, ElementAccessIsCheckedAgainstTheTensor) {
  engine_.run([&](Orchestration& o) {
    EXPECT_THROW((void)o.read<float>(a_.tensor, {0}), InvalidArgument);
    EXPECT_THROW((void)o.read<float>(a_.tensor, {0, 4}), InvalidArgument);
    EXPECT_THROW((void)o.read<float>(a_.tensor, {-1, 0}), InvalidArgument);
    EXPECT_THROW((void)o.read<int>(a_.tensor, {0, 0}), InvalidArgument);
    EXPECT_THROW(o.write<double>(a_.tensor, {0, 0}, 1.0), InvalidArgument);
    EXPECT_THROW((void)o.keep(a_.tensor), InvalidArgument);
    o.write<float>(a_.tensor, {3, 3}, 5);
    EXPECT_EQ(o.read<float>(a_.tensor, {3, 3}), 5);
  });
}

TEST(EngineOptionsChecked, OptionsThatCanNotWorkAreRefused) {
  EXPECT_THROW(Engine({.kinds = {}, .window = 0}), InvalidArgument);
  EXPECT_THROW(Engine({.kinds = {}, .max_open_runs = 0}), InvalidArgument);
  EXPECT_THROW(Engine({.kinds = {{.name = "none"}}}), InvalidArgument);
  EXPECT_THROW(Engine({.kinds = {{.name = "two", .callers = 2}}}), InvalidArgument);
  EXPECT_THROW(Engine({.kinds = {{.name = "x", .threads = 1}, {.name = "x", .threads = 1}}}),
               InvalidArgument);
  EXPECT_THROW(Engine({.kinds = {{.name = "deep", .external = {nullptr}}}}), InvalidArgument);
}

}  // namespace
}  // namespace strata::test
