// `strata chip`: runs, compares, explores.
#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "chip_command.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

const std::string kVectorAdd = std::string(STRATA_EXAMPLES) + "/vector_add/program.json";

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), {"--tensor", "a=random:1:[1000]", "--tensor", "b=random:2:[1000]",
                             "--scalar", "tile=256", "-p", "a2a3sim:clusters=2"});
  return more;
}

class StrataChip : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }

 private:
  TempDir folder_;
};

TEST_F(StrataChip, WritesWhatItComputesAndComparesIt) {
  const auto first = chip_command(
      kVectorAdd, with({"--tensor", "sum=zeros:[1000]", "--output", "sum=" + file("sum.npy")}));
  EXPECT_EQ(first.code(), 0) << first.err;
  EXPECT_THAT(first.out, AllOf(HasSubstr("vector_add on a2a3sim:clusters=2"),
                               ContainsRegex("run .* 4 tasks .* 0 bytes of heap")));

  for (const char* const mode : {"device", "host_graph"}) {
    const auto again =
        chip_command(kVectorAdd, with({"--expect", "sum=" + file("sum.npy"), "-m", mode}));
    EXPECT_EQ(again.code(), 0) << again.err;
    EXPECT_THAT(again.out, HasSubstr("tensor 'sum' is as expected"));
  }
  const auto other =
      chip_command(kVectorAdd, {"--tensor", "a=random:1:[1000]", "--tensor", "b=random:3:[1000]",
                                "--scalar", "tile=256", "--expect", "sum=" + file("sum.npy")});
  EXPECT_EQ(other.code(), 1);
  EXPECT_THAT(other.err, HasSubstr("tensor 'sum' is not as expected: 1000 of 1000 elements differ, "
                                   "the first at [0]"));
}

TEST_F(StrataChip, RepeatedRunsAreTimedAndStartFromTheSameArguments) {
  // y = x of the first half, and what was in y is not added twice.
  const auto result = planted(101, {"--repeat", "5", "--output", "y=" + file("y.npy")});
  EXPECT_EQ(result.code(), 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("first run"),
                                ContainsRegex("median .* 2 tasks .* 512 bytes of heap")));
  const auto once = planted(101, {"--expect", "y=" + file("y.npy")});
  EXPECT_EQ(once.code(), 0) << once.err;
}

TEST_F(StrataChip, ACommandLineThatMakesNoSenseIsRefusedByName) {
  const auto tensor = chip_command(kVectorAdd, with({"--tensor", "c=zeros:[3]"}));
  EXPECT_EQ(tensor.code(), 2);
  EXPECT_THAT(tensor.err, HasSubstr("there is no tensor 'c'"));
  const auto platform = chip_command(kVectorAdd, with({"-p", "a9sim"}));
  EXPECT_EQ(platform.code(), 2);
  const auto missing = chip_command(kVectorAdd, with({}));
  EXPECT_EQ(missing.code(), 2);
  EXPECT_THAT(missing.err, HasSubstr("the shape of output 'sum' is not known"));
  const auto program = chip_command(file("none.json"), {});
  EXPECT_EQ(program.code(), 2);
  EXPECT_EQ(strata_command({"chip"}).code(), 2);
}

TEST_F(StrataChip, ARunThatFailsIsToldWithItsReason) {
  const auto result = planted(77, {});
  EXPECT_EQ(result.code(), 1);
  EXPECT_THAT(result.err, HasSubstr("[orchestration_failed] the orchestration gave up with code "
                                    "77: there is no such case"));
}

TEST_F(StrataChip, ExploringFindsAMissingEdgeAndTheSeedThatRepeatsIt) {
  const auto found = planted(104, {"--explore", "200"});
  EXPECT_EQ(found.code(), 1);
  EXPECT_THAT(found.err, AllOf(ContainsRegex("with seed [0-9]+ element \\[[0-9]+, [0-9]+\\] of "
                                             "tensor 'y' is"),
                               HasSubstr("--explore 1 --seed ")));
  const std::string seed = found.err.substr(found.err.rfind("--seed ") + 7);
  const auto again =
      planted(104, {"--explore", "1", "--seed", seed.substr(0, seed.find_first_of(" \n"))});
  EXPECT_EQ(again.code(), 1);
  EXPECT_EQ(again.err, found.err);
}

TEST_F(StrataChip, ExploringSaysSoIfNothingDiffers) {
  const auto result = planted(103, {"--explore", "20"});
  EXPECT_EQ(result.code(), 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("20 schedules (seeds 1 to 20): all results are the same"));
}

}  // namespace
}  // namespace strata::test
