#include "chip/element_value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "strata/tensor.hpp"

namespace strata::chip {
namespace {

template <class T>
T load(const std::byte* bytes) noexcept {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

struct FloatLayout {
  int mantissa_bits;
  int exponent_bits;
  bool has_infinity;
};

/// A float of up to 16 bits with sign, exponent and mantissa.
double small_float(unsigned bits, FloatLayout layout) noexcept {
  const unsigned mantissa_mask = (1U << layout.mantissa_bits) - 1;
  const unsigned exponent_mask = (1U << layout.exponent_bits) - 1;
  const unsigned mantissa = bits & mantissa_mask;
  const unsigned exponent = bits >> layout.mantissa_bits & exponent_mask;
  const bool negative = (bits >> (layout.mantissa_bits + layout.exponent_bits) & 1U) != 0;
  const int bias = static_cast<int>(exponent_mask >> 1U);
  const double sign = negative ? -1.0 : 1.0;
  if (exponent == exponent_mask) {
    if (layout.has_infinity && mantissa == 0) return sign * std::numeric_limits<double>::infinity();
    if (layout.has_infinity || mantissa == mantissa_mask) {
      return std::numeric_limits<double>::quiet_NaN();
    }
  }
  const int scale = -bias - layout.mantissa_bits;
  if (exponent == 0) return sign * std::ldexp(mantissa, scale + 1);
  return sign *
         std::ldexp(mantissa | (1U << layout.mantissa_bits), static_cast<int>(exponent) + scale);
}

constexpr FloatLayout kFloat16{.mantissa_bits = 10, .exponent_bits = 5, .has_infinity = true};
constexpr FloatLayout kFloat8{.mantissa_bits = 3, .exponent_bits = 4, .has_infinity = false};

bool is_float(DType dtype) noexcept {
  switch (dtype) {
    case DType::float16:
    case DType::bfloat16:
    case DType::float32:
    case DType::float64:
    case DType::float8_e4m3:
    case DType::float8_e8m0:
      return true;
    default:
      return false;
  }
}

std::uint64_t bits_of(DType dtype, const std::byte* bytes) noexcept {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes, size_of(dtype));  // Little-endian, as all our machines.
  return bits;
}

}  // namespace

double element_value(DType dtype, const std::byte* bytes) noexcept {
  switch (dtype) {
    case DType::boolean:
    case DType::uint8:
    case DType::float4_e2m1x2:
      return load<std::uint8_t>(bytes);
    case DType::int8:
      return load<std::int8_t>(bytes);
    case DType::int16:
      return load<std::int16_t>(bytes);
    case DType::uint16:
      return load<std::uint16_t>(bytes);
    case DType::int32:
      return load<std::int32_t>(bytes);
    case DType::uint32:
      return load<std::uint32_t>(bytes);
    case DType::int64:
      return static_cast<double>(load<std::int64_t>(bytes));
    case DType::uint64:
      return static_cast<double>(load<std::uint64_t>(bytes));
    case DType::float16:
      return small_float(load<std::uint16_t>(bytes), kFloat16);
    case DType::bfloat16: {
      const std::uint32_t wide = std::uint32_t{load<std::uint16_t>(bytes)} << 16U;
      return load<float>(reinterpret_cast<const std::byte*>(&wide));
    }
    case DType::float32:
      return load<float>(bytes);
    case DType::float64:
      return load<double>(bytes);
    case DType::float8_e4m3:
      return small_float(load<std::uint8_t>(bytes), kFloat8);
    case DType::float8_e8m0: {
      const int exponent = load<std::uint8_t>(bytes);
      return exponent == 0xff ? std::numeric_limits<double>::quiet_NaN()
                              : std::ldexp(1.0, exponent - 127);
    }
  }
  return 0;
}

std::string element_text(DType dtype, const std::byte* bytes) {
  const double value = element_value(dtype, bytes);
  if (std::isnan(value)) {
    return fmt::format("nan ({:#0{}x})", bits_of(dtype, bytes), 2 * size_of(dtype) + 2);
  }
  if (dtype == DType::float32) return fmt::format("{}", static_cast<float>(value));
  if (is_float(dtype)) return fmt::format("{}", value);
  if (dtype == DType::int64) return fmt::format("{}", load<std::int64_t>(bytes));
  if (dtype == DType::uint64) return fmt::format("{}", load<std::uint64_t>(bytes));
  return fmt::format("{}", static_cast<std::int64_t>(value));
}

void copy_elements(DType dtype, std::span<const std::int64_t> shape,
                   std::span<const std::int64_t> strides, const std::byte* from, std::byte* to) {
  if (std::ranges::find(shape, 0) != shape.end()) return;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  // The last dimensions, as far as they lie together, are copied at once.
  std::size_t outer = shape.size();
  std::int64_t together = 1;
  while (outer > 0 && (shape[outer - 1] == 1 || strides[outer - 1] == together))
    together *= shape[--outer];
  std::array<std::int64_t, kMaxRank> index{};
  for (;;) {
    std::memcpy(to, from, static_cast<std::size_t>(together * size));
    to += together * size;
    std::size_t d = outer;
    while (d > 0) {
      --d;
      from += size * strides[d];
      if (++index[d] < shape[d]) break;
      from -= size * strides[d] * index[d];
      index[d] = 0;
      if (d == 0) return;
    }
    if (outer == 0) return;
  }
}

}  // namespace strata::chip
