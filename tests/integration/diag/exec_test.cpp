// `strata exec`: what passes through, what it returns, what the report says of each kind of hang,
// and what is left afterwards: nothing.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "diag_run.hpp"
#include "support/marked_processes.hpp"
#include "support/nothing_left.hpp"
#include "support/time_bounds.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

constexpr int kTimedOut = 124;

std::vector<std::string> shell(const std::string& script) { return {"sh", "-c", script}; }

/// Only those that promise it at once: a time-out of the test's own would hide that.
const std::vector<std::string> kSoon = {"--timeout", "0.5", "--grace", "0.5"};

// ---- Without a time-out -------------------------------------------------------------------------

TEST(StrataExec, ExitCodeIsTheProgramsOwn) {
  for (const int code : {0, 1, 7, 124, 255}) {
    const Executed executed = execute({}, shell(fmt::format("exit {}", code)));
    EXPECT_EQ(executed.result.code(), code);
    EXPECT_EQ(executed.result.err, "");
    EXPECT_TRUE(executed.report.is_null());
  }
  EXPECT_EQ(execute({}, shell("kill -SEGV $$")).result.code(), 128 + SIGSEGV);
}

TEST(StrataExec, AProgramThatCanNotBeStartedIs127Or126) {
  EXPECT_EQ(execute({}, {"strata-no-such-program"}).result.code(), 127);
  EXPECT_EQ(execute({}, {"/no/such/program"}).result.code(), 127);
  EXPECT_EQ(execute({}, {"/etc/passwd"}).result.code(), 126);
}

TEST(StrataExec, ACommandLineThatMakesNoSenseIs2) {
  EXPECT_EQ(strata_command({"exec"}).code(), 2);
  EXPECT_EQ(strata_command({"exec", "--timeout", "soon", "--", "true"}).code(), 2);
  EXPECT_EQ(strata_command({"exec", "--timeout", "-1", "--", "true"}).code(), 2);
}

TEST(StrataExec, InputAndOutputAreTheProgramsOwn) {
  std::string bytes;
  for (int i = 0; i < 300'000; ++i)
    bytes += static_cast<char>(i * 31 % 256);
  const Program::Result result = strata_command({"exec", "--", "cat"}, {.input = bytes});
  EXPECT_EQ(result.code(), 0);
  EXPECT_TRUE(result.out == bytes);
  const Program::Result errors =
      strata_command({"exec", "--", "sh", "-c", "cat >&2"}, {.input = bytes});
  EXPECT_TRUE(errors.err == bytes);
}

TEST(StrataExec, OutputsThatGoToOnePlaceStayInOrder) {
  const std::string script =
      "exec 2>&1; exec \"$0\" exec -- sh -c 'for i in $(seq 200); do echo out $i; echo err $i >&2; "
      "done'";
  const Program::Result result = Program({"sh", "-c", script, STRATA_COMMAND_PATH}).finish();
  std::string expected;
  for (int i = 1; i <= 200; ++i)
    expected += fmt::format("out {}\nerr {}\n", i, i);
  EXPECT_EQ(result.out, expected);
}

TEST(StrataExec, AProgramWhoseOutputNobodyTakesIsTold) {
  const Program::Result result = Program({"sh", "-c", "\"$0\" exec -- \"$1\" count | head -1",
                                          STRATA_COMMAND_PATH, diag_program("stuck_program")})
                                     .finish();
  EXPECT_EQ(result.out, "line 0\n");
}

TEST(StrataExec, WhatIsLeftBehindIsNamedAndEnded) {
  const Executed executed =
      execute({}, shell("setsid sleep 1001 & echo $!; sh -c 'sleep 1002 & echo $!'; exit 3"));
  EXPECT_EQ(executed.result.code(), 3);
  EXPECT_THAT(executed.result.err,
              AllOf(HasSubstr("left these processes behind"), HasSubstr("(sleep 1002)")));
  const auto pids = lines_of(executed.result.out);
  ASSERT_THAT(pids, SizeIs(2));
  for (const std::string& pid : pids)
    EXPECT_TRUE(is_gone(std::stoi(pid)));
}

TEST(StrataExec, SignalsAreForwarded) {
  for (const int signal : {SIGINT, SIGHUP, SIGUSR1, SIGQUIT}) {
    Program program(strata_with(
        {"exec", "--", "sh", "-c",
         fmt::format("trap 'exit 9' {}; echo ready; while :; do sleep 0.01; done", signal)}));
    program.wait_for_output("ready");
    program.send(signal);
    EXPECT_EQ(program.finish().code(), 9) << signal;
  }
}

// ---- Kinds of hangs -----------------------------------------------------------------------------

struct Kind {
  const char* step;
  const char* function;
  const char* says;  ///< Of the verdict.
};
constexpr Kind kKinds[] = {
    {"futex", "stuck_on_a_futex", "futex: waits on"},
    {"spin", "stuck_in_a_spin", "computes or spins"},
    {"sleep", "stuck_in_a_sleep", "clock_nanosleep: sleeps"},
    {"read", "stuck_in_a_read", "which only the process itself can write to"},
    {"lock", "stuck_on_a_lock", "for a lock that thread"},
};

/// The report has the function, the verdict names it, all are listed, and all are gone.
void expect_explained(const Executed& executed, const Kind& kind, std::size_t processes) {
  EXPECT_EQ(executed.result.code(), kTimedOut);
  ASSERT_FALSE(executed.report.is_null());
  EXPECT_THAT(executed.pids, SizeIs(processes));
  EXPECT_THAT(all_functions(executed.report), Contains(kind.function));
  EXPECT_THAT(verdict_of(executed.report), AllOf(HasSubstr(kind.function), HasSubstr(kind.says)));
  // The text says the same.
  EXPECT_THAT(executed.result.err, AllOf(HasSubstr(kind.function), HasSubstr(kind.says)));
  for (const int pid : executed.pids) {
    EXPECT_THAT(executed.result.err, HasSubstr(fmt::format("---- pid {} ----", pid)));
    EXPECT_TRUE(is_gone(pid));
  }
}

TEST(StrataExec, AGrandchildForkedTwoDeepIsExplained) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.step);
    expect_explained(execute(kSoon, stuck({"fork", "fork", kind.step})), kind, 3);
  }
}

TEST(StrataExec, AGrandchildWithoutAParentInASessionOfItsOwnIsExplained) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.step);
    expect_explained(execute(kSoon, stuck({"daemon", kind.step})), kind, 2);
  }
}

TEST(StrataExec, AProgramThatIgnoresSigtermIsExplainedAndEnded) {
  expect_explained(execute(kSoon, stuck({"ignore", "fork", "futex"})), kKinds[0], 2);
}

TEST(StrataExec, AStoppedProgramIsExplainedAndEnded) {
  const Executed executed = execute(kSoon, stuck({"fork", "ignore", "stop"}));
  EXPECT_EQ(executed.result.code(), kTimedOut);
  ASSERT_THAT(executed.pids, SizeIs(2));
  EXPECT_THAT(verdict_of(executed.report), AllOf(HasSubstr(fmt::format("pid {}", executed.pids[1])),
                                                 HasSubstr("is stopped by a signal")));
  EXPECT_THAT(functions_of(executed.report.at("processes")[1]), Contains("main"));
  for (const int pid : executed.pids)
    EXPECT_TRUE(is_gone(pid));
}

TEST(StrataExec, AStaticProgramIsExplained) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "It is not built with sanitizers.";
#else
  if (!std::ifstream(diag_program("stuck_program_static"))) GTEST_SKIP() << "It was not built.";
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.step);
    expect_explained(execute(kSoon, stuck({"fork", kind.step}, "stuck_program_static")), kind, 2);
  }
#endif
}

TEST(StrataExec, AStrippedProgramIsUnwoundAndItsPlacesAreModuleAndOffset) {
  if (!std::ifstream(diag_program("stuck_program_stripped"))) GTEST_SKIP() << "It was not built.";
  const Executed executed = execute(kSoon, stuck({"fork", "read"}, "stuck_program_stripped"));
  EXPECT_EQ(executed.result.code(), kTimedOut);
  ASSERT_THAT(executed.pids, SizeIs(2));
  const auto& process = executed.report.at("processes")[1];
  // read() and the start of the program have names; what is between them has its place.
  EXPECT_THAT(functions_of(process), Contains(HasSubstr("libc_start")));
  std::size_t own = 0;
  for (const auto& frame : process.at("threads")[0].at("frames")) {
    if (frame.at("module") != diag_program("stuck_program_stripped")) continue;
    ++own;
    EXPECT_LT(frame.at("offset"), 1 << 20);
    EXPECT_NE(frame.at("build_id"), "");
  }
  EXPECT_GE(own, 2U);
}

TEST(StrataExec, ManyThreadsAreAllThere) {
  const Executed executed = execute(kSoon, stuck({"fork", "threads=40", "sleep"}));
  ASSERT_THAT(executed.pids, SizeIs(2));
  const auto& threads = executed.report.at("processes")[1].at("threads");
  EXPECT_THAT(threads, SizeIs(41));
  std::size_t in_pool = 0;
  double held = 0;
  for (const auto& thread : threads) {
    held += thread.at("stopped_for_s").get<double>();
    bool found = false;
    for (const auto& frame : thread.at("frames"))
      found = found || frame.at("function") == "stuck_in_a_pool";
    in_pool += found ? 1 : 0;
  }
  EXPECT_EQ(in_pool, 40U);
  EXPECT_LT(held, 0.1 * time_factor()) << "The promise is 100 ms on an idle machine.";
  EXPECT_THAT(verdict_of(executed.report), HasSubstr("40 threads of"));
}

TEST(StrataExec, WithoutLeaveToTraceItSaysSoAndTellsWhatProcTells) {
  const TempDir folder;
  const std::string path = folder.path() / "report.json";
  const Program::Result result =
      Program({diag_program("no_ptrace_program"), STRATA_COMMAND_PATH, "exec", "--timeout", "0.5",
               "--report", path, "--json", "--", diag_program("stuck_program"), "fork", "read"},
              // Which traces the program itself.
              {.environment = {"ASAN_OPTIONS=detect_leaks=0"}})
          .finish();
  EXPECT_EQ(result.code(), kTimedOut);
  const auto report = nlohmann::json::parse(std::ifstream(path));
  ASSERT_THAT(report.at("processes"), SizeIs(2));
  for (const auto& process : report.at("processes")) {
    EXPECT_THAT(process.at("note"), HasSubstr("ptrace is not permitted"));
    EXPECT_TRUE(process.at("threads")[0].at("frames").empty());
  }
  EXPECT_THAT(report.at("processes")[1].at("threads")[0].at("doing"), HasSubstr("read of"));
  EXPECT_THAT(result.err, HasSubstr("which only the process itself can write to"));
}

TEST(StrataExec, SigtermIsExplainedTooAndIs143) {
  const TempDir folder;
  const std::string path = folder.path() / "report.json";
  Program program(strata_with({"exec", "--grace", "0.5", "--report", path, "--json", "--",
                               diag_program("stuck_program"), "ready", "fork", "futex"}));
  program.wait_for_output("ready");
  program.send(SIGTERM);
  const Program::Result result = program.finish();
  EXPECT_EQ(result.code(), 128 + SIGTERM);
  EXPECT_THAT(result.err, HasSubstr("SIGTERM"));
  const auto report = nlohmann::json::parse(std::ifstream(path));
  EXPECT_EQ(report.at("cause"), "signal");
  for (const auto& process : report.at("processes"))
    EXPECT_TRUE(is_gone(process.at("pid")));
}

// ---- Output at the time-out ---------------------------------------------------------------------

/// "line 0\nline 1\n..." without a gap; returns how many.
std::size_t expect_numbered(const std::string& text) {
  std::size_t count = 0;
  for (const std::string& line : lines_of(text)) {
    if (line != fmt::format("line {}", count)) {
      ADD_FAILURE() << "after line " << count << " came '" << line << "'";
      break;
    }
    ++count;
  }
  return count;
}

TEST(StrataExec, NoLineUpToTheEndIsLostAndTheTailIsTheLastOfThem) {
  const Executed executed = execute(kSoon, stuck({"fork", "count"}));
  EXPECT_EQ(executed.result.code(), kTimedOut);
  ASSERT_FALSE(executed.report.is_null());
  const std::size_t count = expect_numbered(executed.result.out);
  EXPECT_GT(count, 100U);
  const auto tail = lines_of(executed.report.at("output").at("stdout"));
  ASSERT_THAT(tail, SizeIs(40));
  EXPECT_THAT(tail, Contains(StartsWith("line ")));
  EXPECT_THAT(executed.result.out, HasSubstr(tail.front() + "\n" + tail[1] + "\n"));
}

TEST(StrataExec, TheTailIsTheLastThatWasWrittenBeforeTheHang) {
  const Executed executed = execute(kSoon, stuck({"say=first", "say=last words", "futex"}));
  EXPECT_EQ(executed.report.at("output").at("stdout"), "first\nlast words\n");
  EXPECT_EQ(executed.result.out, "first\nlast words\n");
  EXPECT_THAT(executed.result.err, HasSubstr("last words"));
}

TEST(StrataExec, AReaderThatTakesNothingHoldsNeitherTheReportNorTheEndUp) {
  // Our own stdout is a pipe with next to no room left, and nobody reads.
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const os::UniqueFd read_end(ends[0]);
  os::UniqueFd write_end(ends[1]);
  const std::string block(4096, 'x');
  while (::write(write_end.get(), block.data(), block.size()) > 0) {
  }
  ASSERT_EQ(::fcntl(write_end.get(), F_SETFL, 0), 0);
  const TempDir folder;
  const std::string path = folder.path() / "report.txt";
  Program program(
      {"sh", "-c", "exec \"$@\" >&9", "sh", STRATA_COMMAND_PATH, "exec", "--timeout", "0.5",
       "--grace", "0.2", "--report", path, "--", diag_program("stuck_program"), "two", "flood"},
      {.descriptors = {{write_end.get(), 9}}});
  // The report is there, and what printed is gone, before anybody reads.
  ASSERT_TRUE(within(std::chrono::seconds(6), [&] {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str().find("end of the report") != std::string::npos;
  }));
  ASSERT_TRUE(
      within(std::chrono::seconds(6), [&] { return os::descendants_of(program.pid()).empty(); }));
  // Then it can be read, and ends.
  write_end.reset();
  std::string taken;
  std::thread reader([&] {
    (void)::fcntl(read_end.get(), F_SETFL, 0);
    char bytes[4096];
    ssize_t got = 0;
    while ((got = ::read(read_end.get(), bytes, sizeof bytes)) > 0)
      taken.append(bytes, static_cast<std::size_t>(got));
  });
  EXPECT_EQ(program.finish().code(), kTimedOut);
  reader.join();
  EXPECT_THAT(taken, HasSubstr("flood of"));
  EXPECT_THAT(taken, EndsWith("\n"));
}

TEST(StrataExec, TheReportIsOnePieceAlthoughManyPrint) {
  const Executed executed =
      execute(kSoon, shell(fmt::format("for i in 1 2 3 4 5; do {} flood >&2 & done; wait",
                                       diag_program("stuck_program"))));
  EXPECT_EQ(executed.result.code(), kTimedOut);
  EXPECT_THAT(executed.pids, SizeIs(6));
  const std::string& text = executed.result.err;
  const std::size_t begin = text.find("strata exec: it had not ended");
  const std::size_t tail = text.find("---- last lines of", begin);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(tail, std::string::npos);
  EXPECT_THAT(text.substr(begin, tail - begin), Not(HasSubstr("\nflood of")));
  for (const int pid : executed.pids)
    EXPECT_TRUE(is_gone(pid));
}

TEST(StrataExec, AFullPipeInsideTheTreeIsNoMatter) {
  expect_explained(execute(kSoon, stuck({"fork", "fill=65000", "futex"})), kKinds[0], 2);
}

TEST(StrataExec, AReportFileThatCanNotBeWrittenIsToldAndNothingElseChanges) {
  const Program::Result result =
      strata_command({"exec", "--timeout", "0.3", "--grace", "0.2", "--report", "/no/such/folder/r",
                      "--", diag_program("stuck_program"), "futex"});
  EXPECT_EQ(result.code(), kTimedOut);
  EXPECT_THAT(result.err, AllOf(HasSubstr("can't write the report to '/no/such/folder/r'"),
                                HasSubstr("stuck_on_a_futex")));
}

TEST(StrataExec, NothingIsLeftBehind) {
  const NothingLeft nothing(mark_children());
  (void)execute(kSoon, stuck({"daemon", "fork", "threads=3", "ignore", "spin"}));
}

}  // namespace
}  // namespace strata::test
