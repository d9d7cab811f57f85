#include "chip/element_value.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace strata::chip {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <class T>
std::string text(DType dtype, T bits) {
  std::byte bytes[sizeof(T)];
  std::memcpy(bytes, &bits, sizeof bits);
  return element_text(dtype, bytes);
}
template <class T>
double value(DType dtype, T bits) {
  std::byte bytes[sizeof(T)];
  std::memcpy(bytes, &bits, sizeof bits);
  return element_value(dtype, bytes);
}

TEST(ElementValue, SmallFloatsAreReadAsTheirFormatsSay) {
  EXPECT_EQ(value(DType::float16, std::uint16_t{0x3c00}), 1.0);
  EXPECT_EQ(value(DType::float16, std::uint16_t{0xc500}), -5.0);
  EXPECT_EQ(value(DType::float16, std::uint16_t{0x0001}), 0x1p-24);
  EXPECT_EQ(value(DType::float16, std::uint16_t{0x7c00}), INFINITY);
  EXPECT_TRUE(std::isnan(value(DType::float16, std::uint16_t{0x7e00})));
  EXPECT_EQ(value(DType::bfloat16, std::uint16_t{0x4049}), 3.140625);
  EXPECT_EQ(value(DType::float8_e4m3, std::uint8_t{0x38}), 1.0);
  EXPECT_EQ(value(DType::float8_e4m3, std::uint8_t{0x7e}), 448.0);
  EXPECT_EQ(value(DType::float8_e4m3, std::uint8_t{0x01}), 0x1p-9);
  EXPECT_TRUE(std::isnan(value(DType::float8_e4m3, std::uint8_t{0x7f})));
  EXPECT_EQ(value(DType::float8_e8m0, std::uint8_t{127}), 1.0);
  EXPECT_EQ(value(DType::float8_e8m0, std::uint8_t{130}), 8.0);
}

TEST(ElementValue, TextTellsWhatIsDifferent) {
  EXPECT_EQ(text(DType::float32, 0.1F), "0.1");
  EXPECT_EQ(text(DType::float64, 0.1), "0.1");
  EXPECT_EQ(text(DType::float32, -0.0F), "-0");
  EXPECT_EQ(text(DType::float32, std::uint32_t{0x7fe5a5a5}), "nan (0x7fe5a5a5)");
  EXPECT_EQ(text(DType::int64, std::int64_t{9'007'199'254'740'993}), "9007199254740993");
  EXPECT_EQ(text(DType::uint64, ~std::uint64_t{0}), "18446744073709551615");
  EXPECT_EQ(text(DType::int8, std::int8_t{-3}), "-3");
}

std::vector<std::int32_t> copied(const std::vector<std::int64_t>& shape,
                                 const std::vector<std::int64_t>& strides) {
  std::array<std::int32_t, 24> from;
  std::iota(from.begin(), from.end(), 0);
  std::size_t count = 1;
  for (const std::int64_t extent : shape)
    count *= static_cast<std::size_t>(extent);
  std::vector<std::int32_t> to(count, -1);
  copy_elements(DType::int32, shape, strides, reinterpret_cast<const std::byte*>(from.data()),
                reinterpret_cast<std::byte*>(to.data()));
  return to;
}

TEST(ElementCopy, IsRowMajorWhateverLiesBetweenTheElements) {
  EXPECT_THAT(copied({}, {}), ElementsAre(0));
  EXPECT_THAT(copied({4}, {1}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(copied({2, 3}, {3, 1}), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(copied({2, 2}, {6, 1}), ElementsAre(0, 1, 6, 7));        // Rows with gaps.
  EXPECT_THAT(copied({3, 2}, {1, 4}), ElementsAre(0, 4, 1, 5, 2, 6));  // Transposed.
  EXPECT_THAT(copied({2, 1, 2}, {8, 5, 2}), ElementsAre(0, 2, 8, 10));
  EXPECT_THAT(copied({2, 2, 2}, {12, 4, 1}), ElementsAre(0, 1, 4, 5, 12, 13, 16, 17));
  EXPECT_THAT(copied({3, 0}, {1, 1}), IsEmpty());
}

}  // namespace
}  // namespace strata::chip
