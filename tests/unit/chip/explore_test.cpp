// Exploring: what is compared with what, and what is told of a difference. Real schedules are in
// tests/integration/check.
#include "chip/explore.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "strata/error.hpp"

namespace strata::chip {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

HostArguments one_tensor() {
  HostTensor tensor{.name = "y", .access = Access::inout, .dtype = DType::float32, .shape = {2, 3}};
  tensor.bytes.resize(24);
  return {.tensors = {tensor}, .scalars = {}};
}
void set(HostArguments& arguments, std::size_t i, float value) {
  std::memcpy(arguments.tensors[0].bytes.data() + 4 * i, &value, 4);
}
float get(const HostArguments& arguments, std::size_t i) {
  float value = 0;
  std::memcpy(&value, arguments.tensors[0].bytes.data() + 4 * i, 4);
  return value;
}

TEST(Explore, RunsTheOrderOfSubmissionAndThenEachSeedOnce) {
  std::vector<std::uint64_t> seeds;
  const ExploreResult result =
      explore(one_tensor(), {.runs = 3, .first_seed = 10},
              [&](HostArguments&, std::uint64_t seed) { seeds.push_back(seed); });
  EXPECT_THAT(seeds, ElementsAre(kSubmissionOrder, 10U, 11U, 12U));
  EXPECT_EQ(result.runs, 3U);
  EXPECT_FALSE(result.difference.has_value());
}

TEST(Explore, EachRunHasFreshArguments) {
  const ExploreResult result =
      explore(one_tensor(), {.runs = 5}, [&](HostArguments& arguments, std::uint64_t) {
        EXPECT_EQ(get(arguments, 0), 0.0F);
        set(arguments, 0, get(arguments, 0) + 1);
      });
  EXPECT_FALSE(result.difference.has_value());
}

TEST(Explore, TellsSeedAndFirstElementOfADifferenceAndStops) {
  const ExploreResult result =
      explore(one_tensor(), {.runs = 100}, [&](HostArguments& arguments, std::uint64_t seed) {
        set(arguments, 4, seed < 7 ? 1.5F : 2.5F);
        set(arguments, 5, seed < 7 ? 0.0F : -0.0F);
      });
  ASSERT_TRUE(result.difference.has_value());
  EXPECT_EQ(result.difference->seed, 7U);
  EXPECT_EQ(result.runs, 7U);
  EXPECT_EQ(result.difference->difference.elements, 2U) << "0 and -0 are not the same bits";
  EXPECT_THAT(result.difference->to_string(),
              HasSubstr("with seed 7 element [1, 1] of tensor 'y' is 2.5, and 1.5 in the order"));
}

TEST(Explore, ARunThatFailsIsADifference) {
  const ExploreResult result =
      explore(one_tensor(), {.runs = 5}, [&](HostArguments&, std::uint64_t seed) {
        if (seed == 2) throw Error("it broke");
      });
  ASSERT_TRUE(result.difference.has_value());
  EXPECT_THAT(result.difference->to_string(), HasSubstr("with seed 2 the run failed"));
  EXPECT_THAT(result.difference->to_string(), HasSubstr("it broke"));
}

TEST(Explore, WhatTheFirstRunThrowsIsThrown) {
  EXPECT_THROW((void)explore(one_tensor(), {.runs = 5},
                             [](HostArguments&, std::uint64_t) { throw InvalidState("no"); }),
               InvalidState);
}

TEST(HostArguments, BlockIsRowMajor) {
  HostArguments arguments = one_tensor();
  arguments.scalars = {7};
  const HostArgumentBlock held(arguments);
  const detail::ArgumentBlock block = held.block();
  ASSERT_EQ(block.tensor_count, 1U);
  const TensorView view(block.tensors[0]);
  EXPECT_THAT(view.shape(), ElementsAre(2, 3));
  EXPECT_THAT(view.strides(), ElementsAre(3, 1));
  EXPECT_EQ(view.data(), arguments.tensors[0].bytes.data());
  EXPECT_EQ(block.scalars[0], 7U);
}

TEST(HostArguments, ValuesAreComparedWithinATolerance) {
  HostArguments a = one_tensor();
  HostArguments b = one_tensor();
  set(a, 0, 100.0F);
  set(b, 0, 100.5F);
  set(a, 3, std::numeric_limits<float>::quiet_NaN());
  set(b, 3, -std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(compare_values(a.tensors[0], b.tensors[0], 0.01).elements, 0U);
  const TensorDifference difference = compare_values(a.tensors[0], b.tensors[0], 0.001);
  EXPECT_EQ(difference.elements, 1U);
  EXPECT_THAT(difference.index, ElementsAre(0, 0));
  EXPECT_EQ(compare_bits(a.tensors[0], b.tensors[0]).elements, 2U);
}

TEST(HostArguments, TensorsOfDifferentTypesCannotBeCompared) {
  HostArguments a = one_tensor();
  HostArguments b = one_tensor();
  b.tensors[0].dtype = DType::int32;
  EXPECT_THROW((void)compare_bits(a.tensors[0], b.tensors[0]), InvalidArgument);
}

}  // namespace
}  // namespace strata::chip
