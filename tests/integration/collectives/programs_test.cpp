// allreduce_distributed and text_statistics, run as a user runs them: what they print, what they
// write, and how they end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "chip/npy.hpp"
#include "strata/strata.hpp"
#include "support/program.hpp"
#include "support/random.hpp"
#include "support/temp_dir.hpp"
#include "support/time_bounds.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::chrono::minutes kPatience{5};

struct Outcome {
  ProgramEnd end;
  std::string output;
  std::string errors;
};

Outcome run(const std::string& path, const std::vector<std::string>& arguments,
            const Program::Environment& environment = {}) {
  Program program(path, arguments, environment);
  const auto end = program.end(kPatience);
  return {end.value_or(ProgramEnd{}), program.output(), program.errors()};
}
Outcome allreduce(const std::vector<std::string>& arguments) {
  return run(STRATA_EXAMPLE_PROGRAMS "/allreduce_distributed", arguments);
}
Outcome statistics(const std::vector<std::string>& arguments) {
  return run(STRATA_EXAMPLE_PROGRAMS "/text_statistics", arguments);
}

std::size_t count(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  return static_cast<std::size_t>(
      std::distance(std::sregex_iterator(text.begin(), text.end(), expression), {}));
}

void expect_right(const Outcome& outcome) {
  EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 0})) << outcome.output << outcome.errors;
  EXPECT_EQ(outcome.errors, "");
  EXPECT_THAT(outcome.output, HasSubstr("\nright"));
}

// ---- allreduce_distributed ----------------------------------------------------------------------

/// Each rank has a line that says it is right, with a time and a bandwidth.
void expect_ranks(const Outcome& outcome, std::size_t ranks) {
  expect_right(outcome);
  EXPECT_EQ(count(outcome.output, R"(\n +\d+ +\d+ +node/chip\[\d+\] .* [mun]?s .* GB/s +ok(?=\n))"),
            ranks)
      << outcome.output;
}

TEST(AllreduceProgram, IsRightAsItComes) { expect_ranks(allreduce({}), 2); }

TEST(AllreduceProgram, IsRightByKernelsAndByTasksInEitherMemory) {
  for (const char* const by : {"kernel", "task"}) {
    for (const char* const memory : {"own", "window"}) {
      expect_ranks(allreduce({"-p", "a2a3sim", "-d", "0-2", "--by", by, "--memory", memory,
                              "--count", "100003", "--repeat", "2"}),
                   3);
    }
  }
}

TEST(AllreduceProgram, IsRightForEveryTypeOperationAndAlgorithm) {
  for (const char* const dtype : {"float32", "float16", "bfloat16", "int32", "int64", "uint8"}) {
    for (const char* const op : {"sum", "prod", "min", "max"}) {
      expect_ranks(allreduce({"-p", "cpu:clusters=1", "--dtype", dtype, "--op", op, "--count",
                              "1001", "--repeat", "1"}),
                   2);
    }
  }
  for (const char* const algorithm : {"one_phase", "two_phase", "ring", "bidirectional_ring"}) {
    const Outcome outcome =
        allreduce({"-p", "cpu:clusters=1", "-d", "0-3", "--algorithm", algorithm, "--repeat", "1"});
    expect_ranks(outcome, 4);
    EXPECT_THAT(outcome.output, HasSubstr(std::string("algorithm ") + algorithm + "\n"));
  }
}

TEST(AllreduceProgram, IsRightOnSixteenChipsAndOneElement) {
  expect_ranks(allreduce({"-p", "cpu:clusters=1", "-d", "0-15", "--count", "1", "--repeat", "1"}),
               16);
}

TEST(AllreduceProgram, BlocksHaveChannelsOfTheirOwn) {
  expect_ranks(allreduce({"--blocks", "8", "--repeat", "2"}), 2);
  // Some blocks have nothing.
  expect_ranks(allreduce({"--blocks", "8", "--count", "3", "--repeat", "1"}), 2);
}

TEST(AllreduceProgram, DevicesAreNamedAsUsersKnowThem) {
  const Outcome outcome = allreduce({"-p", "cpu:clusters=1", "-d", "7,2,4-5", "--count", "10"});
  expect_ranks(outcome, 4);
  EXPECT_THAT(outcome.output, testing::ContainsRegex("0 +7 .*\n.* 1 +2 .*\n.* 2 +4 .*\n.* 3 +5 "));
}

TEST(AllreduceProgram, ReadsAndWritesFilesOfNumpy) {
  const TempDir folder;
  const auto file = [&](const std::string& name) { return (folder.path() / name).string(); };
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<std::int32_t> values = {rank, 10 * rank, -1, 1 << (8 * rank)};
    chip::HostTensor tensor{.dtype = DType::int32, .shape = {2, 2}};
    tensor.bytes.resize(16);
    std::memcpy(tensor.bytes.data(), values.data(), 16);
    chip::write_npy(file("rank" + std::to_string(rank) + ".npy"), tensor);
  }
  expect_ranks(allreduce({"-p", "cpu:clusters=1", "-d", "0-2", "--input", file("rank{rank}.npy"),
                          "--output", file("out.npy")}),
               3);
  const chip::HostTensor sum = chip::read_npy(file("out.npy"));
  EXPECT_EQ(sum.dtype, DType::int32);
  EXPECT_THAT(sum.shape, testing::ElementsAre(2, 2));
  const auto* const values = reinterpret_cast<const std::int32_t*>(sum.bytes.data());
  EXPECT_THAT(std::vector(values, values + 4), testing::ElementsAre(3, 30, -3, 65793));

  expect_ranks(allreduce({"-p", "cpu:clusters=1", "-d", "0-2", "--input", file("rank{rank}.npy"),
                          "--output", file("out{rank}.npy"), "--op", "max", "--by", "task"}),
               3);
  for (const char* const name : {"out0.npy", "out1.npy", "out2.npy"})
    EXPECT_EQ(reinterpret_cast<const std::int32_t*>(chip::read_npy(file(name)).bytes.data())[1],
              20);
}

TEST(AllreduceProgram, SaysWhatIsWrongWithItsFiles) {
  const TempDir folder;
  const std::string pattern = (folder.path() / "x{rank}.npy").string();
  const auto write = [&](const char* name, DType dtype, std::int64_t count) {
    chip::HostTensor tensor{.dtype = dtype, .shape = {count}};
    tensor.bytes.resize(static_cast<std::size_t>(count) * size_of(dtype));
    chip::write_npy(folder.path() / name, tensor);
  };
  const auto errors = [&](std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"-p", "cpu:clusters=1", "--input", pattern});
    const Outcome outcome = allreduce(more);
    EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 1})) << outcome.output;
    return outcome.errors;
  };
  write("x0.npy", DType::float32, 4);
  EXPECT_THAT(errors(), AllOf(HasSubstr("x1.npy"), HasSubstr("No such file")));
  write("x1.npy", DType::float32, 5);
  EXPECT_THAT(errors(), AllOf(HasSubstr("x0.npy' has 4 x float32"), HasSubstr("5 x float32")));
  write("x1.npy", DType::float32, 4);
  EXPECT_THAT(errors({"--count", "3"}), HasSubstr("--count says 3"));
  EXPECT_THAT(errors({"--dtype", "int32"}), HasSubstr("int32 is due"));
  write("x0.npy", DType::float64, 4);
  write("x1.npy", DType::float64, 4);
  EXPECT_THAT(errors(), HasSubstr("float64, which can't be combined"));
}

TEST(AllreduceProgram, FindsAWrongValueOnEveryRank) {
  const Outcome outcome = allreduce({"-p", "cpu:clusters=1", "--spoil", "--count", "100"});
  EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 1}));
  EXPECT_EQ(count(outcome.output, "WRONG: 1 elements, the first is 50\n"), 2U) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("\nWRONG\n"));
}

TEST(AllreduceProgram, WritesATimelineOfEachRanksTasks) {
  const TempDir folder;
  const std::string file = (folder.path() / "trace.json").string();
  for (const char* const by : {"kernel", "task"}) {
    expect_ranks(allreduce({"-p", "cpu:clusters=1", "-d", "0-2", "--by", by, "--repeat", "4",
                            "--trace", file}),
                 3);
    std::ifstream in(file);
    const nlohmann::json trace = nlohmann::json::parse(in);
    std::map<int, std::string> processes;
    std::map<std::string, int> tasks;
    for (const auto& event : trace["traceEvents"]) {
      if (event["ph"] == "M") processes[event["pid"]] = event["args"]["name"];
      if (event["ph"] != "X" || event["name"] != "all_reduce") continue;
      EXPECT_GT(event["dur"], 0);
      ++tasks[processes[event["pid"]]];
    }
    EXPECT_THAT(tasks, testing::ElementsAre(testing::Pair("node/chip[0]", 4),
                                            testing::Pair("node/chip[1]", 4),
                                            testing::Pair("node/chip[2]", 4)));
  }
}

TEST(AllreduceProgram, APlatformThatIsNotThereIsOneClearError) {
  if (run("/bin/sh", {"-c", "ldconfig -p | grep -q libascendcl"}).end.exit_code == 0)
    GTEST_SKIP() << "CANN is installed";
  for (const char* const program : {"allreduce_distributed", "text_statistics"}) {
    std::vector<std::string> arguments = {"-p", "a2a3", "-d", "0-1"};
    if (program[0] == 't') arguments.insert(arguments.begin(), "/dev/null");
    const Outcome outcome = run(std::string(STRATA_EXAMPLE_PROGRAMS "/") + program, arguments);
    EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 2}));
    EXPECT_EQ(outcome.output, "");
    EXPECT_EQ(count(outcome.errors, "\n"), 1U) << outcome.errors;
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr("platform 'a2a3' can't be used here"),
                                      HasSubstr("libascendcl.so"), HasSubstr("a2a3sim")));
  }
  EXPECT_EQ(allreduce({"-p", "no_such_chip"}).end, (ProgramEnd{.exit_code = 2}));
}

TEST(AllreduceProgram, RefusesArgumentsThatMakeNoSense) {
  const std::vector<std::vector<std::string>> wrong = {{"-d", "0"},
                                                       {"-d", "0-16"},
                                                       {"-d", "3-1"},
                                                       {"-d", "0,0"},
                                                       {"-d", "x"},
                                                       {"-d", "0-"},
                                                       {"-d", ""},
                                                       {"--count", "0"},
                                                       {"--count", "-1"},
                                                       {"--dtype", "float64"},
                                                       {"--op", "mean"},
                                                       {"--algorithm", "best"},
                                                       {"--input", "x.npy"},
                                                       {"--repeat", "0"},
                                                       {"--no-such"},
                                                       {"--blocks", "0"},
                                                       {"more"},
                                                       {"--by", "task", "--blocks", "2"}};
  for (const std::vector<std::string>& arguments : wrong) {
    const Outcome outcome = allreduce(arguments);
    EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 2})) << testing::PrintToString(arguments);
    EXPECT_THAT(outcome.errors, HasSubstr("--help")) << testing::PrintToString(arguments);
  }
  const Outcome help = allreduce({"--help"});
  EXPECT_EQ(help.end, (ProgramEnd{.exit_code = 0}));
  for (const char* const option : {"--platform", "--device", "--count", "--dtype", "--op",
                                   "--algorithm", "--input", "--output", "--trace", "--by"})
    EXPECT_THAT(help.output, HasSubstr(option));
}

// ---- text_statistics ----------------------------------------------------------------------------

/// What wc says: lines, words, bytes.
std::vector<std::string> by_wc(const std::filesystem::path& file) {
  std::vector<std::string> found;
  for (const char* const what : {"-l", "-w", "-c"}) {
    Program program("/bin/sh", {"-c", std::string("wc ") + what + " < '" + file.string() + "'"},
                    {{"LC_ALL", "C"}});
    EXPECT_EQ(program.end(kPatience), (ProgramEnd{.exit_code = 0}));
    found.push_back(std::to_string(std::stoull(program.output())));
  }
  return found;
}

/// What the program says, in the same order.
std::vector<std::string> by_chips(const std::filesystem::path& file,
                                  std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), file.string());
  const Outcome outcome = statistics(arguments);
  expect_right(outcome);
  std::vector<std::string> found;
  for (const char* const what : {"lines", "words", "bytes"}) {
    std::smatch match;
    const std::regex row(std::string("\n *(\\d+)  ") + what + "\n");
    EXPECT_TRUE(std::regex_search(outcome.output, match, row)) << outcome.output;
    found.push_back(match.empty() ? "" : match[1].str());
  }
  return found;
}

/// Whether this machine's wc ignores bytes that are not printable, as ours does; newer ones take
/// them for parts of words.
bool wc_ignores_what_is_not_printable() {
  Program program("/bin/sh", {"-c", "printf '\\200' | wc -w"}, {{"LC_ALL", "C"}});
  EXPECT_EQ(program.end(kPatience), (ProgramEnd{.exit_code = 0}));
  return std::stoi(program.output()) == 0;
}

class TextProgram : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_.path() / name, std::ios::binary) << content;
    return folder_.path() / name;
  }
  TempDir folder_;
};

const std::vector<std::string> kOneChip = {"-p", "cpu:clusters=1", "-d", "0"};
const std::vector<std::string> kFiveChips = {"-p", "cpu:clusters=1", "-d", "0-4"};
const std::vector<std::string> kBytewise = {"-p", "cpu:clusters=1", "-d", "0-2", "--piece", "1"};

TEST_F(TextProgram, CountsTextsAsWcDoesWhereverTheyAreCut) {
  const std::vector<std::string> texts = {"",
                                          "a",
                                          "\n",
                                          " ",
                                          "ab",
                                          "a b",
                                          "word\n",
                                          " a ",
                                          "a\nb\n",
                                          "\t\v\f\r a",
                                          "aaa bbb",
                                          "a  b  ",
                                          "x\n\n\ny",
                                          "one two three four",
                                          "a\n b",
                                          "\n\n\n\n",
                                          "no newline",
                                          std::string(1000, 'w'),
                                          std::string(1000, ' ')};
  for (const std::string& text : texts) {
    const auto file = write("text", text);
    const std::vector<std::string> expected = by_wc(file);
    SCOPED_TRACE(testing::PrintToString(text));
    EXPECT_EQ(by_chips(file, kFiveChips), expected);
    EXPECT_EQ(by_chips(file, kBytewise), expected);
  }
}

TEST_F(TextProgram, CountsBinaryFilesAsWcDoes) {
  Random random(3);
  const bool comparable = wc_ignores_what_is_not_printable();
  for (const std::size_t size : {1, 100, 5000, 300007}) {
    std::string bytes(size, '\0');
    for (char& c : bytes)
      c = static_cast<char>(random.below(256));
    // Long stretches without anything printable, across pieces.
    for (std::size_t i = size / 4; i < size / 2; ++i)
      bytes[i] = static_cast<char>(0x80 + random.below(100));
    const auto file = write("bytes", bytes);
    std::vector<std::string> expected = by_wc(file);
    std::vector<std::string> one = by_chips(file, kOneChip);
    std::vector<std::string> five = by_chips(file, kFiveChips);
    EXPECT_EQ(one, five);
    if (!comparable) expected[1] = one[1];
    EXPECT_EQ(one, expected) << size;
  }
}

TEST_F(TextProgram, CountsATextOfMegabytesOnAnyNumberOfChips) {
  std::string text;
  Random random(5);
  while (text.size() < (kSanitized ? 1'000'000U : 20'000'000U)) {
    text.append(1 + random.below(9), static_cast<char>('a' + random.below(26)));
    text += random.chance(10) ? '\n' : ' ';
  }
  const auto file = write("long", text);
  const std::vector<std::string> expected = by_wc(file);
  EXPECT_EQ(by_chips(file, kOneChip), expected);
  EXPECT_EQ(by_chips(file, kFiveChips), expected);
  EXPECT_EQ(by_chips(file, {"-p", "a2a3sim", "-d", "0-1"}), expected);
}

TEST_F(TextProgram, PrintsTheMostFrequentPairsOfBytes) {
  const Outcome outcome = statistics(
      {write("pairs", "abababab \"\\\n\x01\xff").string(), "-p", "cpu:clusters=1", "--top", "3"});
  expect_right(outcome);
  EXPECT_THAT(outcome.output,
              testing::ContainsRegex("\n +4  pairs \"ab\"\n +3  pairs \"ba\"\n +1 "));
  EXPECT_EQ(count(outcome.output, "  pairs "), 3U);
  const Outcome all = statistics({(folder_.path() / "pairs").string(), "-p", "cpu:clusters=1"});
  EXPECT_THAT(all.output, AllOf(HasSubstr("\"\\x01\\xff\""), HasSubstr("\"\\\\\\n\"")));
  EXPECT_THAT(statistics({write("one", "x").string(), "-p", "cpu:clusters=1"}).output,
              Not(HasSubstr("pairs ")));
}

TEST_F(TextProgram, WritesATimelineOfAllItsProcesses) {
  const std::string trace = (folder_.path() / "trace.json").string();
  expect_right(statistics({write("text", std::string(100000, 'x')).string(), "-p", "cpu:clusters=1",
                           "-d", "0-2", "--trace", trace}));
  std::ifstream in(trace);
  std::map<std::string, int> tasks;
  const nlohmann::json events = nlohmann::json::parse(in)["traceEvents"];
  for (const auto& event : events) {
    if (event["ph"] == "X") ++tasks[event["name"]];
  }
  EXPECT_EQ(tasks["count"], 3);
  EXPECT_EQ(tasks["all_reduce"], 3);
  EXPECT_EQ(tasks["make_table"], 1);
}

TEST_F(TextProgram, SaysWhatIsWrong) {
  const auto expect = [](const std::vector<std::string>& arguments, int code,
                         const std::string& text) {
    const Outcome outcome = statistics(arguments);
    EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = code})) << testing::PrintToString(arguments);
    EXPECT_THAT(outcome.errors, HasSubstr(text));
  };
  expect({"/no/such/file"}, 1, "can't read '/no/such/file': No such file");
  expect({"/"}, 1, "can't read '/': Is a directory");
  expect({}, 2, "file is required");
  expect({"/dev/null", "-d", "0-64"}, 2, "65 chips");
  expect({"/dev/null", "--piece", "0"}, 2, "--piece");
  expect({"/dev/null", "other"}, 2, "--help");
  EXPECT_THAT(statistics({"--help"}).output, AllOf(HasSubstr("wc -w"), HasSubstr("--trace")));
}

}  // namespace
}  // namespace strata::test
