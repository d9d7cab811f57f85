#include "chip/element_value.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace strata::chip {
namespace {

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

}  // namespace
}  // namespace strata::chip
