// What fresh memory is filled with in checking mode. For floats a quiet NaN with a payload that no
// computation makes, so that what comes from it is NaN and what is copied from it can be told.
#include <array>
#include <cstring>

#include "chip/check/check.hpp"

namespace strata::chip {
namespace {

constexpr std::uint64_t kPattern = 0xa5a5'a5a5'a5a5'a5a5;
constexpr std::uint64_t kFloat64 = 0x7ffd'a5a5'a5a5'a5a5;
constexpr std::uint32_t kFloat32 = 0x7fe5'a5a5;
constexpr std::uint16_t kFloat16 = 0x7ea5;
constexpr std::uint16_t kBfloat16 = 0x7fe5;
constexpr std::uint8_t kFloat8E4m3 = 0x7f;
constexpr std::uint8_t kFloat8E8m0 = 0xff;

}  // namespace

const void* poison_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::float64:
      return &kFloat64;
    case DType::float32:
      return &kFloat32;
    case DType::float16:
      return &kFloat16;
    case DType::bfloat16:
      return &kBfloat16;
    case DType::float8_e4m3:
      return &kFloat8E4m3;
    case DType::float8_e8m0:
      return &kFloat8E8m0;
    default:
      return &kPattern;
  }
}

std::uint64_t count_poison(const void* data, DType dtype, std::uint64_t count) noexcept {
  const std::size_t size = size_of(dtype);
  const auto* const bytes = static_cast<const std::byte*>(data);
  std::uint64_t found = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (std::memcmp(bytes + i * size, poison_of(dtype), size) == 0) ++found;
  }
  return found;
}

}  // namespace strata::chip
