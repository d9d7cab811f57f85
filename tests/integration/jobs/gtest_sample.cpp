// A GoogleTest program with a test of each kind, for `strata test --gtest`.
#include <gtest/gtest.h>

#include <cstdio>

TEST(Sample, Passes) { std::puts("it passes"); }
TEST(Sample, Fails) { EXPECT_EQ(1, 2); }
TEST(Sample, Skips) { GTEST_SKIP() << "not here"; }
TEST(Sample, DISABLED_Waits) {}
TEST(Other, Passes) {}
