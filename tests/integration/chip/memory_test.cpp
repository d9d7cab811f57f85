// Memory of chips: copies in turn with tasks, accounts, what is lost with a process.

#include <numeric>
#include <vector>

#include "support/chip_test.hpp"

namespace strata::test {
namespace {

using testing::AllOf;

class ChipMemoryUse : public ChipTest {
 protected:
  void SetUp() override {
    ChipTest::SetUp();
    WorkerOptions options;
    options.chips = {{.platform = "a2a3sim:clusters=2,memory=1M"},
                     {.platform = "a2a3sim:clusters=1"}};
    options.subs = {{.count = 1}};
    start(std::move(options));
  }
  void add(const Tensor& tensor, std::int64_t value, Orchestration& run) {
    run.submit(Call(ways_), inout(tensor), scalar(Way::add), scalar(value), on(worker_->chip(0)));
  }
  static std::vector<std::int64_t> numbers(std::size_t count) {
    std::vector<std::int64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
};

TEST_F(ChipMemoryUse, WhatIsCopiedThereIsComputedOnAndComesBack) {
  ChipBuffer memory = worker_->allocate_on(worker_->chip(0), 100 * 8);
  EXPECT_EQ(memory.chip(), worker_->chip(0));
  std::vector<std::int64_t> values(100, -1);
  memory.copy_to_host(std::span(values));
  EXPECT_EQ(values, std::vector<std::int64_t>(100, 0)) << "fresh memory is zero";
  values = numbers(100);
  memory.copy_from_host(std::span(values));  // Of a vector that is not const.
  // It stays from run to run.
  for (int i = 0; i < 3; ++i)
    worker_->run([&](Orchestration& run) { add(memory.tensor(DType::int64, {100}), 10, run); });
  std::vector<std::int64_t> back(100);
  memory.copy_to_host(std::span(back));
  for (std::int64_t i = 0; i < 100; ++i)
    EXPECT_EQ(back[static_cast<std::size_t>(i)], i + 30);
}

TEST_F(ChipMemoryUse, PartsAreCopiedAndTheRestStays) {
  ChipBuffer memory = worker_->allocate_on(worker_->chip(0), 10 * 8);
  const std::vector<std::int64_t> values = numbers(10);
  memory.copy_from_host(std::span<const std::int64_t>(values));
  const std::array<std::int64_t, 2> two{77, 78};
  memory.copy_from_host(std::span(two), 3 * 8);  // Of a length that is known.
  std::array<std::int64_t, 4> back{};
  memory.copy_to_host(std::span(back), 2 * 8);
  EXPECT_EQ(back, (std::array<std::int64_t, 4>{2, 77, 78, 5}));
  EXPECT_THROW(memory.copy_from_host(std::span<const std::int64_t>(values), 8), InvalidArgument);
  EXPECT_THROW(memory.copy_to_host(std::span<std::int64_t>(back), 80), InvalidArgument);
  EXPECT_THROW((void)memory.tensor(DType::int64, {11}), InvalidArgument);
  EXPECT_NO_THROW(memory.copy_to_host(std::span<std::int64_t>(), 80));
}

TEST_F(ChipMemoryUse, CopiesWaitForTheTasksThatUseThoseBytes) {
  ChipBuffer memory = worker_->allocate_on(worker_->chip(0), 16 * 8);
  const Run held = worker_->submit([&](Orchestration& run) {
    run.submit(Call(ways_), inout(x()), scalar(Way::hold), scalar(std::int64_t{0}),
               on(worker_->chip(0)));
    for (int i = 0; i < 20; ++i)
      add(memory.tensor(DType::int64, {8}), 1, run);
  });
  ASSERT_TRUE(within(bound(20s), [&] { return held.stats().tasks == 21; }));
  // Bytes that no task uses are there at once, though the chip is busy.
  std::array<std::int64_t, 8> others{};
  memory.copy_to_host(std::span<std::int64_t>(others), 64);
  EXPECT_FALSE(held.done());
  set(1, 1);
  std::array<std::int64_t, 8> used{};
  memory.copy_to_host(std::span<std::int64_t>(used));
  EXPECT_EQ(used[0], 20);
  EXPECT_EQ(used[7], 20);
  EXPECT_NO_THROW(held.result());
}

TEST_F(ChipMemoryUse, WhatAFailedTaskShouldHaveWrittenIsNotReadUntilItIsOverwritten) {
  ChipBuffer memory = worker_->allocate_on(worker_->chip(0), 8 * 8);
  const Run failed = worker_->submit([&](Orchestration& run) {
    run.submit(Call(ways_), inout(memory.tensor(DType::int64, {8})), scalar(Way::throws),
               scalar(std::int64_t{0}), on(worker_->chip(0)));
  });
  EXPECT_THROW(failed.result(), RunFailed);
  std::array<std::int64_t, 8> values{};
  EXPECT_THROW(memory.copy_to_host(std::span<std::int64_t>(values)), RunFailed);
  memory.copy_from_host(std::span<const std::int64_t>(values));
  EXPECT_NO_THROW(memory.copy_to_host(std::span<std::int64_t>(values)));
}

TEST_F(ChipMemoryUse, WhatIsUsedIsCountedAndWhatDoesNotFitIsRefusedWithNumbers) {
  const LaneId chip = worker_->chip(0);
  EXPECT_EQ(worker_->chip_memory(chip).total, std::size_t{1} << 20);
  EXPECT_EQ(worker_->chip_memory(chip).used, 0U);
  ChipBuffer most = worker_->allocate_on(chip, 1'000'000);
  EXPECT_EQ(worker_->chip_memory(chip).used, 1'000'000U);
  const auto refused = thrown_by<ChipError>([&] { (void)worker_->allocate_on(chip, 100'000); });
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), ErrorCode::out_of_chip_memory);
  EXPECT_THAT(refused->what(),
              AllOf(HasSubstr("node/chip[0]"), HasSubstr("100000"), HasSubstr("1000000")));
  most.release();
  EXPECT_TRUE(within(bound(20s), [&] { return worker_->chip_memory(chip).used == 0; }));
  EXPECT_EQ(worker_->chip_memory(chip).peak, 1'000'000U);
  EXPECT_NO_THROW((void)worker_->allocate_on(chip, 100'000));
  EXPECT_THROW((void)worker_->allocate_on(worker_->sub(0), 8), InvalidArgument);
  EXPECT_THROW((void)worker_->chip_memory(worker_->sub(0)), InvalidArgument);
}

TEST_F(ChipMemoryUse, ReleasedMemoryStaysUntilItsLastTaskHasEnded) {
  ChipBuffer memory = worker_->allocate_on(worker_->chip(0), 16 * 8);
  ChipBuffer second = worker_->allocate_on(worker_->chip(0), 8);
  const Run held = worker_->submit([&](Orchestration& run) {
    run.submit(Call(ways_), inout(x()), scalar(Way::hold), scalar(std::int64_t{0}),
               on(worker_->chip(0)));
    add(memory.tensor(DType::int64, {16}), 1, run);
  });
  ASSERT_TRUE(within(bound(20s), [&] { return held.stats().tasks == 2; }));
  const Tensor tensor = memory.tensor(DType::int64, {16});
  memory.release();
  EXPECT_EQ(worker_->chip_memory(worker_->chip(0)).used, 16U * 8 + 8);
  EXPECT_TRUE(refusal_of<InvalidArgument>(*worker_, Call(ways_), inout(tensor),
                                          scalar(Way::nothing), scalar(std::int64_t{0}),
                                          on(worker_->chip(0))));
  set(1, 1);
  EXPECT_NO_THROW(held.result());
  EXPECT_TRUE(within(bound(20s), [&] { return worker_->chip_memory(worker_->chip(0)).used == 8; }));
}

TEST_F(ChipMemoryUse, OnlyTasksForThatVeryChipCanUseIt) {
  const ChipBuffer memory = worker_->allocate_on(worker_->chip(0), 64);
  const Tensor tensor = memory.tensor(DType::int64, {8});
  const CallableId function = worker_->add(task_in_library("increment"));
  for (const Target target : {on(worker_->chip(1)), on(worker_->any_chip())}) {
    const auto refused =
        refusal_of<ChipError>(*worker_, Call(ways_), inout(tensor), scalar(Way::nothing),
                              scalar(std::int64_t{0}), target);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code(), ErrorCode::foreign_memory);
    EXPECT_THAT(refused->what(), HasSubstr("node/chip[0]"));
  }
  for (const Target target : {on(worker_->sub(0)), on(worker_->any_sub())}) {
    const auto refused = refusal_of<ChipError>(*worker_, Call(function), inout(tensor), target);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code(), ErrorCode::foreign_memory);
  }
  // The host can't reach it by itself.
  worker_->run([&](Orchestration& run) {
    EXPECT_THROW((void)run.read<std::int64_t>(tensor, {0}), InvalidArgument);
  });
  // A view of it is the same memory.
  const Tensor part = tensor.slice(0, 2, 4);
  const auto refused =
      refusal_of<ChipError>(*worker_, Call(function), inout(part), on(worker_->chip(1)));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), ErrorCode::foreign_memory);
  // A function beside that chip may.
  EXPECT_NO_THROW(worker_->run([&](Orchestration& run) {
    run.submit(Call(function), inout(tensor), on(worker_->chip(0)));
  }));
}

TEST_F(ChipMemoryUse, ItIsLostWithTheChipsProcessAndTheNextUseSaysWhy) {
  ChipBuffer memory = worker_->allocate_on(worker_->chip(0), 64);
  const ChipBuffer elsewhere = worker_->allocate_on(worker_->chip(1), 64);
  const Tensor tensor = memory.tensor(DType::int64, {8});
  ASSERT_TRUE(run(Way::crash_segv));
  EXPECT_TRUE(memory.lost());
  EXPECT_FALSE(elsewhere.lost());
  const auto refused =
      refusal_of<ChipError>(*worker_, Call(ways_), inout(tensor), scalar(Way::nothing),
                            scalar(std::int64_t{0}), on(worker_->chip(0)), named("too late"));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), ErrorCode::lost_memory);
  EXPECT_THAT(refused->what(),
              AllOf(HasSubstr("'too late'"), HasSubstr("node/chip[0]"), HasSubstr("signal 11")));
  std::array<std::int64_t, 8> values{};
  for (const auto& copy :
       {std::function<void()>(
            [&] { memory.copy_from_host(std::span<const std::int64_t>(values)); }),
        std::function<void()>([&] { memory.copy_to_host(std::span<std::int64_t>(values)); })}) {
    const auto lost = thrown_by<ChipError>(copy);
    ASSERT_TRUE(lost);
    EXPECT_EQ(lost->code(), ErrorCode::lost_memory);
  }
  EXPECT_EQ(worker_->chip_memory(worker_->chip(0)).used, 0U);
  memory.release();
  const ChipBuffer fresh = worker_->allocate_on(worker_->chip(0), std::size_t{1} << 20);
  EXPECT_FALSE(fresh.lost());
}

TEST_F(ChipMemoryUse, ItIsLostWhenTheWorkerIsClosed) {
  const ChipBuffer memory = worker_->allocate_on(worker_->chip(0), 64);
  worker_->close();
  EXPECT_TRUE(memory.lost());
  EXPECT_THROW((void)worker_->allocate_on(worker_->chip(0), 64), InvalidState);
  worker_->init();
  EXPECT_TRUE(memory.lost());
  EXPECT_FALSE(worker_->allocate_on(worker_->chip(0), 64).lost());
}

TEST_F(ChipMemoryUse, ABufferMayOutliveItsWorker) {
  ChipBuffer memory = worker_->allocate_on(worker_->chip(0), 64);
  x_ = {};
  worker_.reset();
  EXPECT_TRUE(memory.lost());
  std::array<std::int64_t, 8> values{};
  EXPECT_THROW(memory.copy_to_host(std::span<std::int64_t>(values)), InvalidState);
  memory.release();
}

}  // namespace
}  // namespace strata::test
