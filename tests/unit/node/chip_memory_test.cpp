// The accounts of chips' memory: how much, whose, and what is lost. See chip_memory.hpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "node/chip_memory.hpp"
#include "strata/chip_error.hpp"

namespace strata::node {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr LaneId kFirst{3};
constexpr LaneId kSecond{4};

template <class Action>
std::string thrown(ErrorCode code, const Action& action) {
  try {
    action();
  } catch (const ChipError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

class ChipMemoryTest : public testing::Test {
 protected:
  ChipMemoryTest() {
    memory_.set_chips({{.lane = kFirst, .path = "node/chip[0]", .platform = "cpu", .total = 1000},
                       {.lane = kSecond, .path = "node/chip[1]", .platform = "cpu", .total = 50}});
  }

  /// A task with that buffer as its argument 1.
  void check(BufferId buffer, Target target) {
    const std::int64_t shape[] = {1};
    const Tensor none(DType::uint8, shape);
    const Tensor tensor(buffer, 0, DType::uint8, shape);
    const TensorArg arguments[] = {in(none), in(tensor)};
    TaskSpec task{.body = {}, .name = "t", .target = target, .tensors = arguments};
    memory_.check(task);
  }

  ChipMemory memory_;
};

TEST_F(ChipMemoryTest, WhatIsReservedIsUsedUntilItIsGivenBackAndThePeakStays) {
  const auto place = memory_.reserve(kFirst, 600);
  const auto other = memory_.reserve(kFirst, 400);
  EXPECT_EQ(memory_.usage(kFirst).total, 1000U);
  EXPECT_EQ(memory_.usage(kFirst).used, 1000U);
  EXPECT_EQ(memory_.usage(kSecond).used, 0U);
  memory_.give_back(place);
  EXPECT_EQ(memory_.usage(kFirst).used, 400U);
  EXPECT_EQ(memory_.usage(kFirst).peak, 1000U);
  memory_.give_back(other);
  EXPECT_EQ(memory_.usage(kFirst).used, 0U);
}

TEST_F(ChipMemoryTest, WhatDoesNotFitIsRefusedWithTheNumbers) {
  (void)memory_.reserve(kFirst, 999);
  EXPECT_THAT(thrown(ErrorCode::out_of_chip_memory, [&] { (void)memory_.reserve(kFirst, 2); }),
              AllOf(HasSubstr("node/chip[0]"), HasSubstr("room for 2 bytes"), HasSubstr("1000"),
                    HasSubstr("999 are in use by 1 allocation")));
  EXPECT_THAT(
      thrown(ErrorCode::out_of_chip_memory, [&] { (void)memory_.reserve(kSecond, SIZE_MAX); }),
      HasSubstr("node/chip[1]"));
  EXPECT_EQ(memory_.usage(kFirst).used, 999U);
  EXPECT_THROW((void)memory_.reserve(LaneId{0}, 1), InvalidArgument);
  EXPECT_THROW((void)memory_.reserve(kFirst, 0), InvalidArgument);
}

TEST_F(ChipMemoryTest, ItIsLostWithTheProcessAndTheNextOneHasAllOfItsMemory) {
  const auto place = memory_.reserve(kFirst, 1000);
  const auto elsewhere = memory_.reserve(kSecond, 50);
  memory_.process_gone(kFirst, {.path = "node/chip[0]", .cause = "it fell over"});
  EXPECT_TRUE(memory_.lost(place));
  EXPECT_FALSE(memory_.lost(elsewhere));
  EXPECT_THAT(thrown(ErrorCode::lost_memory, [&] { memory_.require(place, "the copy"); }),
              AllOf(HasSubstr("the copy"), HasSubstr("node/chip[0]"), HasSubstr("it fell over")));
  const auto fresh = memory_.reserve(kFirst, 1000);
  memory_.give_back(place);  // Counts for nothing.
  EXPECT_EQ(memory_.usage(kFirst).used, 1000U);
  EXPECT_FALSE(memory_.lost(fresh));
}

TEST_F(ChipMemoryTest, ATaskForAnotherPlaceIsRefusedByName) {
  auto place = memory_.reserve(kFirst, 10);
  memory_.add(BufferId{7}, place);
  EXPECT_NO_THROW(check(BufferId{7}, on(kFirst)));
  EXPECT_NO_THROW(check(BufferId{8}, on(kSecond)));
  EXPECT_THAT(thrown(ErrorCode::foreign_memory, [&] { check(BufferId{7}, on(kSecond)); }),
              AllOf(HasSubstr("task 't', tensor argument 1"), HasSubstr("node/chip[0]"),
                    HasSubstr("another worker")));
  EXPECT_THAT(thrown(ErrorCode::foreign_memory, [&] { check(BufferId{7}, on(KindId{3})); }),
              HasSubstr("any worker of a kind"));
  memory_.process_gone(kFirst, {.cause = "it fell over"});
  EXPECT_THAT(thrown(ErrorCode::lost_memory, [&] { check(BufferId{7}, on(kFirst)); }),
              HasSubstr("it fell over"));
  memory_.remove(BufferId{7});
  EXPECT_NO_THROW(check(BufferId{7}, on(kSecond)));
}

TEST_F(ChipMemoryTest, ABufferIsLocatedForItsOwnChipAlone) {
  std::byte bytes[4];
  auto place = memory_.reserve(kFirst, 4);
  place.data = bytes;
  memory_.add(BufferId{7}, place);
  EXPECT_EQ(memory_.locate(BufferId{7}, kFirst, "x"), bytes);
  EXPECT_EQ(memory_.locate(BufferId{8}, kFirst, "x"), nullptr);
  thrown(ErrorCode::foreign_memory, [&] { (void)memory_.locate(BufferId{7}, kSecond, "x"); });
  memory_.process_gone(kFirst, {});
  thrown(ErrorCode::lost_memory, [&] { (void)memory_.locate(BufferId{7}, kFirst, "x"); });
}

}  // namespace
}  // namespace strata::node
