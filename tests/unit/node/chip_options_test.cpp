// Options of chips: merging, checking, and who gets which CPUs. How they travel is in
// protocol_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "node/chip_options.hpp"
#include "strata/chip_error.hpp"

namespace strata::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ChipOptionsTest, WhatTheFirstSaysCountsAndTheSecondFillsTheGaps) {
  const ChipRunOptions first{.mode = OrchestrationMode::host_graph, .window = 8};
  const ChipRunOptions second{.mode = OrchestrationMode::device,
                              .window = 4,
                              .heap = 1024,
                              .threads = 3,
                              .time_limit = std::chrono::seconds(1),
                              .explore_seed = 7};
  const ChipRunOptions both = merged(first, second);
  EXPECT_EQ(both, (ChipRunOptions{.mode = OrchestrationMode::host_graph,
                                  .window = 8,
                                  .heap = 1024,
                                  .threads = 3,
                                  .time_limit = std::chrono::seconds(1),
                                  .explore_seed = 7}));
  EXPECT_EQ(merged(second, first), second);
  EXPECT_EQ(merged({}, {}), ChipRunOptions{});
  EXPECT_TRUE(merged({.check = true}, {.keep_graph = true}).check);
  EXPECT_TRUE(merged({.check = true}, {.keep_graph = true}).keep_graph);
  EXPECT_TRUE(merged({.keep_stats = true}, {}).keep_stats);
  EXPECT_EQ(merged({.dump_to = "/a"}, {.dump_to = "/b"}).dump_to.string(), "/a");
  EXPECT_EQ(merged({}, {.dump_to = "/b", .dump_all = true}).dump_to.string(), "/b");
  EXPECT_TRUE(merged({}, {.dump_to = "/b", .dump_all = true}).dump_all);
}

std::string refusal(const ChipRunOptions& options) {
  try {
    check_run_options(options, "the options");
  } catch (const ChipError& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_configuration);
    return error.what();
  }
  return "(accepted)";
}

TEST(ChipOptionsTest, WhatMakesNoSenseIsNamed) {
  EXPECT_EQ(refusal({}), "(accepted)");
  EXPECT_EQ(refusal({.window = 1, .heap = 4096, .threads = 1}), "(accepted)");
  EXPECT_THAT(refusal({.window = 0}),
              HasSubstr("[bad_configuration] the options: ChipRunOptions::window is 0"));
  EXPECT_THAT(refusal({.heap = 0}), HasSubstr("heap is 0"));
  EXPECT_THAT(refusal({.threads = 0}), HasSubstr("threads is 0"));
  EXPECT_EQ(refusal({.dump_to = "/tmp/dumped"}), "(accepted)");
  EXPECT_THAT(refusal({.dump_to = "dumped"}), HasSubstr("dump_to 'dumped' is no absolute path"));
  EXPECT_THAT(refusal({.time_limit = std::chrono::nanoseconds(0)}), HasSubstr("time_limit is 0"));
}

std::vector<ChipOptions> chips(const std::vector<std::string>& platforms) {
  std::vector<ChipOptions> all;
  for (const std::string& platform : platforms)
    all.push_back({.platform = platform});
  return all;
}

TEST(ChipCpusTest, ChipsOfPlatformCpuShareTheCpusWithoutOverlap) {
  EXPECT_THAT(cpus_of_chips(chips({"cpu"}), {0, 2, 5}), ElementsAre(ElementsAre(0, 2, 5)));
  EXPECT_THAT(cpus_of_chips(chips({"cpu", "cpu"}), {0, 1, 2, 3, 4}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3, 4)));
  EXPECT_THAT(cpus_of_chips(chips({"cpu", "cpu", "cpu"}), {7, 8, 9}),
              ElementsAre(ElementsAre(7), ElementsAre(8), ElementsAre(9)));
}

TEST(ChipCpusTest, WhereThereAreTooFewEachChipHasOneInTurn) {
  EXPECT_THAT(cpus_of_chips(chips({"cpu", "cpu", "cpu"}), {4, 6}),
              ElementsAre(ElementsAre(4), ElementsAre(6), ElementsAre(4)));
  EXPECT_THAT(cpus_of_chips(chips({"cpu", "cpu"}), {3}),
              ElementsAre(ElementsAre(3), ElementsAre(3)));
}

TEST(ChipCpusTest, SimulatedChipsTakeNoShare) {
  EXPECT_THAT(cpus_of_chips(chips({"a2a3sim", "cpu", "a5sim", "cpu"}), {0, 1}),
              ElementsAre(IsEmpty(), ElementsAre(0), IsEmpty(), ElementsAre(1)));
}

TEST(ChipCpusTest, TheCpusOfThisThreadAreListed) {
  EXPECT_THAT(allowed_cpu_list(), Not(IsEmpty()));
}

}  // namespace
}  // namespace strata::node
