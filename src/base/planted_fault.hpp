// Planted faults: deliberate defects by which the test suite proves that it would notice.
//
// In an ordinary build `planted()` is a constant false and the defect's code is not there. In a
// build with STRATA_PLANTED_FAULTS the environment variable STRATA_PLANTED_FAULT names the one that
// is on
// (./dev mutants tries each in turn; the suite must fail for every one).
#pragma once

#include <string_view>

namespace strata::base {

#ifdef STRATA_PLANTED_FAULTS
/// True if the fault of that name was asked for.
[[nodiscard]] bool planted(std::string_view name) noexcept;
#else
[[nodiscard]] constexpr bool planted(std::string_view /*name*/) noexcept { return false; }
#endif

}  // namespace strata::base
