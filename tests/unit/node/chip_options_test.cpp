// Options of chips: merging and checking. How they travel is in protocol_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "node/chip_options.hpp"
#include "strata/chip_error.hpp"

namespace strata::node {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace strata::node
