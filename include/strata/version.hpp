// The version of the library that a program runs with.
#pragma once

#include <string_view>

namespace strata {

/// "major.minor.patch" of the linked library.
[[nodiscard]] std::string_view version() noexcept;

}  // namespace strata
