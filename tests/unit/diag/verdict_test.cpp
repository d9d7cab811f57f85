#include "diag/verdict.hpp"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/syscall.h>

#include <string>
#include <utility>

#include "diag/report_text.hpp"
#include "diag/tree_report.hpp"

namespace strata::diag {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

ThreadReport waiting_thread(pid_t id, const std::string& function) {
  ThreadReport thread;
  thread.thread = id;
  thread.name = "t" + std::to_string(id);
  thread.state = 'S';
  thread.call = SystemCall{.number = SYS_futex};
  thread.doing = "futex: waits on 0x10";
  trace::StackFrame in_libc;
  in_libc.address = 0x100;
  in_libc.module = "/lib/libc.so.6";
  in_libc.function = "pthread_cond_wait";
  trace::StackFrame own;
  own.address = 0x200;
  own.module = "/bin/program";
  own.function = function;
  own.file = "program.cpp";
  own.line = 12;
  thread.stack.frames = {in_libc, own};
  return thread;
}

ProcessReport process(pid_t pid, pid_t parent, int depth) {
  ProcessReport report;
  report.pid = pid;
  report.ppid = parent;
  report.depth = depth;
  report.state = 'S';
  report.command_line = {"./program", std::to_string(pid)};
  return report;
}

ProcessReport waiting_process(pid_t pid, pid_t parent, int depth) {
  ProcessReport report = process(pid, parent, depth);
  report.threads = {waiting_thread(pid, "wait_here")};
  return report;
}

std::string text_of(const TreeReport& report) {
  std::string text;
  for (const std::string& line : verdict_of(report))
    text += line + "\n";
  return text;
}

TEST(Verdict, TheDeepestThatWaitsIsNamedAndNotWhoWaitsForIt) {
  TreeReport report;
  report.processes = {waiting_process(1, 0, 0), waiting_process(2, 1, 1)};
  report.processes[0].threads[0].call = SystemCall{.number = SYS_wait4};
  EXPECT_THAT(
      verdict_of(report),
      ElementsAre("pid 2 (./program 2) waits in wait_here() at program.cpp:12: futex: waits "
                  "on 0x10"));
}

TEST(Verdict, AThreadThatSpinsIsTheReason) {
  TreeReport report;
  report.window = 200ms;
  report.processes = {waiting_process(1, 0, 0)};
  report.processes[0].threads.push_back(waiting_thread(5, "spin_here"));
  report.processes[0].threads.back().busy = 0.97;
  report.processes[0].threads.back().state = 'R';
  EXPECT_THAT(text_of(report), AllOf(HasSubstr("thread 5 't5' of pid 1"), HasSubstr("spin_here"),
                                     HasSubstr("97 % of a CPU"), HasSubstr("200 ms")));
}

TEST(Verdict, ACircleOfLocksIsToldOnceAndFirst) {
  TreeReport report;
  report.processes = {process(1, 0, 0)};
  for (const auto& [id, owner] : {std::pair{10, 11}, std::pair{11, 12}, std::pair{12, 11}}) {
    report.processes[0].threads.push_back(waiting_thread(id, "locks"));
    report.processes[0].threads.back().lock_owner = owner;
  }
  const auto verdict = verdict_of(report);
  EXPECT_THAT(verdict[0], AllOf(StartsWith("deadlock: "), HasSubstr("thread 11 't11' holds"),
                                HasSubstr("thread 12 't12' holds"), Not(HasSubstr("thread 10 "))));
  std::vector<std::string> rest(verdict.begin() + 1, verdict.end());
  EXPECT_THAT(rest, Each(Not(HasSubstr("deadlock"))));
  EXPECT_THAT(text_of(report), HasSubstr("thread 10 't10' of pid 1"));
}

TEST(Verdict, WhoDiedIsNamedWithTheCause) {
  TreeReport report;
  report.processes = {waiting_process(1, 0, 0), process(2, 1, 1)};
  report.processes[1].state = 'Z';
  report.processes[1].wait_status = SIGSEGV;
  EXPECT_THAT(verdict_of(report)[0],
              AllOf(HasSubstr("pid 2"), HasSubstr("killed by signal 11"), HasSubstr("pid 1")));
}

TEST(Verdict, AStoppedProcessIsNamedWithTheWayOut) {
  TreeReport report;
  report.processes = {waiting_process(1, 0, 0)};
  report.processes[0].state = 'T';
  EXPECT_THAT(text_of(report), HasSubstr("`kill -CONT 1`"));
}

TEST(Verdict, WhoCouldEndAWaitForAPipeIsNamed) {
  TreeReport report;
  report.processes = {waiting_process(1, 0, 0), waiting_process(2, 1, 1)};
  auto& reader = report.processes[1];
  reader.threads[0].call = SystemCall{.number = SYS_read};
  reader.threads[0].doing = "read of descriptor 0 (pipe:[77])";
  EXPECT_THAT(text_of(report), HasSubstr("which nobody of this tree can write to"));
  reader.writes_to = {"pipe:[77]"};
  EXPECT_THAT(text_of(report), HasSubstr("which only the process itself can write to"));
  report.processes[0].writes_to = {"pipe:[77]"};
  EXPECT_THAT(text_of(report), HasSubstr("which can be written by pid 1 (./program 1)"));
}

TEST(Verdict, AThreadThatOnlyRunsALittleExplainsNothing) {
  TreeReport report;
  report.processes = {process(1, 0, 0)};
  EXPECT_THAT(verdict_of(report), ElementsAre(HasSubstr("no wait explains this")));
  EXPECT_THAT(verdict_of(TreeReport{}), ElementsAre(HasSubstr("no such process")));
}

TEST(Verdict, PythonFramesOfTheProgramWinOverThoseOfItsLibraries) {
  ThreadReport thread = waiting_thread(1, "PyEval");
  thread.python = {{"/usr/lib/python3.11/threading.py", 327, "wait"}, {"/home/me/a.py", 5, "mine"}};
  EXPECT_EQ(own_function(thread), "in mine() at /home/me/a.py:5");
  thread.python.pop_back();
  EXPECT_THAT(own_function(thread), HasSubstr("wait"));
}

TEST(Verdict, OfFunctionsThatWereInlinedTheProgramsOwnIsNamed) {
  ThreadReport thread = waiting_thread(1, "transfer()");
  trace::StackFrame& frame = thread.stack.frames[1];
  frame.inlined = {"__gthread_mutex_lock", "std::mutex::lock()", "lock_both()"};
  frame.file = "/usr/include/gthr.h";
  frame.called_at = {{"/usr/include/mutex", 100}, {"own.hpp", 3}, {"bank.cpp", 10}};
  EXPECT_EQ(own_function(thread), "in lock_both() at own.hpp:3");
  TreeReport report;
  report.processes = {process(1, 0, 0)};
  report.processes[0].threads = {thread};
  EXPECT_THAT(to_text(report),
              HasSubstr("    #1 __gthread_mutex_lock() at /usr/include/gthr.h:12, inlined\n"
                        "       std::mutex::lock() at /usr/include/mutex:100, inlined\n"
                        "       lock_both() at own.hpp:3, inlined\n"
                        "       transfer() at bank.cpp:10 in /bin/program+0x0\n"));
}

TEST(Verdict, OfAStrataTreeTheOldestTaskIsNamed) {
  TreeReport report;
  report.taken_at = 100s;
  report.processes = {waiting_process(1, 0, 0), waiting_process(2, 1, 1)};
  for (ProcessReport& each : report.processes) {
    each.strata.emplace();
    each.strata->card.path = each.pid == 1 ? "node/sub[0]" : "node/sub[1]";
    each.strata->card.state = trace::ProcessState::idle;
    each.strata->card.task = trace::TaskInHand{.task = std::uint64_t{7} << 22U,
                                               .name = "scale",
                                               .callable = "f",
                                               .since = each.pid == 1 ? 90s : 60s};
  }
  const std::string where = "; it waits in wait_here() at program.cpp:12: futex: waits on 0x10";
  EXPECT_THAT(verdict_of(report),
              ElementsAre("node/sub[1] (pid 2) has had task 7 'scale' in hand for 40 s" + where,
                          "node/sub[0] (pid 1) has had task 7 'scale' in hand for 10 s" + where));
}

TEST(Verdict, ThreadsThatAreStratasOwnAndIdleWorkersAreNotTold) {
  TreeReport report;
  report.processes = {waiting_process(1, 0, 0), waiting_process(2, 1, 1)};
  for (ProcessReport& each : report.processes) {
    each.strata.emplace();
    each.strata->card.path = each.pid == 1 ? "node" : "node/sub[0]";
    each.strata->card.role = each.pid == 1 ? "node" : "sub worker";
    each.strata->card.state = trace::ProcessState::idle;
  }
  report.processes[0].threads.push_back(waiting_thread(5, "strata::node::Supervisor::main()"));
  EXPECT_THAT(verdict_of(report), ElementsAre(AllOf(StartsWith("thread 1 't1' of node (pid 1)"),
                                                    HasSubstr("wait_here"))));
}

// ---- The writer ---------------------------------------------------------------------------------

TEST(ReportText, EachProcessIsOneBlockAndNoNameIsCut) {
  TreeReport report;
  const std::string name(30'000, 'n');
  for (int pid = 1; pid <= 20; ++pid) {
    report.processes.push_back(waiting_process(pid, pid - 1, pid - 1));
    report.processes.back().threads.push_back(waiting_thread(pid + 100, name));
  }
  report.verdict = {"it is so"};
  const std::string text = to_text(report);
  std::size_t at = 0;
  for (int pid = 1; pid <= 20; ++pid) {
    const std::size_t block = text.find("---- pid " + std::to_string(pid) + " ----", at);
    ASSERT_NE(block, std::string::npos) << pid;
    const std::size_t next = text.find("---- pid ", block + 1);
    const std::string content = text.substr(block, next - block);
    EXPECT_THAT(content, HasSubstr(name));
    EXPECT_THAT(content, HasSubstr("thread " + std::to_string(pid + 100) + " "));
    at = block + 1;
  }
  EXPECT_EQ(to_json(report).at("processes").size(), 20U);
}

TEST(ReportText, BytesThatATerminalWouldObeyAreShownAsQuestionMarks) {
  TreeReport report;
  report.processes = {waiting_process(1, 0, 0)};
  report.processes[0].command_line = {"a\x1b[2Jb\nc", "\xff"};
  EXPECT_THAT(to_text(report), AllOf(HasSubstr("a?[2Jb?c"), Not(HasSubstr("\x1b"))));
  EXPECT_NO_THROW((void)dump(to_json(report)));
}

TEST(ReportText, ARecursionWithoutEndIsToldOnce) {
  TreeReport report;
  report.processes = {waiting_process(1, 0, 0)};
  auto& frames = report.processes[0].threads[0].stack.frames;
  frames.insert(frames.end(), 500, frames.back());
  EXPECT_THAT(to_text(report), HasSubstr("#2 to #501 the same\n"));
}

}  // namespace
}  // namespace strata::diag
