// `strata dump --stacks own`: the worker processes take the stacks of their threads themselves, and
// go on as if nothing had been; of everybody else they are taken from outside.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "diag_run.hpp"
#include "support/signals_at_once.hpp"
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

std::vector<std::string> notes_of(const nlohmann::json& process) {
  std::vector<std::string> notes;
  for (const auto& thread : process.at("threads"))
    notes.push_back(thread.at("note"));
  return notes;
}

std::map<std::string, int> takers_of(const std::vector<nlohmann::json>& threads) {
  std::map<std::string, int> takers;
  for (const auto& thread : threads)
    ++takers[thread.at("stack_from").get<std::string>()];
  return takers;
}

using Takers = std::map<std::string, int>;

/// A machine that is full may let a process or a thread answer too late, which is then taken from
/// outside: looks again until all is as wanted. The last that it saw.
template <class Look, class Wanted>
auto look_until(Look look, Wanted wanted) {
  auto seen = look();
  for (int round = 1; round < 10 && !wanted(seen); ++round)
    seen = look();
  return seen;
}

/// A report in which the threads in stuck_in_a_pool() have these takers.
nlohmann::json own_dump_of(const Program& program, const Takers& wanted) {
  return look_until(
      [&] {
        return dump_of(program.pid(), {"--stacks", "own"});
      },
      [&](const nlohmann::json& report) {
        return takers_of(threads_in(report, "stuck_in_a_pool")) == wanted;
      });
}

TEST(OwnStacks, OfTenProcessesWithTwentyThreadsEachHaveTheRightNamesAndTheProgramItsResult) {
  constexpr int kWorkers = 9;
  constexpr int kThreads = 13;  // Beside seven with tasks of their own.
  Program program(pool_program("spins", kWorkers, kThreads));
  program.wait_for_output("ready");
  const Takers all_own{{"process", kWorkers * kThreads}};
  const nlohmann::json report = own_dump_of(program, all_own);
  ASSERT_THAT(report.at("processes"), SizeIs(testing::Ge(kWorkers + 1)));
  const auto pool = threads_in(report, "stuck_in_a_pool");
  EXPECT_THAT(pool, SizeIs(kWorkers * kThreads));
  if (kSignalsAtOnce) {
    EXPECT_EQ(takers_of(pool), all_own);
  }
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
  program.send(SIGUSR1);
  const Program::Result result = program.finish();
  EXPECT_EQ(result.code(), 0) << result.err;
  EXPECT_EQ(result.out, fmt::format("ready\nsum {}, disturbed 0\n", kWorkers * (kThreads + 3)));
}

TEST(OwnStacks, AreTheSameAsThoseFromOutside) {
  if (!kSignalsAtOnce) GTEST_SKIP() << "threads answer too late";
  Program program(pool_program("pools", 2, 3));
  program.wait_for_output("ready");
  const auto stacks_in = [](const nlohmann::json& report, const char* taker) {
    std::map<int, std::vector<std::string>> by_thread;
    const auto threads = threads_in(report, "stuck_in_a_pool");
    EXPECT_EQ(takers_of(threads), (Takers{{taker, 6}}));
    for (const auto& thread : threads)
      by_thread[thread.at("thread")] = frames_of(thread);
    return by_thread;
  };
  const auto own = [&] { return stacks_in(own_dump_of(program, {{"process", 6}}), "process"); };
  const auto first = own();
  EXPECT_EQ(first, stacks_in(dump_of(program.pid(), {"--stacks", "outside"}), "outside"));
  // And again: what an answer leaves behind is no part of the next, and a sleep that was
  // interrupted from outside, which goes on, is still not one to be interrupted by a signal.
  EXPECT_EQ(first, own());
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
  const Takers half{{"outside", 3}, {"process", 3}};
  const nlohmann::json report = own_dump_of(program, half);
  const auto stopped = at_path(report, "pools/sub[0]");
  EXPECT_THAT(stopped.at("stacks_note"), HasSubstr("it is stopped"));
  EXPECT_THAT(functions_of(stopped), Contains("stuck_in_a_pool").Times(3));
  EXPECT_EQ(at_path(report, "pools/sub[1]").at("stacks_note"), "");
  EXPECT_EQ(takers_of(threads_in(report, "stuck_in_a_pool")), half);
  EXPECT_TRUE(is_stopped());
  ASSERT_EQ(::kill(worker, SIGCONT), 0);
  program.send(SIGUSR1);
  EXPECT_EQ(program.finish().out, "ready\nsum 10, disturbed 0\n");
}

/// As a container sees the program that forbids ptrace; the options are those of the test program.
nlohmann::json own_dump_without_ptrace(const Program& program,
                                       const std::vector<std::string>& options = {}) {
  std::vector<std::string> words{diag_program("no_ptrace_program")};
  words.insert(words.end(), options.begin(), options.end());
  for (const char* word : {STRATA_COMMAND_PATH, "dump", "--json", "--stacks", "own"})
    words.emplace_back(word);
  words.push_back(std::to_string(program.pid()));
  const Program::Result result =
      Program(words, {.environment = {"ASAN_OPTIONS=detect_leaks=0"}}).finish();
  EXPECT_EQ(result.code(), 0) << result.err;
  return nlohmann::json::parse(result.out);
}

TEST(OwnStacks, AreThereWhereTheKernelRefusesPtrace) {
  if (!kSignalsAtOnce) GTEST_SKIP() << "threads answer too late";
  Program program(pool_program("pools", 1, 3));
  program.wait_for_output("ready");
  const Takers all_own{{"process", 3}};
  const auto report = look_until([&] { return own_dump_without_ptrace(program); },
                                 [&](const nlohmann::json& seen) {
                                   return takers_of(threads_in(seen, "stuck_in_a_pool")) == all_own;
                                 });
  EXPECT_EQ(takers_of(threads_in(report, "stuck_in_a_pool")), all_own);
  EXPECT_THAT(notes_of(at_path(report, "pools/sub[0]")),
              Contains(AllOf(HasSubstr("it blocks signal "), HasSubstr("ptrace is not"))));
}

TEST(OwnStacks, EachThreadForWhichThereWasNoRoomSaysSoWhereTheKernelRefusesPtrace) {
  Program program(pool_program("pools", 1, 520));  // 512 have room.
  program.wait_for_output("ready");
  const auto of_worker = [&] { return at_path(own_dump_without_ptrace(program), "pools/sub[0]"); };
  const auto worker = look_until(
      of_worker, [](const nlohmann::json& process) { return process.at("stacks_note") == ""; });
  EXPECT_EQ(worker.at("stacks_note"), "");
  for (const auto& thread : worker.at("threads"))
    EXPECT_FALSE(thread.at("frames").empty() && thread.at("note") == "") << thread;
  EXPECT_THAT(notes_of(worker),
              Contains(HasSubstr("had room for the stacks of 512 of its 5")).Times(testing::Ge(8)));
}

TEST(OwnStacks, AProcessThatMayNotBeLookedAtIsNotTakenForOneThatIsNotOfStrata) {
  Program program(pool_program("pools", 1, 1));
  program.wait_for_output("ready");
  const auto report = own_dump_without_ptrace(program, {"--links"});
  ASSERT_THAT(report.at("processes"), SizeIs(testing::Ge(2)));
  for (const auto& process : report.at("processes"))
    EXPECT_THAT(process.at("stacks_note"), HasSubstr("may not be looked at"));
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
  const auto look = [&] {
    return strata_command({"dump", std::to_string(program.pid()), "--stacks", "own"}).out;
  };
  const std::string text = look_until(look, [](const std::string& seen) {
    return seen.find("has not answered in time") == std::string::npos;
  });
  EXPECT_THAT(text, AllOf(HasSubstr("stacks from outside: it is no worker process of Strata"),
                          HasSubstr("(taken from outside: it blocks signal ")));
  EXPECT_EQ(strata_command({"dump", "1", "--stacks", "mine"}).code(), 2);
}

}  // namespace
}  // namespace strata::test
