// Arguments of tasks in files: which, when, and what is said of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chip/npy.hpp"
#include "runtime_support.hpp"
#include "strata/error.hpp"
#include "support/temp_dir.hpp"

namespace strata::chip::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ArgumentDumpTest : public ::testing::TestWithParam<OrchestrationMode> {
 protected:
  [[nodiscard]] ChipRunOptions options() const {
    return {.mode = GetParam(), .dump_to = dir_.path().string()};
  }
  /// The folder of the only run.
  [[nodiscard]] fs::path folder() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(dir_.path()))
      found.push_back(entry.path());
    EXPECT_THAT(found, SizeIs(1));
    return found.at(0);
  }
  [[nodiscard]] std::vector<nlohmann::json> lines() const {
    std::ifstream in(folder() / "tasks.jsonl");
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(in, line);)
      lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  [[nodiscard]] std::vector<float> floats(const nlohmann::json& file) const {
    const HostTensor tensor = read_npy(folder() / file.get<std::string>());
    const auto* const data = reinterpret_cast<const float*>(tensor.bytes.data());
    return {data, data + tensor.elements()};
  }

  strata::test::TempDir dir_;
  TestChip chip_;
};
INSTANTIATE_TEST_SUITE_P(Modes, ArgumentDumpTest,
                         ::testing::Values(OrchestrationMode::device,
                                           OrchestrationMode::host_graph),
                         [](const auto& mode) {
                           return mode.param == OrchestrationMode::device ? "device" : "host_graph";
                         });

TEST_P(ArgumentDumpTest, MarkedArgumentIsWrittenAsItWasBeforeAndAfter) {
  std::vector<float> data = {1, 2, 3};
  chip_.run(
      [](ChipOrchestration& chip) {
        chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
        chip.submit(chip.aiv("increase"), dumped(inout(chip.tensor(0))), scalar(10.0F));
        chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(100.0F));
      },
      Arguments().add(Access::inout, data), options());
  EXPECT_THAT(data, ElementsAre(112, 113, 114));
  const auto all = lines();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0]["kernels"], "increase");
  EXPECT_EQ(all[0]["ended_well"], true);
  ASSERT_THAT(all[0]["tensors"], SizeIs(1));
  EXPECT_EQ(all[0]["tensors"][0]["dtype"], "float32");
  EXPECT_THAT(floats(all[0]["tensors"][0]["before"]), ElementsAre(2, 3, 4));
  EXPECT_THAT(floats(all[0]["tensors"][0]["after"]), ElementsAre(12, 13, 14));
}

TEST_P(ArgumentDumpTest, MarkedLaunchWritesAllArgumentsEachAtItsTime) {
  std::vector<float> a = {1, 2}, b = {10, 20}, sum(2);
  chip_.run(
      [](ChipOrchestration& chip) {
        chip.submit(chip.aiv("add").dumped(), in(chip.tensor(0)), in(chip.tensor(1)),
                    out(chip.tensor(2)));
      },
      Arguments().add(Access::in, a).add(Access::in, b).add(Access::out, sum), options());
  const auto all = lines();
  ASSERT_THAT(all, SizeIs(1));
  const auto& tensors = all[0]["tensors"];
  ASSERT_THAT(tensors, SizeIs(3));
  EXPECT_THAT(floats(tensors[0]["before"]), ElementsAre(1, 2));
  EXPECT_FALSE(tensors[0].contains("after"));
  EXPECT_THAT(floats(tensors[1]["before"]), ElementsAre(10, 20));
  EXPECT_FALSE(tensors[2].contains("before"));
  EXPECT_THAT(floats(tensors[2]["after"]), ElementsAre(11, 22));
}

TEST_P(ArgumentDumpTest, ElementsOfAViewAreWrittenInTheirOrderWithoutTheGaps) {
  std::vector<float> data = {1, 2, 3, 4, 5, 6};
  chip_.run(
      [](ChipOrchestration& chip) {
        const Tensor column = chip.tensor(0).select(1, 1);
        chip.submit(chip.aiv("increase"), dumped(inout(column)), scalar(10.0F));
      },
      Arguments().add(Access::inout, data.data(), {2, 3}), options());
  const auto all = lines();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_THAT(floats(all[0]["tensors"][0]["before"]), ElementsAre(2, 5));
  EXPECT_THAT(floats(all[0]["tensors"][0]["after"]), ElementsAre(12, 15));
}

TEST_P(ArgumentDumpTest, MarksInAGraphCountInEachOfItsReplays) {
  std::vector<float> data = {0};
  chip_.run(
      [](ChipOrchestration& chip) {
        const auto step = [](ChipOrchestration& graph, const GraphArguments& arguments) {
          graph.submit(graph.aiv("increase"), dumped(inout(arguments.tensor(0))), scalar(1.0F));
        };
        for (int i = 0; i < 3; ++i)
          chip.graph(+step, {chip.tensor(0)}, {});
      },
      Arguments().add(Access::inout, data), options());
  const auto all = lines();
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_THAT(floats(all[2]["tensors"][0]["before"]), ElementsAre(2));
  EXPECT_THAT(floats(all[2]["tensors"][0]["after"]), ElementsAre(3));
}

TEST_P(ArgumentDumpTest, TaskThatFailsIsListedWithWhatItRead) {
  std::vector<float> data = {7};
  EXPECT_ANY_THROW(chip_.run(
      [](ChipOrchestration& chip) {
        chip.submit(chip.aiv("fails").dumped(), inout(chip.tensor(0)));
      },
      Arguments().add(Access::inout, data), options()));
  const auto all = lines();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0]["ended_well"], false);
  EXPECT_THAT(floats(all[0]["tensors"][0]["before"]), ElementsAre(7));
  EXPECT_FALSE(all[0]["tensors"][0].contains("after"));
}

TEST_P(ArgumentDumpTest, AllWritesTasksWithoutMarksToo) {
  std::vector<float> data = {1};
  ChipRunOptions all = options();
  all.dump_all = true;
  const auto twice = [](ChipOrchestration& chip) {
    for (int i = 0; i < 2; ++i)
      chip.submit(chip.aiv("increase"), inout(chip.tensor(0)), scalar(1.0F));
  };
  chip_.run(twice, Arguments().add(Access::inout, data), all);
  EXPECT_THAT(lines(), SizeIs(2));
}

TEST_P(ArgumentDumpTest, NothingIsWrittenWhereTheRunDoesNotAsk) {
  std::vector<float> data = {1};
  chip_.run(
      [](ChipOrchestration& chip) {
        chip.submit(chip.aiv("increase").dumped(), inout(chip.tensor(0)), scalar(1.0F));
      },
      Arguments().add(Access::inout, data), {.mode = GetParam()});
  EXPECT_TRUE(fs::is_empty(dir_.path()));
}

TEST_P(ArgumentDumpTest, FolderThatCantBeMadeFailsTheRunByName) {
  std::ofstream(dir_.path() / "file") << "no folder";
  ChipRunOptions options;
  options.mode = GetParam();
  options.dump_to = (dir_.path() / "file" / "x").string();
  try {
    chip_.run([](ChipOrchestration&) {}, {}, options);
    FAIL() << "the run went well";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(options.dump_to.string()));
  }
}

}  // namespace
}  // namespace strata::chip::test
