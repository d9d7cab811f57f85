#include "strata/tensor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "strata/error.hpp"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr BufferId kBuffer{3};
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Tensor matrix() { return {kBuffer, 64, DType::float32, std::array<std::int64_t, 2>{6, 8}}; }

/// The message of the InvalidArgument that `call` throws.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Tensor, RowMajorStridesAreMadeFromTheShape) {
  const Tensor a(kBuffer, 0, DType::int16, std::array<std::int64_t, 3>{2, 3, 4});
  EXPECT_THAT(a.strides(), ElementsAre(12, 4, 1));
  EXPECT_EQ(a.elements(), 24);
  EXPECT_EQ(a.bytes(), 48);
  EXPECT_TRUE(a.contiguous());
  EXPECT_TRUE(a.has_storage());
  EXPECT_FALSE(Tensor(DType::int8, {3}).has_storage());
}

TEST(Tensor, ARankOfZeroIsOneElement) {
  const Tensor scalar(kBuffer, 8, DType::float64, std::span<const std::int64_t>{});
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.elements(), 1);
  EXPECT_EQ(scalar.bytes(), 8);
  EXPECT_TRUE(scalar.contiguous());
}

TEST(Tensor, ZeroExtentsAreLegalAndHaveNoElements) {
  const Tensor none(DType::float32, {4, 0, 5});
  EXPECT_EQ(none.elements(), 0);
  EXPECT_TRUE(none.contiguous());
  EXPECT_EQ(matrix().slice(0, 6, 6).elements(), 0);
  EXPECT_EQ(matrix().tile({6, 8}, {0, 0}).elements(), 0);
  EXPECT_EQ(matrix().slice(0, 9, 9).elements(), 0);
  EXPECT_THAT(matrix().tile({100, -7}, {2, 0}).shape(), ElementsAre(2, 0));
}

TEST(Tensor, NegativeExtentsAreRefusedByDimensionAndNumber) {
  EXPECT_THAT(refusal([] {
                Tensor(DType::int8, {4, -7});
              }),
              AllOf(HasSubstr("dimension 1"), HasSubstr("-7")));
}

TEST(Tensor, OverflowingSizesAreRefusedByDimension) {
  EXPECT_THAT(refusal([] {
                Tensor(DType::int8, {1 << 30, 1 << 30, 1 << 30});
              }),
              AllOf(HasSubstr("dimension 2"), HasSubstr("overflow")));
  EXPECT_THAT(refusal([] { Tensor(DType::int64, {kMost / 8 + 1}); }), HasSubstr("dimension 0"));
  EXPECT_EQ(Tensor(DType::int64, {kMost / 8}).bytes(), kMost / 8 * 8);
  // Not hidden by a zero extent or by strides of zero.
  EXPECT_THAT(refusal([] { Tensor(DType::int8, {0, kMost, 2}); }), HasSubstr("overflow"));
  EXPECT_THAT(refusal([] {
                Tensor(kBuffer, 0, DType::int8, std::array<std::int64_t, 2>{kMost, 2},
                       std::array<std::int64_t, 2>{0, 0});
              }),
              HasSubstr("overflow"));
}

TEST(Tensor, MoreThanEightDimensionsAreRefused) {
  EXPECT_EQ(Tensor(DType::int8, {1, 1, 1, 1, 1, 1, 1, 1}).rank(), 8);
  EXPECT_THAT(refusal([] {
                Tensor(DType::int8, {1, 1, 1, 1, 1, 1, 1, 1, 1});
              }),
              AllOf(HasSubstr("9 dimensions"), HasSubstr("at most 8")));
}

TEST(Tensor, ShapeAndStridesOfDifferentRankAreRefused) {
  EXPECT_THAT(refusal([] {
                Tensor(kBuffer, 0, DType::int8, std::array<std::int64_t, 2>{2, 2},
                       std::array<std::int64_t, 1>{1});
              }),
              HasSubstr("2 dimensions"));
}

TEST(Tensor, SliceTakesEveryStepOfItsRange) {
  const Tensor odd = matrix().slice(1, 1, 8, 3);
  EXPECT_THAT(odd.shape(), ElementsAre(6, 3));
  EXPECT_THAT(odd.strides(), ElementsAre(8, 3));
  EXPECT_EQ(odd.byte_offset(), 64 + 4);
  EXPECT_FALSE(odd.contiguous());
  EXPECT_TRUE(matrix().slice(0, 2, 4).contiguous());
  EXPECT_THAT(matrix().slice(1, 2, 8, kMost).shape(), ElementsAre(6, 1));
}

TEST(Tensor, SlicesOutsideAreRefusedByDimensionAndNumber) {
  EXPECT_THAT(refusal([] { (void)matrix().slice(1, 2, 9); }),
              AllOf(HasSubstr("dimension 1"), HasSubstr("[2, 9)"), HasSubstr("[0, 8)")));
  EXPECT_THAT(refusal([] { (void)matrix().slice(0, -1, 2); }), HasSubstr("[-1, 2)"));
  EXPECT_THAT(refusal([] { (void)matrix().slice(0, 3, 2); }), HasSubstr("[3, 2)"));
  EXPECT_THAT(refusal([] { (void)matrix().slice(0, 0, 2, 0); }), HasSubstr("step 0"));
  EXPECT_THAT(refusal([] { (void)matrix().slice(2, 0, 1); }),
              AllOf(HasSubstr("dimension 2"), HasSubstr("2 dimensions")));
  EXPECT_THAT(refusal([] { (void)matrix().slice(-1, 0, 1); }), HasSubstr("dimension -1"));
}

TEST(Tensor, TileIsTheBoxAtItsStart) {
  const Tensor tile = matrix().tile({2, 4}, {3, 2});
  EXPECT_THAT(tile.shape(), ElementsAre(3, 2));
  EXPECT_THAT(tile.strides(), ElementsAre(8, 1));
  EXPECT_EQ(tile.byte_offset(), 64 + 4 * (2 * 8 + 4));
}

TEST(Tensor, TilesOutsideAreRefusedByDimensionAndNumber) {
  EXPECT_THAT(refusal([] {
                (void)matrix().tile({2, 4}, {3, 5});
              }),
              AllOf(HasSubstr("dimension 1"), HasSubstr("starts at 4"), HasSubstr("5 elements")));
  EXPECT_THAT(refusal([] {
                (void)matrix().tile({1, kMost}, {1, kMost});
              }),
              HasSubstr("dimension 1"));
  EXPECT_THAT(refusal([] { (void)matrix().tile({0, 0}, {-1, 1}); }), HasSubstr("dimension 0"));
  EXPECT_THAT(refusal([] { (void)matrix().tile({0}, {1}); }), HasSubstr("2 dimensions"));
}

TEST(Tensor, SelectDropsItsDimension) {
  const Tensor column = matrix().select(1, 5);
  EXPECT_THAT(column.shape(), ElementsAre(6));
  EXPECT_THAT(column.strides(), ElementsAre(8));
  EXPECT_EQ(column.byte_offset(), 64 + 20);
  EXPECT_THAT(refusal([] { (void)matrix().select(0, 6); }),
              AllOf(HasSubstr("index 6"), HasSubstr("extent is 6")));
}

TEST(Tensor, PermuteReordersShapeAndStridesAlike) {
  const Tensor a(kBuffer, 0, DType::int8, std::array<std::int64_t, 3>{2, 3, 4});
  EXPECT_THAT(a.permute({2, 0, 1}).shape(), ElementsAre(4, 2, 3));
  EXPECT_THAT(a.permute({2, 0, 1}).strides(), ElementsAre(1, 12, 4));
  EXPECT_THAT(a.transpose(0, 2).shape(), ElementsAre(4, 3, 2));
  EXPECT_FALSE(a.transpose(0, 2).contiguous());
  EXPECT_THAT(refusal([&] { (void)a.permute({0, 1, 1}); }), HasSubstr("dimension 1 comes twice"));
  EXPECT_THAT(refusal([&] { (void)a.permute({0, 1}); }), HasSubstr("3 dimensions"));
  EXPECT_THAT(refusal([&] { (void)a.permute({0, 1, 3}); }), HasSubstr("dimension 3"));
}

TEST(Tensor, ReshapeKeepsTheElementsAndNeedsThemContiguous) {
  const Tensor flat = matrix().tracked(Tracking::no_dep).reshape({48});
  EXPECT_THAT(flat.shape(), ElementsAre(48));
  EXPECT_EQ(flat.byte_offset(), 64);
  EXPECT_EQ(flat.tracking(), Tracking::no_dep);
  EXPECT_THAT(refusal([] {
                (void)matrix().reshape({7, 7});
              }),
              AllOf(HasSubstr("48 elements"), HasSubstr("49")));
  EXPECT_THAT(refusal([] { (void)matrix().transpose(0, 1).reshape({48}); }),
              HasSubstr("one behind the other"));
}

TEST(Tensor, AsKeepsTheElementSize) {
  EXPECT_EQ(matrix().as(DType::int32).dtype(), DType::int32);
  EXPECT_THAT(refusal([] { (void)matrix().as(DType::int64); }),
              AllOf(HasSubstr("4 bytes"), HasSubstr("8")));
}

TEST(Tensor, ViewsOfATensorWithoutStorageAreRefused) {
  const Tensor later(DType::int8, {4, 4});
  for (const std::string& message : {
           refusal([&] { (void)later.slice(0, 0, 1); }),
           refusal([&] {
             (void)later.tile({0, 0}, {1, 1});
           }),
           refusal([&] { (void)later.select(0, 0); }),
           refusal([&] { (void)later.transpose(0, 1); }),
       }) {
    EXPECT_THAT(message, HasSubstr("no storage yet"));
  }
}

TEST(Tensor, OffsetsThatOverflowAreRefused) {
  const Tensor wild(kBuffer, 0, DType::int64, std::array<std::int64_t, 1>{4},
                    std::array<std::int64_t, 1>{kMost / 2});
  EXPECT_THAT(refusal([&] { (void)wild.slice(0, 3, 4); }), HasSubstr("offset overflows"));
  EXPECT_THAT(refusal([&] { (void)wild.slice(0, 0, 4, 3); }), HasSubstr("times step 3 overflows"));
}

TEST(Tensor, TextTellsTypeShapeStridesAndPlace) {
  EXPECT_EQ(matrix().to_string(), "float32[6, 8] strides [8, 1] at byte 64 of buffer 3");
  EXPECT_EQ(Tensor(DType::boolean, {2}).to_string(), "bool[2] strides [1] without storage");
}

}  // namespace
}  // namespace strata
