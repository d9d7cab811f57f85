// What numbers of a command line may be. CLI11's own ranges let "nan" pass, and take "-1" for a
// very large number where an option is unsigned.
//
// Thread safety: functions of their arguments.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace strata::cli {

/// A whole number from `low` to `high`, in decimal digits and nothing else.
[[nodiscard]] CLI::Validator whole_number(std::uint64_t low, std::uint64_t high);
/// A finite number from `low` to `high`.
[[nodiscard]] CLI::Validator finite_number(double low, double high);

}  // namespace strata::cli
