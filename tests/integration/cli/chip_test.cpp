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

TEST_F(StrataChip, ArgumentsOfAllTasksAreWrittenToAFolderOnRequest) {
  const auto result = chip_command(
      kVectorAdd, with({"--tensor", "sum=zeros:[1000]", "--dump", file("dumped"), "--dump-all"}));
  EXPECT_EQ(result.code(), 0) << result.err;
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t lists = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(file("dumped"))) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".before.npy")) ++before;
    if (name.ends_with(".after.npy")) ++after;
    if (name == "tasks.jsonl") ++lists;
  }
  EXPECT_EQ(before, 8U);  // Two inputs and one output of each of four tasks.
  EXPECT_EQ(after, 4U);
  EXPECT_EQ(lists, 1U);
  const auto alone = chip_command(kVectorAdd, with({"--dump-all"}));
  EXPECT_EQ(alone.code(), 2);
  EXPECT_THAT(alone.err, HasSubstr("--dump"));
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

TEST_F(StrataChip, NumbersThatMakeNoSenseAreRefusedByNameBeforeAnythingStarts) {
  struct Bad {
    const char* option;
    const char* value;
  };
  for (const auto& [option, value] : {
           Bad{"--time-limit", "nan"},
           Bad{"--time-limit", "1e300"},
           Bad{"--time-limit", "0"},
           Bad{"--time-limit", "-1"},
           Bad{"--window", "-1"},
           Bad{"--window", "0"},
           Bad{"--window", "1e3"},
           Bad{"--heap", "0"},
           Bad{"--heap", "-1"},
           Bad{"--heap", "63"},
           Bad{"--tolerance", "nan"},
           Bad{"--repeat", "0"},
           Bad{"--repeat", "-1"},
           Bad{"--explore", "-1"},
           Bad{"--seed", "-1"},
       }) {
    const auto result = chip_command(file("none.json"), {option, value});
    EXPECT_EQ(result.code(), 2) << option << " " << value;
    EXPECT_THAT(result.err, HasSubstr(option)) << value;
    EXPECT_THAT(result.err, Not(HasSubstr("none.json"))) << "the program was looked for first";
  }
  for (const char* const platform :
       {"a2a3sim:heap=1", "a2a3sim:memory=0", "cpu:window=0", "a2a3sim:clusters=1,clusters=2"}) {
    const auto result = chip_command(file("none.json"), {"-p", platform});
    EXPECT_EQ(result.code(), 2) << platform;
    EXPECT_THAT(result.err, HasSubstr(platform));
  }
}

TEST_F(StrataChip, ArgumentsThatDoNotFitTheProgramAreRefusedBeforeTheRun) {
  const auto refused = [&](std::vector<std::string> more, const char* text) {
    const auto result = chip_command(kVectorAdd, std::move(more));
    EXPECT_EQ(result.code(), 2) << text;
    EXPECT_THAT(result.err, HasSubstr(text));
    EXPECT_EQ(result.out, "") << "something was started";
  };
  refused({"--tensor", "a=random:1:int32[1000]"}, "its elements are int32");
  refused(with({"--tensor", "sum=zeros:[1000]", "--scalar", "tile=128"}),
          "the scalar was given before");
  refused(with({"--tensor", "sum=zeros:[1000]", "--output", "sum=" + file("none/sum.npy")}),
          "there is no folder");
  refused(with({"--tensor", "sum=zeros:[1000]", "--output", "sum=" + file(".")}), "a folder");
  refused({"--tensor", "a=" + file(".")}, "it is a folder");
  refused({"--tensor", "a=/dev/zero"}, "it is not an .npy file");
  refused({"--tensor", "a=random:1:[8]", "--tensor", "b=random:2:[8]", "--tensor", "sum=zeros:[8]",
           "--scalar", "tile=300:int8"},
          "300 does not fit in int8");
}

TEST_F(StrataChip, ATensorThatCanNotBeComparedIsRefusedBeforeTheRun) {
  ASSERT_EQ(chip_command(kVectorAdd,
                         with({"--tensor", "sum=zeros:[1000]", "--output", "a=" + file("a.npy")}))
                .code(),
            0);
  const auto result = chip_command(
      kVectorAdd, {"--tensor", "a=random:1:[8]", "--tensor", "b=random:2:[8]", "--tensor",
                   "sum=zeros:[8]", "--scalar", "tile=8", "--expect", "sum=" + file("a.npy")});
  EXPECT_EQ(result.code(), 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("--expect sum"), HasSubstr("float32[1000]"),
                                HasSubstr("float32[8]")));
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

TEST_F(StrataChip, ExploringTellsTheSeedOfARunThatFailsInTheOrderOfSubmissionToo) {
  const auto result = planted(77, {"--explore", "5", "--seed", "9"});
  EXPECT_EQ(result.code(), 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("with seed 0, the order of submission, the run failed"),
                    HasSubstr("[orchestration_failed]"), HasSubstr("--explore 1 --seed 0")));
}

TEST_F(StrataChip, ACrashIsReportedOnce) {
  const auto result = chip_command(std::string(STRATA_TEST_CHIP_PROGRAMS) + "/ways/program.json",
                                   {"--tensor", "x=zeros:[16]", "--scalar", "way=4", "--scalar",
                                    "argument=0", "-p", "a2a3sim:clusters=1"});
  EXPECT_EQ(result.code(), 1);
  const std::size_t first = result.err.find("[kernel_crashed]");
  ASSERT_NE(first, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("[kernel_crashed]", first + 1), std::string::npos) << result.err;
}

TEST_F(StrataChip, ExploringSaysSoIfNothingDiffers) {
  const auto result = planted(103, {"--explore", "20"});
  EXPECT_EQ(result.code(), 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("20 schedules (seeds 1 to 20): all results are the same"));
}

}  // namespace
}  // namespace strata::test
