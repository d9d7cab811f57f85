#include "chip/random_values.hpp"

#include <cmath>
#include <cstring>
#include <random>

namespace strata::chip {
namespace {

/// A float of 16 bits that is nearest below in size: good enough for random values.
std::uint16_t float16_bits(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);
  if (fraction == 0.0 || exponent < -13) return 0;
  const auto mantissa = static_cast<std::uint16_t>((fraction * 2 - 1) * 1024);
  const auto biased = static_cast<std::uint16_t>(exponent + 14);
  return static_cast<std::uint16_t>((value < 0 ? 0x8000U : 0U) | biased << 10U | mantissa);
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace

void fill_random(HostTensor& tensor, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::size_t size = size_of(tensor.dtype);
  for (std::uint64_t i = 0; i < tensor.elements(); ++i) {
    std::byte* const to = tensor.bytes.data() + i * size;
    const std::uint64_t bits = random();
    const double real = static_cast<double>(bits >> 11U) * 0x1p-52 - 1.0;
    const auto small = static_cast<std::int64_t>(bits % 201) - 100;
    switch (tensor.dtype) {
      case DType::float64:
        store(to, real);
        break;
      case DType::float32:
        store(to, static_cast<float>(real));
        break;
      case DType::float16:
        store(to, float16_bits(real));
        break;
      case DType::bfloat16: {
        const auto value = static_cast<float>(real);
        std::memcpy(to, reinterpret_cast<const std::byte*>(&value) + 2, 2);
        break;
      }
      case DType::float8_e4m3:  // Finite, below 1 in size.
        store(to, static_cast<std::uint8_t>((bits & 0x80U) | (bits % 0x38U)));
        break;
      case DType::float8_e8m0:
        store(to, static_cast<std::uint8_t>(119 + bits % 16));
        break;
      case DType::float4_e2m1x2:
        store(to, static_cast<std::uint8_t>(bits));
        break;
      case DType::boolean:
        store(to, static_cast<std::uint8_t>(bits & 1U));
        break;
      case DType::uint8:
      case DType::uint16:
      case DType::uint32:
      case DType::uint64: {
        const std::uint64_t value = bits % 101;
        std::memcpy(to, &value, size);
        break;
      }
      default:
        std::memcpy(to, &small, size);
    }
  }
}

}  // namespace strata::chip
