// The names of Access, for messages and files: "in", "out", "inout".
//
// Thread safety: a pure function.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "strata/task.hpp"

namespace strata::base {

inline constexpr std::array kAccesses = {Access::in, Access::out, Access::inout};

[[nodiscard]] constexpr std::string_view name_of(Access access) noexcept {
  constexpr std::array<std::string_view, kAccesses.size()> kNames = {"in", "out", "inout"};
  return kNames[static_cast<std::size_t>(access)];
}

}  // namespace strata::base
