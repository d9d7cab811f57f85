// `strata dump --stacks own`: the worker processes take the stacks of their threads themselves, and
// go on as if nothing had been; of everybody else they are taken from outside.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "diag_run.hpp"
#include "support/time_bounds.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<std::string> pool_program(const char* what, int workers, int threads) {
  return {diag_program("pool_program"), what, std::to_string(workers), std::to_string(threads)};
}

std::vector<std::string> frames_of(const nlohmann::json& thread) {
  std::vector<std::string> names;
  for (const auto& frame : thread.at("frames"))
    names.push_back(frame.at("function"));
  return names;
}

/// The threads of a report that are in a function of that name.
std::vector<nlohmann::json> threads_in(const nlohmann::json& report, const std::string& function) {
  std::vector<nlohmann::json> found;
  for (const auto& process : report.at("processes")) {
    for (const auto& thread : process.at("threads")) {
      const auto names = frames_of(thread);
      if (std::ranges::find(names, function) != names.end()) found.push_back(thread);
    }
  }
  return found;
}

std::map<std::string, int> takers_of(const std::vector<nlohmann::json>& threads) {
  std::map<std::string, int> takers;
  for (const auto& thread : threads)
    ++takers[thread.at("stack_from").get<std::string>()];
  return takers;
}

/// The thread sanitizer holds signals back until a thread does something that it sees.
#ifdef __SANITIZE_THREAD__
constexpr bool kSignalsAtOnce = false;
#else
constexpr bool kSignalsAtOnce = true;
#endif

using Takers = std::map<std::string, int>;

TEST(OwnStacks, OfTenProcessesWithTwentyThreadsEachHaveTheRightNamesAndTheProgramItsResult) {
  constexpr int kWorkers = 9;
  constexpr int kThreads = 13;  // Beside seven with tasks of their own.
  Program program(pool_program("spins", kWorkers, kThreads));
  program.wait_for_output("ready");
  // A machine that is full may let a thread answer too late, which is then taken from outside.
  int own_at_best = 0;
  for (int round = 0; round < 10 && own_at_best < kWorkers * kThreads; ++round) {
    const nlohmann::json report = dump_of(program.pid(), {"--stacks", "own"});
    ASSERT_THAT(report.at("processes"), SizeIs(testing::Ge(kWorkers + 1)));
    const auto pool = threads_in(report, "stuck_in_a_pool");
    EXPECT_THAT(pool, SizeIs(kWorkers * kThreads));
    own_at_best = std::max(own_at_best, takers_of(pool)["process"]);
    for (const auto& thread : pool)
      EXPECT_THAT(frames_of(thread), Contains("waits_to_be_let_go"));
    EXPECT_THAT(threads_in(report, "stuck_with_locks"), SizeIs(kWorkers));
    // A thread that spins has to get a CPU to answer.
    EXPECT_THAT(threads_in(report, "stuck_in_a_spin"), SizeIs(kWorkers));
    const auto masked = threads_in(report, "stuck_behind_a_mask");
    EXPECT_EQ(takers_of(masked), (Takers{{"outside", kWorkers}}));
    for (const auto& thread : masked)
      EXPECT_THAT(thread.at("note"), HasSubstr("it blocks signal "));
    const auto asleep = threads_in(report, "sleeps_for_good");
    EXPECT_EQ(takers_of(asleep), (Takers{{"outside", kWorkers}}));
    for (const auto& thread : asleep)
      EXPECT_THAT(thread.at("note"), HasSubstr("a signal would end its"));
  }
  if (kSignalsAtOnce) {
    EXPECT_EQ(own_at_best, kWorkers * kThreads);
  }
  program.send(SIGUSR1);
  const Program::Result result = program.finish();
  EXPECT_EQ(result.code(), 0) << result.err;
  EXPECT_EQ(result.out, fmt::format("ready\nsum {}, disturbed 0\n", kWorkers * (kThreads + 3)));
}

TEST(OwnStacks, AreTheSameAsThoseFromOutside) {
  if (!kSignalsAtOnce) GTEST_SKIP() << "threads answer too late";
  Program program(pool_program("pools", 2, 3));
  program.wait_for_output("ready");
  const auto stacks = [&](const char* who) {
    std::map<int, std::vector<std::string>> by_thread;
    const nlohmann::json report = dump_of(program.pid(), {"--stacks", who});
    for (const auto& thread : threads_in(report, "stuck_in_a_pool"))
      by_thread[thread.at("thread")] = frames_of(thread);
    return by_thread;
  };
  const auto own = stacks("own");
  EXPECT_THAT(own, SizeIs(6));
  EXPECT_EQ(own, stacks("outside"));
  // And again: what an answer leaves behind is no part of the next, and a sleep that was
  // interrupted from outside, which goes on, is still not one to be interrupted by a signal.
  EXPECT_EQ(own, stacks("own"));
  program.send(SIGUSR1);
  EXPECT_EQ(program.finish().out, "ready\nsum 10, disturbed 0\n");
}

TEST(OwnStacks, OfAStoppedWorkerAreTakenFromOutsideAndTheReportSaysSo) {
  if (!kSignalsAtOnce) GTEST_SKIP() << "threads answer too late";
  Program program(pool_program("pools", 2, 3));
  program.wait_for_output("ready");
  const pid_t worker = at_path(dump_of(program.pid()), "pools/sub[0]").at("pid");
  ASSERT_EQ(::kill(worker, SIGSTOP), 0);
  const auto is_stopped = [&] {
    const auto info = os::read_process(worker);
    return info && info->state == 'T';
  };
  ASSERT_TRUE(within(std::chrono::seconds(5), is_stopped));
  const nlohmann::json report = dump_of(program.pid(), {"--stacks", "own"});
  const auto stopped = at_path(report, "pools/sub[0]");
  EXPECT_THAT(stopped.at("stacks_note"), HasSubstr("it is stopped"));
  EXPECT_THAT(functions_of(stopped), Contains("stuck_in_a_pool").Times(3));
  EXPECT_EQ(at_path(report, "pools/sub[1]").at("stacks_note"), "");
  EXPECT_EQ(takers_of(threads_in(report, "stuck_in_a_pool")),
            (Takers{{"outside", 3}, {"process", 3}}));
  EXPECT_TRUE(is_stopped());
  ASSERT_EQ(::kill(worker, SIGCONT), 0);
  program.send(SIGUSR1);
  EXPECT_EQ(program.finish().out, "ready\nsum 10, disturbed 0\n");
}

TEST(OwnStacks, AreThereWhereTheKernelRefusesPtrace) {
  if (!kSignalsAtOnce) GTEST_SKIP() << "threads answer too late";
  Program program(pool_program("pools", 1, 3));
  program.wait_for_output("ready");
  const Program::Result result =
      Program({diag_program("no_ptrace_program"), STRATA_COMMAND_PATH, "dump", "--json", "--stacks",
               "own", std::to_string(program.pid())},
              {.environment = {"ASAN_OPTIONS=detect_leaks=0"}})
          .finish();
  ASSERT_EQ(result.code(), 0) << result.err;
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_EQ(takers_of(threads_in(report, "stuck_in_a_pool")), (Takers{{"process", 3}}));
  const auto worker = at_path(report, "pools/sub[0]");
  std::vector<std::string> notes;
  for (const auto& thread : worker.at("threads"))
    notes.push_back(thread.at("note"));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("it blocks signal "), HasSubstr("ptrace is not"))));
}

TEST(OwnStacks, AProgramThatIsNotOfStrataGetsNoSignal) {
  Program program(stuck({"ready", "threads=2", "futex"}));
  program.wait_for_output("ready");
  const nlohmann::json report = dump_of(program.pid(), {"--stacks", "own"});
  EXPECT_THAT(report.at("processes")[0].at("stacks_note"),
              HasSubstr("no worker process of Strata"));
  EXPECT_THAT(functions_of(report.at("processes")[0]), Contains("stuck_in_a_pool").Times(2));
  EXPECT_TRUE(program.running());  // The signal would have ended it.
}

TEST(OwnStacks, TheTextSaysWhoseStacksAreFromOutsideAndWhy) {
  Program program(pool_program("pools", 1, 1));
  program.wait_for_output("ready");
  const std::string text =
      strata_command({"dump", std::to_string(program.pid()), "--stacks", "own"}).out;
  EXPECT_THAT(text, AllOf(HasSubstr("stacks from outside: it is no worker process of Strata"),
                          HasSubstr("(taken from outside: it blocks signal ")));
  EXPECT_EQ(strata_command({"dump", "1", "--stacks", "mine"}).code(), 2);
}

}  // namespace
}  // namespace strata::test
