// `strata chip --check`: through a chip worker in a process of its own.
#include <gmock/gmock.h>

#include "chip_command.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(StrataChipCheck, ACleanProgramIsSaidToBe) {
  const auto result = planted(0, {"--check"});
  EXPECT_EQ(result.code(), 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("no kernel touched what it had not declared"));
}

TEST(StrataChipCheck, WhatAKernelTouchesIsToldWithItsLine) {
  const auto result = planted(1, {"--check"});
  EXPECT_EQ(result.code(), 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("[undeclared_access]"), HasSubstr("kernels.cpp:"),
                                HasSubstr("kernel 'gap' writes")));
}

TEST(StrataChipCheck, PoisonInAResultIsTold) {
  const auto result = planted(100, {"--check"});
  EXPECT_EQ(result.code(), 1);
  EXPECT_THAT(result.err, HasSubstr("64 of 128 elements of tensor 'y' are poison"));
}

TEST(StrataChipCheck, EachScheduleIsChecked) {
  const auto result = planted(1, {"--check", "--explore", "3"});
  EXPECT_EQ(result.code(), 1);
  EXPECT_THAT(result.err, HasSubstr("kernel 'gap' writes"));
}

}  // namespace
}  // namespace strata::test
