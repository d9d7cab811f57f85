// `strata dump`: processes that go on as if nothing had been, that are stopped, or that die
// meanwhile.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "diag_run.hpp"
#include "support/time_bounds.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

TEST(StrataDump, AProcessThatDoesNotExistIsTold) {
  // The largest number that a pid can have at all.
  const Program::Result result = strata_command({"dump", "4194304"});
  EXPECT_EQ(result.code(), 1);
  EXPECT_THAT(result.err, HasSubstr("there is no process 4194304"));
  EXPECT_EQ(strata_command({"dump"}).code(), 2);
  EXPECT_EQ(strata_command({"dump", "x"}).code(), 2);
}

TEST(StrataDump, TextAndJsonTellTheSame) {
  Program program(stuck({"ready", "fork", "threads=2", "read"}));
  program.wait_for_output("ready");
  ASSERT_TRUE(within(std::chrono::seconds(5),
                     [&] { return os::descendants_of(program.pid()).size() == 1; }));
  const nlohmann::json report = dump_of(program.pid());
  const std::string text = strata_command({"dump", std::to_string(program.pid())}).out;
  ASSERT_THAT(report.at("processes"), SizeIs(2));
  for (const auto& process : report.at("processes")) {
    EXPECT_THAT(text, HasSubstr(fmt::format("---- pid {} ----", process.at("pid").get<int>())));
    for (const std::string& name : functions_of(process))
      EXPECT_THAT(text, HasSubstr(name));
  }
  for (const auto& line : report.at("verdict"))
    EXPECT_THAT(text, HasSubstr(line.get<std::string>()));
  EXPECT_EQ(report.at("processes")[0].at("depth"), 0);
  EXPECT_EQ(report.at("processes")[1].at("parent"), program.pid());
}

TEST(StrataDump, AProgramThatIsDumpedAgainAndAgainGivesTheRightResult) {
  // Sums up what comes through a pipe from another process; every system call of it may be hit.
  Program program({"sh", "-c", "seq 1 3000000 | awk '{ s += $1 } END { printf \"%.0f\", s }'"});
  int dumps = 0;
  while (program.running()) {
    (void)strata_command({"dump", std::to_string(program.pid()), "--json"});
    ++dumps;
  }
  const Program::Result result = program.finish();
  EXPECT_EQ(result.code(), 0);
  EXPECT_EQ(result.out, "4500001500000");
  EXPECT_GT(dumps, 0);
}

TEST(StrataDump, AStoppedProcessStaysStopped) {
  Program program(stuck({"ready", "stop", "say=went on"}));
  program.wait_for_output("ready");
  const auto is_stopped = [&] {
    const auto info = os::read_process(program.pid());
    return info && info->state == 'T';
  };
  ASSERT_TRUE(within(std::chrono::seconds(5), is_stopped));
  const nlohmann::json report = dump_of(program.pid());
  EXPECT_TRUE(report.at("processes")[0].at("stopped"));
  EXPECT_THAT(functions_of(report.at("processes")[0]), Contains("main"));
  EXPECT_TRUE(within(std::chrono::seconds(5), is_stopped));
  program.send(SIGCONT);
  EXPECT_EQ(program.finish().out, "ready\nwent on\n");
}

TEST(StrataDump, ProcessesThatDieMeanwhileAreNoError) {
  for (int round = 0; round < 10; ++round) {
    // Forks and ends as fast as it can.
    Program program({"sh", "-c", "while :; do (:) & (:) & (:); done"});
    const Program::Result result = strata_command({"dump", std::to_string(program.pid())});
    EXPECT_EQ(result.code(), 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(fmt::format("---- pid {} ----", program.pid())));
    program.send(SIGKILL);
    (void)program.finish();
  }
}

TEST(StrataDump, KillingItLeavesTheProcessRunning) {
  Program program(stuck({"threads=40", "count"}));
  program.wait_for_output("line");
  for (int round = 0; round < 10; ++round) {
    Program dump(strata_with({"dump", std::to_string(program.pid())}));
    std::this_thread::sleep_for(std::chrono::milliseconds(200 + 5 * round));  // A moment of it.
    dump.send(SIGKILL);
    (void)dump.finish();
    const auto look = os::read_process(program.pid());
    ASSERT_TRUE(look);
    EXPECT_TRUE(within(std::chrono::seconds(5), [&] {
      const auto info = os::read_process(program.pid());
      return info && info->state != 't' && info->state != 'T';
    }));
  }
}

TEST(StrataDump, AProcessThatIsTracedAlreadyIsNamedWithItsTracer) {
  Program program(stuck({"ready", "futex"}));
  program.wait_for_output("ready");
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, program.pid(), nullptr, nullptr), 0);
  const nlohmann::json report = dump_of(program.pid());
  EXPECT_THAT(report.at("processes")[0].at("note"),
              HasSubstr(fmt::format("traced already, by process {}", ::getpid())));
  EXPECT_THAT(report.at("processes")[0].at("threads")[0].at("doing"), HasSubstr("futex"));
  program.send(SIGKILL);
}

TEST(StrataDump, ADeadChildThatNobodyWaitedForIsNamedWithItsCause) {
  Program program({"sh", "-c", "sh -c 'kill -SEGV $$' & exec sleep 1000"});
  ASSERT_TRUE(within(std::chrono::seconds(5), [&] {
    const auto children = os::children_of(program.pid());
    const auto info = children.empty() ? std::nullopt : os::read_process(children.front());
    return info && info->state == 'Z';
  }));
  EXPECT_THAT(verdict_of(dump_of(program.pid())),
              AllOf(HasSubstr("killed by signal 11"), HasSubstr("has not waited for it")));
}

TEST(StrataDump, NoNameIsCut) {
  const std::string word(20'000, 'w');
  Program program({"sh", "-c", "exec sleep 1000", word});
  Program long_name(stuck({"say=" + word, "futex"}));
  long_name.wait_for_output("w\n");
  EXPECT_THAT(strata_command({"dump", std::to_string(long_name.pid())}).out, HasSubstr(word));
}

TEST(StrataDump, ATreeOfTenProcessesWithTwentyThreadsEachIsDumpedInAboutASecond) {
  std::string script;
  for (int i = 0; i < 9; ++i)
    script += diag_program("stuck_program") + " threads=19 futex & ";
  Program program({"sh", "-c", script + "echo started; wait"});
  program.wait_for_output("started");
  ASSERT_TRUE(within(std::chrono::seconds(5), [&] {
    std::size_t threads = 0;
    for (const pid_t pid : os::descendants_of(program.pid()))
      threads += static_cast<std::size_t>(os::read_process(pid)->threads);
    return threads == 180;
  }));
  const nlohmann::json report = dump_of(program.pid());
  std::size_t named = 0;
  for (const auto& process : report.at("processes")) {
    for (const std::string& name : functions_of(process))
      named += name == "stuck_in_a_pool" ? 1 : 0;
  }
  EXPECT_EQ(named, 9U * 19);
  EXPECT_LT(report.at("took_s"), 1.2 * time_factor());
}

}  // namespace
}  // namespace strata::test
