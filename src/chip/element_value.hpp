// Values of tensor elements, for comparisons and messages.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "strata/dtype.hpp"

namespace strata::chip {

/// The element at `bytes` as a number; integers beyond 2^53 lose their last bits, and packed
/// float4 is the number of its byte.
[[nodiscard]] double element_value(DType dtype, const std::byte* bytes) noexcept;
/// As text that tells any two elements of different bits apart: "1.5", "-3", "nan (0x7fc00001)".
[[nodiscard]] std::string element_text(DType dtype, const std::byte* bytes);

}  // namespace strata::chip
