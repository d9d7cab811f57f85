// Buffers: any size, any number, before and after start, released whenever.

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "support/node_test.hpp"
#include "support/random.hpp"

namespace strata::test {
namespace {

class NodeBuffers : public NodeTest {};

TEST_F(NodeBuffers, AreZeroedAndOfAnySize) {
  Worker worker({.subs = {{.count = 1}}});
  Buffer before = worker.create_buffer(100);
  worker.init();
  const CallableId increment = worker.add(task_in_library("increment"));
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}, std::size_t{4104},
                                  std::size_t{1} << 20, std::size_t{70} << 20}) {
    Buffer x = worker.create_buffer(bytes);
    ASSERT_EQ(x.bytes(), bytes);
    const auto all = x.as<std::int64_t>();
    ASSERT_TRUE(std::all_of(all.begin(), all.end(), [](auto v) { return v == 0; })) << bytes;
    worker.run([&](Orchestration& o) {
      o.submit(Call(increment),
               inout(x.tensor(DType::int64, {static_cast<std::int64_t>(bytes / 8)})),
               on(worker.any_sub()));
    });
    ASSERT_TRUE(std::all_of(all.begin(), all.end(), [](auto v) { return v == 1; })) << bytes;
  }
  worker.run([&](Orchestration& o) {
    o.submit(Call(increment), inout(before.tensor(DType::int64, {12})), on(worker.any_sub()));
  });
  EXPECT_EQ(before.as<std::int64_t>()[11], 1);
}

TEST_F(NodeBuffers, ATensorWithoutElementsHoldsUpNoTask) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  const CallableId increment = worker.add(task_in_library("increment"));
  const Buffer buffer = worker.create_buffer(64);
  worker.run([&](Orchestration& run) {
    run.submit(Call(increment), inout(buffer.tensor(DType::int64, {0})), on(worker.any_sub()));
  });
}

TEST_F(NodeBuffers, ATensorThatDoesNotFitIsRefused) {
  Worker worker({.subs = {{.count = 1}}});
  Buffer x = worker.create_buffer(64);
  (void)x.tensor(DType::int64, {8});
  thrown_by<InvalidArgument>([&] { (void)x.tensor(DType::int64, {9}); });
  thrown_by<InvalidArgument>([&] { (void)x.tensor(DType::int64, {8}, 8); });
}

// "10,000 live ones with RLIMIT_NOFILE=256"
TEST_F(NodeBuffers, TenThousandLiveOnesWorkWith256Descriptors) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 256;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    Worker worker({.chips = {{}}, .subs = {{.count = 1}}});
    worker.init();
    const CallableId increment = worker.add(task_in_library("increment"));
    constexpr std::size_t kBuffers = 10'000;
    std::vector<Buffer> buffers;
    for (std::size_t i = 0; i < kBuffers; ++i)
      buffers.push_back(worker.create_buffer(8 + 8 * (i % 100)));
    worker.run([&](Orchestration& o) {
      for (std::size_t i = 0; i < kBuffers; ++i)
        o.submit(Call(increment), inout(buffers[i].tensor(DType::int64, {1})),
                 i % 2 == 0 ? on(worker.any_sub()) : on(worker.any_chip()));
    });
    for (std::size_t i = 0; i < kBuffers; ++i)
      ASSERT_EQ(buffers[i].as<std::int64_t>()[0], 1) << i;
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(NodeBuffers, ReleasedWhileATaskUsesItItLivesUntilThatEnds) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  const TaskFlag flag(worker);
  const CallableId nap = worker.add(task_in_library("nap"));
  const CallableId increment = worker.add(task_in_library("increment"));
  for (int round = 0; round < 20; ++round) {
    Buffer x = worker.create_buffer(std::size_t{1} << 20);
    const Tensor t = x.tensor(DType::int64, {std::int64_t{1} << 17});
    const Run run = worker.submit([&](Orchestration& o) {
      o.submit(Call(nap), in(t), scalar(std::int64_t{2}), on(worker.any_sub()));
      for (int i = 0; i < 5; ++i)
        o.submit(Call(increment), inout(t), on(worker.any_sub()));
    });
    // The run's submits may come before or after this: each is either run or refused.
    x.release();
    EXPECT_EQ(x.data(), nullptr);
    try {
      run.result();
    } catch (const InvalidArgument&) {
    }
  }
}

TEST_F(NodeBuffers, AReleasedOneIsRefusedInNewTasks) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  const CallableId increment = worker.add(task_in_library("increment"));
  Buffer x = worker.create_buffer(64);
  const Tensor t = x.tensor(DType::int64, {8});
  x.release();
  x.release();
  const Run run = worker.submit(
      [&](Orchestration& o) { o.submit(Call(increment), inout(t), on(worker.any_sub())); });
  thrown_by<InvalidArgument>([&] { run.result(); });
}

TEST_F(NodeBuffers, MemoryThatIsGivenBackIsZeroAgainForTheNext) {
  Worker worker({.subs = {{.count = 2}}});
  worker.init();
  const CallableId increment = worker.add(task_in_library("increment"));
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    const std::size_t bytes = 8 * (1 + random.below(20'000));
    Buffer x = worker.create_buffer(bytes);
    const auto all = x.as<std::int64_t>();
    ASSERT_TRUE(std::all_of(all.begin(), all.end(), [](auto v) { return v == 0; })) << round;
    worker.run([&](Orchestration& o) {
      o.submit(Call(increment),
               inout(x.tensor(DType::int64, {static_cast<std::int64_t>(bytes / 8)})),
               on(worker.any_sub()));
    });
    ASSERT_TRUE(std::all_of(all.begin(), all.end(), [](auto v) { return v == 1; })) << round;
  }
}

/// Shared memory that this process has mapped and that is there, in bytes.
std::size_t resident_shared() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::size_t kib = 0;
    if (word == "RssShmem:" && status >> kib) return kib << 10;
  }
  return 0;
}

TEST_F(NodeBuffers, WhatIsReleasedIsGivenBackToTheSystem) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  const CallableId fill = worker.add(task_in_library("fill"));
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  const std::size_t before = resident_shared();
  for (int round = 0; round < 8; ++round) {
    Buffer x = worker.create_buffer(kBytes);
    worker.run([&](Orchestration& o) {
      o.submit(Call(fill), out(x.tensor(DType::float32, {1024})), scalar(1.0F),
               on(worker.any_sub()));
    });
    ASSERT_EQ(x.as<float>()[1023], 1.0F);
  }
  EXPECT_TRUE(within(1s, [&] { return resident_shared() < before + kBytes / 4; }))
      << before << " bytes before, now " << resident_shared();
}

TEST_F(NodeBuffers, OneThatOutlivesItsWorkerIsHarmless) {
  Buffer x;
  {
    Worker worker({.subs = {{.count = 1}}});
    worker.init();
    x = worker.create_buffer(4096);
  }
  EXPECT_NE(x.data(), nullptr);
  x.as<std::int64_t>()[0] = 1;
  x.release();
}

}  // namespace
}  // namespace strata::test
