// `strata run`: what it passes on, what it returns, and what it leaves: nothing.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "strata_command.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::SizeIs;

/// strata run [options] -- sh -c script
std::vector<std::string> shell(const std::string& script, std::vector<std::string> options = {}) {
  std::vector<std::string> arguments = {"run"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return arguments;
}

TEST(StrataRun, ExitCodeIsTheProgramsOwn) {
  for (const int code : {0, 1, 7, 255}) {
    const Program::Result result = strata_command(shell(fmt::format("exit {}", code)));
    EXPECT_EQ(result.code(), code);
    EXPECT_EQ(result.err, "");
  }
}

TEST(StrataRun, DeathBySignalIs128PlusItsNumberAndToldOf) {
  const Program::Result result = strata_command(shell("kill -SEGV $$"));
  EXPECT_EQ(result.code(), 128 + SIGSEGV);
  EXPECT_THAT(result.err, HasSubstr("sh was killed by signal 11 (segmentation fault)"));
  EXPECT_EQ(strata_command(shell("kill -TERM $$")).err, "") << "Nobody wants to read of this one.";
}

TEST(StrataRun, AProgramThatCanNotBeStartedIs127Or126) {
  const Program::Result nowhere = strata_command({"run", "--", "strata-no-such-program"});
  EXPECT_EQ(nowhere.code(), 127);
  EXPECT_THAT(nowhere.err, HasSubstr("'strata-no-such-program'"));
  EXPECT_EQ(strata_command({"run", "--", "/no/such/program"}).code(), 127);
  const TempDir folder;
  std::ofstream(folder.path() / "text") << "no program";
  EXPECT_EQ(strata_command({"run", "--", (folder.path() / "text").string()}).code(), 126);
}

TEST(StrataRun, InputAndOutputAreTheProgramsOwn) {
  std::string bytes;
  for (int i = 0; i < 300'000; ++i)
    bytes += static_cast<char>(i * 31 % 256);
  const Program::Result result = strata_command({"run", "--", "cat"}, {.input = bytes});
  EXPECT_EQ(result.code(), 0);
  EXPECT_TRUE(result.out == bytes);
  EXPECT_EQ(result.err, "");
}

TEST(StrataRun, WithoutDashesTheProgramsOptionsAreItsOwnToo) {
  const Program::Result result =
      strata_command({"run", "--no-prefix", "echo", "--timestamps", "-n"});
  EXPECT_EQ(result.out, "--timestamps -n\n");
}

TEST(StrataRun, LinesHaveTheNameOfTheProgramOrThePrefixOfTheWorker) {
  const std::string script = R"(printf 'one\n\036[node/chip[1]] two\nthree' >&2)";
  EXPECT_EQ(strata_command(shell(script)).err, "[sh] one\n[node/chip[1]] two\n[sh] three\n");
  EXPECT_EQ(strata_command(shell(script, {"--no-prefix"})).err, "one\ntwo\nthree\n");
}

TEST(StrataRun, TimestampsStandInFront) {
  const Program::Result result = strata_command(shell("echo x >&2", {"--timestamps"}));
  EXPECT_THAT(result.err, MatchesRegex("[0-9][0-9]:[0-9][0-9]:[0-9][0-9][.][0-9]+ .sh. x\n"));
}

TEST(StrataRun, TheLogFileHasTheSameLines) {
  const TempDir folder;
  const std::string path = folder.path() / "log";
  std::ofstream(path) << "from before\n";
  const Program::Result result =
      strata_command(shell("for i in 1 2 3; do echo $i >&2; done", {"--log-file", path}));
  std::stringstream file;
  file << std::ifstream(path).rdbuf();
  EXPECT_EQ(file.str(), "[sh] 1\n[sh] 2\n[sh] 3\n");
  EXPECT_EQ(result.err, file.str());
  EXPECT_EQ(strata_command(shell("true", {"--log-file", "/no/such/folder/log"})).code(), 1);
}

TEST(StrataRun, TheLevelReachesTheProgram) {
  EXPECT_EQ(strata_command(shell("echo $STRATA_LOG_LEVEL", {"--log-level", "debug"})).out,
            "debug\n");
  EXPECT_EQ(
      strata_command(shell("echo $STRATA_LOG_LEVEL"), {.environment = {"STRATA_LOG_LEVEL=error"}})
          .out,
      "error\n");
  EXPECT_EQ(strata_command(shell("true", {"--log-level", "loud"})).code(), 2);
}

TEST(StrataRun, TheProgramIsToldThatItsStderrIsRead) {
  const Program::Result result =
      strata_command(shell("echo $STRATA_LOG_STREAM; stat -L -c %d:%i /proc/self/fd/2"));
  const std::vector<std::string> lines = lines_of(result.out);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0], lines[1]);
}

TEST(StrataRun, NestedRunsPutOnePrefix) {
  std::vector<std::string> outer = {"run", "--"};
  for (const std::string& word : strata_with(shell("echo x >&2; exit 4")))
    outer.push_back(word);
  const Program::Result result = strata_command(outer);
  EXPECT_EQ(result.code(), 4);
  EXPECT_EQ(result.err, "[sh] x\n");
}

TEST(StrataRun, OtherOpenDescriptorsArePassedOn) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const os::UniqueFd read_end(ends[0]);
  os::UniqueFd write_end(ends[1]);
  EXPECT_EQ(strata_command(shell("echo seven >&7"), {.descriptors = {{write_end.get(), 7}}}).code(),
            0);
  write_end.reset();
  char bytes[16] = {};
  EXPECT_EQ(::read(read_end.get(), bytes, sizeof bytes), 6);
  EXPECT_STREQ(bytes, "seven\n");
}

TEST(StrataRun, SignalsAreForwardedOnce) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT}) {
    Program program(strata_with(shell(
        fmt::format("n=0; trap 'n=$((n+1))' {}; echo ready; while [ $n = 0 ]; do sleep 0.01; done; "
                    "sleep 0.1; echo got $n; exit 9",
                    signal))));
    program.wait_for_output("ready");
    program.send(signal);
    const Program::Result result = program.finish();
    EXPECT_EQ(result.code(), 9) << signal;
    EXPECT_EQ(result.out, "ready\ngot 1\n") << signal;
  }
}

TEST(StrataRun, ASignalToItsWholeGroupReachesTheProgramOnce) {
  Program program(
      strata_with(shell("n=0; trap 'n=$((n+1))' TERM; echo ready; "
                        "while [ $n = 0 ]; do sleep 0.01; done; sleep 0.1; echo got $n")),
      {.own_group = true});
  program.wait_for_output("ready");
  ASSERT_EQ(::kill(-program.pid(), SIGTERM), 0);
  EXPECT_EQ(program.finish().out, "ready\ngot 1\n");
}

TEST(StrataRun, WhatIsLeftBehindIsNamedAndEnded) {
  const Program::Result result =
      strata_command(shell("setsid sleep 1001 & echo $!; sh -c 'sleep 1002 & echo $!'; exit 3"));
  EXPECT_EQ(result.code(), 3);
  const std::vector<std::string> pids = lines_of(result.out);
  ASSERT_THAT(pids, SizeIs(2));
  EXPECT_THAT(result.err, HasSubstr("left these processes behind"));
  EXPECT_THAT(result.err, HasSubstr("(sleep 1001)"));
  EXPECT_THAT(result.err, HasSubstr(pids[1] + " (sleep 1002)"));
  for (const std::string& pid : pids)
    wait_until_gone(std::stoi(pid));
}

TEST(StrataRun, WhatIgnoresSigtermOrIsStoppedIsEndedToo) {
  const Program::Result result =
      strata_command(shell("sh -c 'trap \"\" TERM; while :; do sleep 0.01; done' & echo $!; "
                           "sleep 1003 & kill -STOP $!; echo $!"));
  EXPECT_EQ(result.code(), 0);
  for (const std::string& pid : lines_of(result.out))
    wait_until_gone(std::stoi(pid));
}

TEST(StrataRun, ProcessesThatEndByThemselvesAreNotReported) {
  const Program::Result result = strata_command(shell("sleep 0.2 & exit 0"));
  EXPECT_EQ(result.err, "");
}

TEST(StrataRun, KillingItEndsTheProgram) {
  Program program(strata_with(shell("echo pid $$.; while :; do sleep 0.01; done")));
  const std::string out = program.wait_for_output(".");
  program.send(SIGKILL);
  wait_until_gone(std::stoi(out.substr(4)));
  EXPECT_EQ(program.finish().status.value, SIGKILL);
}

TEST(StrataRun, AFloodWithASlowReaderLosesNoLine) {
  constexpr int kLines = 60'000;
  Program program(strata_with(shell(fmt::format("seq 1 {} >&2; echo done", kLines))),
                  {.read_stderr = false});
  // Nobody reads: the program has to wait, as on a terminal.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(program.running());
  program.read_stderr();
  const Program::Result result = program.finish();
  EXPECT_EQ(result.code(), 0);
  const std::vector<std::string> lines = lines_of(result.err);
  ASSERT_THAT(lines, SizeIs(kLines));
  for (int i = 0; i < kLines; ++i)
    ASSERT_EQ(lines[i], fmt::format("[sh] {}", i + 1));
}

TEST(StrataRun, SignalsAreForwardedAlsoWhileNobodyReadsTheLog) {
  Program program(strata_with(shell("trap 'exit 5' TERM; echo ready; "
                                    "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx >&2; done")),
                  {.read_stderr = false});
  program.wait_for_output("ready");
  // The first ends the program, another one then gives up on the lines that nobody takes.
  while (program.running()) {
    program.send(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(program.finish().code(), 5);
}

}  // namespace
}  // namespace strata::test
