// Elements of tensors: their values, for comparisons and messages, and copies of them.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "strata/dtype.hpp"

namespace strata::chip {

/// The element at `bytes` as a number; integers beyond 2^53 lose their last bits, and packed
/// float4 is the number of its byte.
[[nodiscard]] double element_value(DType dtype, const std::byte* bytes) noexcept;
/// As text that tells any two elements of different bits apart: "1.5", "-3", "nan (0x7fc00001)".
[[nodiscard]] std::string element_text(DType dtype, const std::byte* bytes);

/// Copies the elements, in row-major order, to one behind the other. `from` is the address of
/// element (0, 0, ...); strides are in elements.
void copy_elements(DType dtype, std::span<const std::int64_t> shape,
                   std::span<const std::int64_t> strides, const std::byte* from, std::byte* to);

}  // namespace strata::chip
