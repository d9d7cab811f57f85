// Checking mode finds what is planted in kernels, on the line where it is, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "checked_program.hpp"
#include "chip/check/check.hpp"
#include "strata/chip_error.hpp"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Checking : public ::testing::TestWithParam<std::string> {
 protected:
  /// Of the last run.
  chip::HostArguments arguments = {};

  /// What checking says of a run; empty if nothing.
  std::string report(Case which, const std::string& platform = "a2a3sim:clusters=4") {
    chip::ChipRuntime runtime({.platform = Platform::parse(platform)});
    arguments = matrices(which);
    const chip::HostArgumentBlock block(arguments);
    chip::ChipRunRequest request{.program = CheckedProgram::by(GetParam()).program(),
                                 .arguments = block.block(),
                                 .name = "checked"};
    request.options.check = true;
    try {
      (void)runtime.run(request);
      return "";
    } catch (const ChipError& error) {
      EXPECT_EQ(error.code(), ErrorCode::undeclared_access) << error.what();
      return error.what();
    }
  }
  [[nodiscard]] const float* y() const {
    return reinterpret_cast<const float*>(arguments.tensors[1].bytes.data());
  }
};

std::string line(const std::string& fault) { return CheckedProgram::line_of(fault); }

TEST_P(Checking, FindsNothingInACleanProgram) {
  EXPECT_EQ(report(Case::clean), "");
  EXPECT_EQ(report(Case::rows), "");
  EXPECT_EQ(report(Case::all_edges), "");
  EXPECT_EQ(report(Case::initial_value), "");
  EXPECT_EQ(y()[5], 8.0F) << "three, and what was in x";
}

TEST_P(Checking, FindsAWriteIntoTheGapBetweenTheRowsOfAColumnTile) {
  EXPECT_THAT(
      report(Case::gap),
      AllOf(HasSubstr(line("gap") + ": kernel 'gap' writes 4 bytes"),
            HasSubstr("right behind the end of row 0 of tensor 1 'float32[8, 4]' (out), in the gap "
                      "between rows"),
            HasSubstr("'middle', block 0 of 1"), HasSubstr("8 times")));
}

TEST_P(Checking, FindsAReadOfAnOutputBeforeItIsWritten) {
  EXPECT_THAT(report(Case::unwritten),
              AllOf(HasSubstr(line("unwritten") + ": kernel 'unwritten' reads 4 bytes"),
                    HasSubstr("in element [0, 1] of tensor 1 'float32[8, 4]' (out), before this "
                              "task has written it")));
}

TEST_P(Checking, FindsAWriteToANeighboursTileInTheSameBuffer) {
  EXPECT_THAT(report(Case::neighbour),
              AllOf(HasSubstr(line("neighbour") + ": kernel 'neighbour' writes 4 bytes"),
                    HasSubstr("of tensor 1 'float32[8, 4]' (out), in the gap between rows"),
                    HasSubstr("it is in element [2, 1] of tensor 1 of task"), HasSubstr("'left'"),
                    HasSubstr("a neighbour in the same buffer")));
}

TEST_P(Checking, FindsAReadPastTheEndByOneElement) {
  EXPECT_THAT(report(Case::past),
              AllOf(HasSubstr(line("past") + ": kernel 'past' reads 4 bytes"),
                    HasSubstr("right behind the end of tensor 0 'float32[8, 4]' (in)")));
}

TEST_P(Checking, FindsAWriteToAnInputThoughItWasReadJustBefore) {
  EXPECT_THAT(report(Case::input),
              AllOf(HasSubstr(line("input") + ": kernel 'input' writes 4 bytes"),
                    HasSubstr("in element [1, 2] of tensor 0 'float32[8, 4]' (in), which the task "
                              "only reads")));
}

TEST_P(Checking, FindsAWriteToAGlobalVariable) {
  EXPECT_THAT(report(Case::global), AllOf(HasSubstr(line("global") + ": kernel 'global' writes"),
                                          HasSubstr("state"), HasSubstr("which all cores share")));
}

TEST_P(Checking, TellsWhereAFunctionThatDidItWasCalled) {
  EXPECT_THAT(report(Case::helper),
              AllOf(HasSubstr(line("helper") + ": kernel 'helper' writes 4 bytes"),
                    HasSubstr("called at "), HasSubstr(line("helper's caller"))));
}

TEST_P(Checking, LooksIntoCopiesAndAtomics) {
  EXPECT_THAT(report(Case::copy_too_much),
              AllOf(HasSubstr(line("copy_too_much") + ": kernel 'copy_too_much' reads 18 bytes"),
                    HasSubstr("kernel 'copy_too_much' writes 18 bytes")));
  EXPECT_THAT(report(Case::atomics),
              AllOf(HasSubstr(line("atomics") + ": kernel 'atomics' writes 4 bytes"),
                    HasSubstr("in element [0, 0] of tensor 0 'float32[8, 4]' (in)")));
}

TEST_P(Checking, FreshMemoryThatNobodyHasWrittenIsPoison) {
  EXPECT_EQ(report(Case::half_written), "") << "no kernel touches what is not its own";
  EXPECT_EQ(y()[0], 1.0F);
  EXPECT_TRUE(std::isnan(y()[1]));
  EXPECT_EQ(chip::count_poison(y(), DType::float32, 8 * 16), 64U);
}

TEST_P(Checking, ARunThatFailsTooTellsOfBoth) {
  EXPECT_THAT(
      report(Case::throws),
      AllOf(HasSubstr(line("throws") + ": kernel 'throws' writes"), Not(HasSubstr("  2. ")),
            HasSubstr("And the run failed: [kernel_threw]"), HasSubstr("thrown on purpose by 0")));
}

TEST_P(Checking, LinesAreFoundWhereStagingMovesTheData) {
  EXPECT_EQ(report(Case::clean, "a2a3sim:clusters=2,staging=1"), "");
  EXPECT_THAT(report(Case::gap, "a2a3sim:clusters=2,staging=1"),
              HasSubstr(line("gap") + ": kernel 'gap' writes 4 bytes"));
}

TEST_P(Checking, IsOffUnlessAsked) {
  chip::ChipRuntime runtime({.platform = Platform::parse("a2a3sim:clusters=4")});
  arguments = matrices(Case::gap);
  const chip::HostArgumentBlock block(arguments);
  EXPECT_NO_THROW((void)runtime.run({.program = CheckedProgram::by(GetParam()).program(),
                                     .arguments = block.block(),
                                     .name = "unchecked"}));
}

std::vector<std::string> compilers() {
  std::vector<std::string> found;
  for (const char* const name : {"g++", "clang++"}) {
    if (has_compiler(name)) found.emplace_back(name);
  }
  return found;
}
INSTANTIATE_TEST_SUITE_P(By, Checking, ::testing::ValuesIn(compilers()), [](const auto& test) {
  return test.param == "g++" ? std::string("gcc") : std::string("clang");
});

}  // namespace
}  // namespace strata::test
