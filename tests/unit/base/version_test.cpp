#include "strata/version.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace strata {
namespace {

TEST(Version, HasThreeNumbers) {
  const std::string text{version()};
  EXPECT_EQ(std::count(text.begin(), text.end(), '.'), 2) << text;
}

}  // namespace
}  // namespace strata
