// What checking mode takes for declared, to the byte, without compiled kernels.
#include "chip/check/check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "chip/check/check_region.hpp"
#include "chip/check/check_task.hpp"
#include "support/random.hpp"

namespace strata::chip {
namespace {

using ::testing::HasSubstr;

/// A tensor argument over some address.
struct Argument {
  Argument(std::byte* data, DType dtype, Access access, const std::vector<std::int64_t>& shape,
           const std::vector<std::int64_t>& strides)
      : dims(shape) {
    dims.insert(dims.end(), strides.begin(), strides.end());
    record = {.data = data,
              .dims = dims.data(),
              .buffer = BufferId{1},
              .byte_offset = 0,
              .dtype = dtype,
              .access = access,
              .tracking = Tracking::full,
              .rank = static_cast<std::uint8_t>(shape.size()),
              .flags = 0};
  }
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;
  std::vector<std::int64_t> dims;
  detail::TensorRecord record;
};

/// The bytes of a tensor, element by element.
std::set<std::uintptr_t> bytes_of(const detail::TensorRecord& record) {
  std::set<std::uintptr_t> bytes;
  std::vector<std::int64_t> index(record.rank, 0);
  for (int i = 0; i < record.rank; ++i) {
    if (record.dims[i] == 0) return bytes;
  }
  for (;;) {
    std::int64_t offset = 0;
    for (int i = 0; i < record.rank; ++i)
      offset += index[i] * record.dims[record.rank + i];
    const std::size_t size = size_of(record.dtype);
    const auto at = reinterpret_cast<std::uintptr_t>(record.data) +
                    static_cast<std::uintptr_t>(offset * static_cast<std::int64_t>(size));
    for (std::size_t b = 0; b < size; ++b)
      bytes.insert(at + b);
    int dim = record.rank - 1;
    while (dim >= 0 && ++index[dim] == record.dims[dim])
      index[dim--] = 0;
    if (dim < 0) return bytes;
  }
}

std::byte* address(std::uintptr_t value) { return reinterpret_cast<std::byte*>(value); }

TEST(CheckedRegion, HoldsTheBytesOfItsElementsAndNoOthers) {
  test::Random random(20);
  for (int round = 0; round < 400; ++round) {
    std::vector<std::int64_t> shape, strides;
    const int rank = static_cast<int>(random.below(5));
    for (int i = 0; i < rank; ++i) {
      shape.push_back(static_cast<std::int64_t>(random.below(5)));
      strides.push_back(static_cast<std::int64_t>(random.below(40)) - 12);
    }
    const Argument argument(address(100'000), random.below(2) == 0 ? DType::float32 : DType::int8,
                            Access::out, shape, strides);
    const CheckedRegion region(argument.record);
    const auto bytes = bytes_of(argument.record);
    std::set<std::uint64_t> indices;
    for (std::uintptr_t at = 97'000; at < 103'000; ++at) {
      const auto run = region.run_at(at);
      ASSERT_EQ(run.has_value(), bytes.count(at) == 1) << region.to_string() << " at " << at;
      if (!run) continue;
      ASSERT_TRUE(at >= run->begin && at < run->end);
      ASSERT_EQ(bytes.count(run->begin) + bytes.count(run->end - 1), 2U);
      const std::uint64_t index = run->index + (at - run->begin);
      ASSERT_LT(index, region.countable());
      ASSERT_TRUE(indices.insert(index).second) << "two bytes have one place";
    }
  }
}

TEST(CheckedRegion, SaysWhereAnAddressIs) {
  // Columns 2 to 5 of a matrix of 8 columns.
  const Argument tile(address(1000), DType::float32, Access::in, {4, 4}, {8, 1});
  const CheckedRegion region(tile.record);
  EXPECT_EQ(region.where(1000 + 3 * 32 + 16 - 128 + 12 + 32, "tensor 1"),
            "12 bytes behind the end of row 0 of tensor 1 'float32[4, 4]' (in), in the gap between "
            "rows");
  EXPECT_THAT(region.where(1000 + 32 + 16, "x"), HasSubstr("right behind the end of row 1 of"));
  EXPECT_THAT(region.where(1000 + 32 + 6, "x"), HasSubstr("in element [1, 1] of"));
  EXPECT_THAT(region.where(996, "x"), HasSubstr("4 bytes before the begin of"));
  EXPECT_THAT(region.where(1000 + 3 * 32 + 17, "x"), HasSubstr("1 byte behind the end of x"));
  const Argument column(address(1000), DType::float32, Access::out, {4, 1}, {8, 1});
  EXPECT_THAT(CheckedRegion(column.record).where(1006, "x"),
              HasSubstr("2 bytes behind the end of element [0, 0] of x 'float32[4, 1]' (out), in "
                        "the gap before the next"));
  const Argument reversed(address(1028), DType::float32, Access::in, {8}, {-1});
  EXPECT_THAT(CheckedRegion(reversed.record).where(1001, "x"), HasSubstr("in element [7] of"));
}

TEST(CheckedRegion, MeasuresDistanceFromItsBytes) {
  const Argument tile(address(1000), DType::float32, Access::in, {4, 4}, {8, 1});
  const CheckedRegion region(tile.record);
  EXPECT_EQ(region.distance(990), 10U);
  EXPECT_EQ(region.distance(1000 + 16 + 5), 6U);
  EXPECT_EQ(region.distance(1000 + 96 + 16), 1U);
  EXPECT_EQ(region.distance(1001), 0U);
}

TEST(WrittenBytes, KnowsEachByte) {
  test::Random random(7);
  constexpr std::uint64_t kBytes = 1000;
  WrittenBytes written(kBytes);
  std::vector<bool> expected(kBytes);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t first = random.below(kBytes);
    const std::uint64_t count = random.below(std::min<std::uint64_t>(kBytes - first, 90) + 1);
    written.add(first, count);
    for (std::uint64_t i = first; i < first + count; ++i)
      expected[i] = true;
    const std::uint64_t from = random.below(kBytes);
    std::uint64_t until = from;
    while (until < kBytes && expected[until])
      ++until;
    ASSERT_EQ(written.written(from, kBytes - from), until - from);
  }
}

/// A checked task with its arguments, and accesses as its kernel.
class CheckedTaskTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kFloats = 64;
  std::vector<float> memory = std::vector<float>(kFloats);

  [[nodiscard]] std::byte* at(std::size_t i) {
    return reinterpret_cast<std::byte*>(memory.data() + i);
  }
  CheckedTask make(const std::vector<const Argument*>& arguments, std::uint32_t initial = 0) {
    for (const Argument* argument : arguments)
      records.push_back(argument->record);
    const detail::ArgumentBlock block{.tensors = records.data(),
                                      .tensor_count = static_cast<std::uint32_t>(records.size())};
    const TaskContext context(
        block, {.task = TaskId{1U << 22}, .name = "task", .lane = {}},
        [](const void*) { return false; }, nullptr);
    return CheckedTask(
        context, Launch(set, {KernelId::kNone, 0, KernelId::kNone}).with_initial_values(initial),
        block);
  }
  std::uint64_t may(CheckedTask& task, CheckedAccess access, std::size_t i,
                    std::uint64_t bytes = 4) {
    const CheckedRegion* hit = nullptr;
    return task.declared(access, reinterpret_cast<std::uintptr_t>(at(i)), bytes, &hit);
  }
  std::vector<detail::TensorRecord> records;
  KernelSet set{"program", {{"kernel", CoreType::aiv, nullptr}}};
};

TEST_F(CheckedTaskTest, OutMayBeReadOnlyWhereTheTaskHasWritten) {
  const Argument out(at(0), DType::float32, Access::out, {4, 4}, {8, 1});
  CheckedTask task = make({&out});
  EXPECT_EQ(may(task, CheckedAccess::load, 8), 0U);
  EXPECT_EQ(may(task, CheckedAccess::store, 8), 4U);
  EXPECT_EQ(may(task, CheckedAccess::load, 8, 16), 4U) << "the bytes behind it are not written";
  EXPECT_EQ(may(task, CheckedAccess::load, 9), 0U);
}

TEST_F(CheckedTaskTest, OutWithAnInitialValueMayBeRead) {
  const Argument out(at(0), DType::float32, Access::out, {8}, {1});
  CheckedTask task = make({&out}, 1);
  EXPECT_EQ(may(task, CheckedAccess::load, 3), 4U);
}

TEST_F(CheckedTaskTest, GapsBetweenRowsAreNotDeclared) {
  const Argument tile(at(0), DType::float32, Access::inout, {4, 4}, {8, 1});
  CheckedTask task = make({&tile});
  EXPECT_EQ(may(task, CheckedAccess::store, 3, 8), 4U) << "half of it lies in the gap";
  EXPECT_EQ(may(task, CheckedAccess::store, 4), 0U);
  EXPECT_EQ(may(task, CheckedAccess::load, 7), 0U);
  EXPECT_EQ(may(task, CheckedAccess::load, 8), 4U);
}

TEST_F(CheckedTaskTest, InputsMayNotBeWritten) {
  const Argument in(at(0), DType::float32, Access::in, {8}, {1});
  CheckedTask task = make({&in});
  EXPECT_EQ(may(task, CheckedAccess::store, 0), 0U);
  EXPECT_EQ(may(task, CheckedAccess::load, 0, 100), 32U);
}

TEST_F(CheckedTaskTest, WhatOneOfTwoOverlappingArgumentsAllowsIsAllowed) {
  const Argument in(at(0), DType::float32, Access::in, {8}, {1});
  const Argument out(at(4), DType::float32, Access::out, {8}, {1});
  CheckedTask task = make({&in, &out});
  EXPECT_EQ(may(task, CheckedAccess::load, 5), 1U) << "one byte at a time";
  EXPECT_EQ(may(task, CheckedAccess::store, 5), 1U);
  EXPECT_EQ(may(task, CheckedAccess::store, 1), 0U);
  EXPECT_EQ(may(task, CheckedAccess::load, 9), 0U);
}

TEST(Poison, IsNotANumberAndCanBeTold) {
  float one = 0;
  std::memcpy(&one, poison_of(DType::float32), sizeof one);
  EXPECT_TRUE(std::isnan(one));
  double two = 0;
  std::memcpy(&two, poison_of(DType::float64), sizeof two);
  EXPECT_TRUE(std::isnan(two));
  const std::vector<float> values = {1.0F, one, std::nanf(""), one};
  EXPECT_EQ(count_poison(values.data(), DType::float32, values.size()), 2U);
}

TEST(CheckSession, RefusesAProgramThatWasNotBuiltForIt) {
  ChipProgramInfo program;
  program.name = "plain";
  try {
    const CheckSession session(program);
    FAIL() << "it was taken";
  } catch (const ChipError& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_configuration);
  }
}

}  // namespace
}  // namespace strata::chip
