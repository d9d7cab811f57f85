// What a random program is about.
//
// Thread safety: free functions.
#pragma once

#include "generator.hpp"

namespace strata::property {

/// Draws a profile, and those options of the program that do not depend on its steps.
[[nodiscard]] Profile random_profile(test::Random& random, Program& program);

}  // namespace strata::property
