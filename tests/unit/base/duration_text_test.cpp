#include "base/duration_text.hpp"

#include <gtest/gtest.h>

namespace strata::base {
namespace {

using namespace std::chrono_literals;

TEST(DurationText, IsInTheLargestUnitWithoutNeedlessDigits) {
  EXPECT_EQ(duration_text(0ns), "0 ns");
  EXPECT_EQ(duration_text(999ns), "999 ns");
  EXPECT_EQ(duration_text(1500ns), "1.5 us");
  EXPECT_EQ(duration_text(50ms), "50 ms");
  EXPECT_EQ(duration_text(1s), "1 s");
  EXPECT_EQ(duration_text(60s), "60 s");
  EXPECT_EQ(duration_text(1234567us), "1.235 s");
  EXPECT_EQ(duration_text(-2s), "-2 s");
}

}  // namespace
}  // namespace strata::base
