// The examples of chip programs, run as a user runs them: right on every platform, in both modes,
// with little room and much; and a wrong result is found.
#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/time_bounds.hpp"

namespace strata::test {
namespace {

using testing::HasSubstr;
using testing::Not;

/// How long an example may take; they take a fraction of a second on an idle machine.
constexpr std::chrono::minutes kPatience{5};

struct Example {
  std::string name;
  /// A heap in which it has to wait for room.
  std::string small_heap;
  int checks;  ///< Lines that say how a result compares.
};
void PrintTo(const Example& example, std::ostream* stream) { *stream << example.name; }

struct Outcome {
  ProgramEnd end;
  std::string output;
  std::string errors;
};

Outcome run(const Example& example, const std::vector<std::string>& arguments,
            const Program::Environment& environment = {}) {
  Program program(STRATA_CHIP_EXAMPLES "/" + example.name, arguments, environment);
  const auto end = program.end(kPatience);
  return {end.value_or(ProgramEnd{}), program.output(), program.errors()};
}

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++found;
  return found;
}

/// Runs it and expects that it says so of each of its results.
void expect_right(const Example& example, const std::vector<std::string>& arguments, int rounds = 1,
                  const Program::Environment& environment = {}) {
  const Outcome outcome = run(example, arguments, environment);
  EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 0}))
      << example.name << " " << testing::PrintToString(arguments) << "\n"
      << outcome.output << outcome.errors;
  EXPECT_EQ(count(outcome.output, "  ok "), rounds * example.checks) << outcome.output;
  EXPECT_EQ(outcome.errors, "");
}

const Example kVectorAdd{"vector_add", "100000", 1};
const std::vector<Example> kExamples = {
    kVectorAdd,
    {"expression", "30000", 1},
    {"matmul", "4096", 2},
    {"mixed_mlp", "4096", 2},
    {"paged_attention", "10000", 2},
    {"row_softmax", "10000", 2},
    {"value_dependent", "10000", 6},
};

class ChipExamples : public testing::TestWithParam<Example> {};
INSTANTIATE_TEST_SUITE_P(All, ChipExamples, testing::ValuesIn(kExamples),
                         [](const auto& example) { return example.param.name; });

TEST_P(ChipExamples, AreRightOnTheGeometryOfA2A3) {
  expect_right(GetParam(), {});
  expect_right(GetParam(), {"-p", "a2a3sim", "-m", "host_graph"});
}

TEST_P(ChipExamples, AreRightOnTheGeometryOfA5) {
  expect_right(GetParam(), {"-p", "a5sim", "-m", "device"});
  expect_right(GetParam(), {"-p", "a5sim", "-m", "host_graph"});
}

TEST_P(ChipExamples, AreRightOnTheCpu) {
  expect_right(GetParam(), {"-p", "cpu", "-m", "device"});
  expect_right(GetParam(), {"-p", "cpu", "-m", "host_graph"});
}

TEST_P(ChipExamples, AreRightOnOneCluster) {
  expect_right(GetParam(), {"-p", "a2a3sim:clusters=1"});
  expect_right(GetParam(), {"-p", "a2a3sim:clusters=1", "-m", "host_graph"});
  expect_right(GetParam(), {"-p", "cpu:clusters=1"});
}

TEST_P(ChipExamples, AreRightWithASmallWindowAndASmallHeap) {
  const std::string& heap = GetParam().small_heap;
  expect_right(GetParam(), {"--window", "4", "--heap", heap});
  expect_right(GetParam(), {"--window", "4", "-m", "host_graph"});
  expect_right(GetParam(), {"--window", "1", "--heap", heap, "-p", "cpu"});
}

TEST_P(ChipExamples, AreRightWhereHostMemoryIsNotTheChips) {
  expect_right(GetParam(), {"-p", "a2a3sim:staging=1"});
  expect_right(GetParam(), {"-p", "a2a3sim:staging=1", "-m", "host_graph"});
  expect_right(GetParam(), {"-p", "a5sim:staging=1,clusters=2", "--window", "4"});
}

TEST_P(ChipExamples, AreRightAgainOnTheSameChip) {
  expect_right(GetParam(), {"--repeat", "3"}, 3);
  expect_right(GetParam(), {"--repeat", "3", "-m", "host_graph"}, 3);
}

TEST_P(ChipExamples, FindAWrongValue) {
  const Outcome outcome = run(GetParam(), {"--spoil"});
  EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 1}));
  EXPECT_THAT(outcome.output, HasSubstr("WRONG"));
}

TEST_P(ChipExamples, RefuseOptionsThatMakeNoSense) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"-m", "elsewhere"}, {"--no-such-option", "1"}, {"--window"}, {"--window", "none"}}) {
    const Outcome outcome = run(GetParam(), arguments);
    EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 2})) << testing::PrintToString(arguments);
    EXPECT_THAT(outcome.errors, HasSubstr("usage: "));
  }
  const Outcome outcome = run(GetParam(), {"-p", "no_such_chip"});
  EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 1}));
  EXPECT_THAT(outcome.errors, HasSubstr("no_such_chip"));
  EXPECT_THAT(outcome.errors, HasSubstr("a2a3sim"));
}

// Sizes at which tiles at the edges are smaller, there is one element, one tile, or one block.
TEST(ChipExampleSizes, AreNoMatter) {
  const auto at = [](const std::string& name) -> const Example& {
    for (const Example& example : kExamples) {
      if (example.name == name) return example;
    }
    throw std::logic_error(name);
  };
  expect_right(at("vector_add"), {"--size", "1"});
  expect_right(at("vector_add"), {"--size", "4096", "--tile", "4096"});
  expect_right(at("expression"), {"--size", "7", "--tile", "1"});
  expect_right(at("matmul"), {"--m", "1", "--n", "1", "--k", "1"});
  expect_right(at("matmul"), {"--m", "65", "--n", "63", "--k", "200", "--tile", "16"});
  expect_right(at("mixed_mlp"), {"--rows", "1", "--inputs", "3", "--outputs", "1"});
  expect_right(at("mixed_mlp"), {"--rows", "17", "--outputs", "33"});
  expect_right(at("paged_attention"), {"--heads", "3", "--key-heads", "1", "--context", "16"});
  expect_right(at("paged_attention"), {"--sequences", "1", "--context", "1"});
  expect_right(at("row_softmax"), {"--columns", "1"});
  expect_right(at("row_softmax"), {"--rows", "1", "--columns", "5", "--blocks", "3"});
  expect_right(at("value_dependent"), {"--size", "5", "--tile", "2"});
}

TEST(ChipExampleErrors, AnOrchestrationThatGivesUpSaysWhy) {
  const Outcome outcome = run({"value_dependent", "", 0}, {"--limit", "2"});
  EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 1}));
  EXPECT_THAT(outcome.errors, HasSubstr("orchestration_failed"));
  EXPECT_THAT(outcome.errors, HasSubstr("no convergence: after 2 steps the residual is "));
}

TEST(ChipExampleErrors, ShapesThatDoNotFitAreRefused) {
  const Outcome outcome = run({"paged_attention", "", 0}, {"--heads", "3", "--key-heads", "2"});
  EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 1}));
  EXPECT_THAT(outcome.errors, HasSubstr("no multiple of the number of key heads"));
}

}  // namespace
}  // namespace strata::test
