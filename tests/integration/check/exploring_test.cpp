// Exploring schedules finds a dependency that is missing, and repeats what it has found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checked_program.hpp"
#include "chip/explore.hpp"

namespace strata::test {
namespace {

class Exploring : public ::testing::TestWithParam<OrchestrationMode> {
 protected:
  chip::ExploreResult explore(Case which, const chip::ExploreOptions& options) {
    const std::string compiler = has_compiler("g++") ? "g++" : "clang++";
    return chip::explore(runtime_, CheckedProgram::by(compiler).program(), matrices(which), options,
                         {.mode = GetParam()});
  }

 private:
  chip::ChipRuntime runtime_{{.platform = Platform::parse("a2a3sim:clusters=4")}};
};

TEST_P(Exploring, FindsAMissingEdgeWithin200Runs) {
  const chip::ExploreResult result = explore(Case::missing_edge, {.runs = 200});
  ASSERT_TRUE(result.difference.has_value());
  EXPECT_EQ(result.difference->tensor, "y");
  EXPECT_GT(result.difference->difference.elements, 0U);
}

TEST_P(Exploring, TheSeedRepeatsIt) {
  const chip::ExploreResult found = explore(Case::missing_edge, {.runs = 200});
  ASSERT_TRUE(found.difference.has_value());
  for (int i = 0; i < 3; ++i) {
    const chip::ExploreResult again =
        explore(Case::missing_edge, {.runs = 1, .first_seed = found.difference->seed});
    ASSERT_TRUE(again.difference.has_value());
    EXPECT_EQ(again.difference->to_string(), found.difference->to_string());
  }
}

TEST_P(Exploring, FindsNothingWhereNoneIsMissing) {
  EXPECT_FALSE(explore(Case::all_edges, {.runs = 50}).difference.has_value());
  EXPECT_FALSE(explore(Case::rows, {.runs = 20}).difference.has_value());
}

INSTANTIATE_TEST_SUITE_P(Mode, Exploring,
                         ::testing::Values(OrchestrationMode::device,
                                           OrchestrationMode::host_graph),
                         [](const auto& test) {
                           return test.param == OrchestrationMode::device
                                      ? std::string("device")
                                      : std::string("host_graph");
                         });

}  // namespace
}  // namespace strata::test
