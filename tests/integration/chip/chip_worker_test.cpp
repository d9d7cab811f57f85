// ChipWorker: one chip without a node.

#include "support/chip_test.hpp"

namespace strata::test {
namespace {

class ChipWorkers : public ChipTest {};

TEST_F(ChipWorkers, OneChipRunsProgramsInAProcessOfItsOwn) {
  ChipWorker chip("a2a3sim:clusters=3");
  const CallableId ways = chip.add(ways_file());
  chip.init();
  Buffer memory = chip.create_buffer(64);
  const Tensor x = memory.tensor(DType::int64, {8});
  EXPECT_EQ(chip.run(ways, inout(x), scalar(Way::add), scalar(std::int64_t{5})), std::nullopt);
  chip.run(ways, inout(x), scalar(Way::increment), scalar(std::int64_t{0}));
  EXPECT_EQ(memory.as<std::int64_t>()[7], 6);
  ASSERT_EQ(chip.worker().processes().size(), 1U);
  EXPECT_EQ(chip.worker().processes()[0].path, "chip/chip[0]");
  EXPECT_NE(chip.worker().processes()[0].pid, ::getpid());
  chip.close();
}

TEST_F(ChipWorkers, ItsMemoryIsTheChips) {
  ChipWorker chip("a2a3sim:clusters=1,memory=64K");
  const CallableId ways = chip.add(ways_file());
  chip.init();
  ChipBuffer memory = chip.allocate(64);
  EXPECT_EQ(chip.memory().used, 64U);
  EXPECT_EQ(chip.memory().total, 64U << 10);
  chip.run(ways, inout(memory.tensor(DType::int64, {8})), scalar(Way::add),
           scalar(std::int64_t{5}));
  std::array<std::int64_t, 8> values{};
  memory.copy_to_host(std::span<std::int64_t>(values));
  EXPECT_EQ(values[7], 5);
}

TEST_F(ChipWorkers, WhatFailsIsThrownAsItIs) {
  ChipWorker chip("a2a3sim:clusters=1");
  const CallableId ways = chip.add(ways_file());
  chip.init();
  std::vector<Buffer> memory;  // A new one for each: a failed task leaves its invalid.
  const auto x = [&] {
    memory.push_back(chip.create_buffer(64));
    return memory.back().tensor(DType::int64, {8});
  };
  const auto remote = thrown_by<RemoteError>(
      [&] { chip.run(ways, inout(x()), scalar(Way::throws), scalar(std::int64_t{0})); });
  ASSERT_TRUE(remote);
  EXPECT_EQ(remote->code(), ErrorCode::kernel_threw);
  const auto died = thrown_by<WorkerDied>(
      [&] { chip.run(ways, inout(x()), scalar(Way::crash_segv), scalar(std::int64_t{0})); });
  ASSERT_TRUE(died);
  EXPECT_EQ(died->code(), ErrorCode::kernel_crashed);
  const auto late = thrown_by<RemoteError>([&] {
    chip.run(Call(ways).within(100ms), inout(x()), scalar(Way::wait_for_flag),
             scalar(std::int64_t{0}));
  });
  ASSERT_TRUE(late);
  EXPECT_EQ(late->code(), ErrorCode::deadline_exceeded);
  const auto refused = thrown_by<ChipError>([&] { chip.run(ways, in(x())); });
  ASSERT_TRUE(refused);
  chip.remove(ways);
  const auto removed = thrown_by<ChipError>(
      [&] { chip.run(ways, inout(x()), scalar(Way::nothing), scalar(std::int64_t{0})); });
  ASSERT_TRUE(removed);
  EXPECT_EQ(removed->code(), ErrorCode::removed_program);
}

TEST_F(ChipWorkers, OptionsOfRunsHoldAsInANode) {
  ChipWorker chip("a2a3sim:clusters=1", {.keep_graph = true});
  const CallableId ways = chip.add(ways_file());
  chip.init();
  Buffer memory = chip.create_buffer(64);
  const auto value = chip.run(ways, inout(memory.tensor(DType::int64, {8})), scalar(Way::increment),
                              scalar(std::int64_t{0}));
  ASSERT_TRUE(value);
  EXPECT_THAT(*value, HasSubstr("digraph"));
  EXPECT_THROW(ChipWorker("abacus"), ChipError);
}

}  // namespace
}  // namespace strata::test
