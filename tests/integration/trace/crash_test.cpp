// Every way to crash, in a process of its own: what is left of it in its record.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "os/child_process.hpp"
#include "os/memfd.hpp"
#include "os/spawn.hpp"
#include "support/guard.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"
#include "trace/crash_handler.hpp"
#include "trace/process_record.hpp"
#include "trace/process_record_reader.hpp"
#include "trace/symboliser.hpp"

namespace strata::trace {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kLibraries = STRATA_TEST_LIBRARIES;
const std::string kDriver = STRATA_TEST_PROGRAMS "/crash_driver";

/// A driver that runs.
class Driver {
 public:
  explicit Driver(const std::string& how, const std::vector<std::string>& environment = {})
      : errors_(memfd_create("stderr", MFD_CLOEXEC)), process_(start(how, environment)) {}
  ~Driver() {
    if (ended_) return;
    (void)process_.send(SIGKILL);
    (void)wait();
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  os::ExitStatus wait() {
    const auto status = process_.wait(os::Deadline::never());
    ended_ = true;
    return status.value();
  }
  [[nodiscard]] ProcessRecordReader reader() const { return ProcessRecordReader(record_); }
  [[nodiscard]] os::ChildProcess& process() { return process_; }

  /// What the driver has written to stderr.
  [[nodiscard]] std::string errors() const {
    std::string text(os::size_of_file(errors_.get()), '\0');
    text.resize(static_cast<std::size_t>(
        std::max<ssize_t>(0, pread(errors_.get(), text.data(), text.size(), 0))));
    return text;
  }

 private:
  os::ChildProcess start(const std::string& how, const std::vector<std::string>& environment) {
    os::SpawnOptions options;
    options.path = kDriver;
    options.argv = {kDriver, how};
    // A sanitizer's own handlers would be the ones before ours, and end the process their way.
    options.envp = {
        "ASAN_OPTIONS=handle_segv=0:handle_abort=0:handle_sigfpe=0:handle_sigill=0:handle_sigbus=0:"
        "detect_stack_use_after_return=0"};
    options.envp.insert(options.envp.end(), environment.begin(), environment.end());
    const os::UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    options.descriptors = {
        {null.get(), 0}, {errors_.get(), 1}, {errors_.get(), 2}, {record_.fd(), 5}};
    return os::spawn(options);
  }

  os::UniqueFd errors_;
  ProcessRecord record_ = ProcessRecord::create({.path = "node/sub[0]", .role = "sub worker"});
  os::ChildProcess process_;
  bool ended_ = false;
};

/// What is left of a driver that ran to its end.
struct Left {
  os::ExitStatus status;
  Card card;
  std::vector<ThreadEvents> events;
  std::optional<CrashReport> crash;
  std::string text;  ///< describe()
  std::string errors;
};

Left run(const std::string& how, const std::vector<std::string>& environment = {}) {
  Driver driver(how, environment);
  Left left;
  left.status = driver.wait();
  const ProcessRecordReader reader = driver.reader();
  left.card = reader.card();
  left.events = reader.events();
  left.crash = reader.crash();
  if (left.crash) left.text = describe(*left.crash);
  left.errors = driver.errors();
  return left;
}

class Crash : public testing::Test {
 protected:
  test::Guard guard_{"a crash"};
  test::LeakCheck leaks_;
};

void expect_signal(const Left& left, int signal) {
  EXPECT_EQ(left.status.kind, os::ExitStatus::Kind::signalled) << left.status.to_string();
  EXPECT_EQ(left.status.value, signal) << left.status.to_string();
}

/// A whole record of a crash with this signal; `function` is the first or the `frame`th in the
/// stack, by its name.
void expect_crash(const Left& left, int signal, const std::string& function) {
  expect_signal(left, signal);
  ASSERT_TRUE(left.crash.has_value()) << left.errors;
  EXPECT_EQ(left.crash->stage, CrashStage::complete);
  EXPECT_EQ(left.crash->signal, signal);
  EXPECT_EQ(left.card.state, ProcessState::crashed);
  EXPECT_THAT(left.text, HasSubstr(function + "()"));
  EXPECT_THAT(left.text, Not(HasSubstr("strata::trace::(anonymous namespace)::on_crash")));
  EXPECT_THAT(left.text, StartsWith("killed by signal " + std::to_string(signal)));
  EXPECT_FALSE(left.crash->modules.empty());
}

/// The function is where the crash was, with module, build id and line.
void expect_crash_at(const Left& left, int signal, const std::string& function) {
  expect_crash(left, signal, function);
  EXPECT_THAT(
      left.text,
      ContainsRegex("#0 " + function +
                    R"(\(\) at [^ ]*\.cpp:[0-9]+ in /[^ ]*\+0x[0-9a-f]+ \(build id [0-9a-f]+)"));
}

void expect_task_in_hand(const Left& left) {
  ASSERT_TRUE(left.card.task.has_value());
  EXPECT_EQ(left.card.task->task, 5U);
  EXPECT_EQ(left.card.task->name, "the task");
  EXPECT_EQ(left.card.task->callable, "crash_driver");
  EXPECT_EQ(left.card.step, "crash");
  ASSERT_FALSE(left.events.empty());
  // state, step, four tasks with their ends, and the beginning of the fifth.
  const std::vector<Event>& events = left.events.front().events;
  ASSERT_EQ(events.size(), 11U);
  EXPECT_EQ(events[0].kind, EventKind::state_transition);
  EXPECT_EQ(events[1].kind, EventKind::step);
  for (std::size_t i = 2; i < events.size(); ++i) {
    EXPECT_EQ(events[i].kind, i % 2 == 0 ? EventKind::task_start : EventKind::task_end);
    EXPECT_EQ(events[i].a, i / 2);
    EXPECT_LE(events[i - 1].at, events[i].at);
  }
  EXPECT_LE(events.back().at, left.crash->at + std::chrono::milliseconds(1));
}

TEST_F(Crash, NullWriteLeavesFunctionModuleAndTask) {
  const Left left = run("null_write");
  expect_crash_at(left, SIGSEGV, "strata_test_null_write");
  expect_task_in_hand(left);
  EXPECT_EQ(left.crash->address, 0U);
  EXPECT_EQ(left.crash->code, SEGV_MAPERR);
  EXPECT_EQ(left.crash->sender, 0);
  EXPECT_EQ(left.crash->frames.front(), left.crash->pc);
  EXPECT_EQ(left.crash->thread_name, "crash_driver");
  EXPECT_EQ(left.crash->thread, static_cast<std::uint32_t>(left.card.pid));
  EXPECT_THAT(left.text, HasSubstr(kDriver + "+0x"));
  EXPECT_THAT(left.text, HasSubstr("main()"));
}

TEST_F(Crash, WhatTheProcessSaysOfTheThreadIsKept) {
  const Left left = run("note");
  expect_crash_at(left, SIGSEGV, "strata_test_null_write");
  EXPECT_EQ(left.crash->note, "kernel 'add', block 3 of 7");
  EXPECT_EQ(run("null_write").crash->note, "");
}

TEST_F(Crash, ANoteThatCrashesItselfLeavesTheSignal) {
  const Left left = run("note_crashes");
  expect_signal(left, SIGABRT);
  ASSERT_TRUE(left.crash.has_value());
  EXPECT_EQ(left.crash->stage, CrashStage::partial);
  EXPECT_EQ(left.crash->signal, SIGABRT);
}

TEST_F(Crash, LeavesItsStackWithoutACoreFileToo) {
  expect_crash_at(run("no_core"), SIGSEGV, "strata_test_null_write");
}

TEST_F(Crash, StackOverflowOfTheMainThreadIsCaught) {
  const Left left = run("overflow");
  expect_crash_at(left, SIGSEGV, "strata_test_overflow");
  expect_task_in_hand(left);
  EXPECT_THAT(left.text, HasSubstr("it has probably overflowed"));
  EXPECT_GT(left.crash->frames_in_all, left.crash->frames.size());
}

TEST_F(Crash, StackOverflowOfAThreadWithAnAlternateStackIsCaught) {
  const Left left = run("overflow_in_thread");
  expect_crash_at(left, SIGSEGV, "strata_test_overflow");
  EXPECT_THAT(left.text, HasSubstr("it has probably overflowed"));
  EXPECT_NE(left.crash->thread, static_cast<std::uint32_t>(left.card.pid));
}

TEST_F(Crash, AbortDiesOfSigabrt) {
  const Left left = run("abort");
  expect_crash(left, SIGABRT, "strata_test_abort");
  expect_task_in_hand(left);
}

TEST_F(Crash, AbortWithAllSignalsBlockedIsCaught) { expect_signal(run("blocked"), SIGABRT); }

TEST_F(Crash, AnAssertionsTextIsKept) {
  const Left left = run("assert");
  expect_crash(left, SIGABRT, "strata_test_assert");
  EXPECT_THAT(left.crash->text, AllOf(HasSubstr("the answer"), HasSubstr("crash_driver.cpp")));
  EXPECT_THAT(left.errors, HasSubstr("the answer")) << "it is still printed";
}

TEST_F(Crash, DivisionByZeroIsCaught) {
  const Left left = run("divide");
  expect_crash_at(left, SIGFPE, "strata_test_divide");
  EXPECT_THAT(left.text, HasSubstr("integer division by zero"));
}

TEST_F(Crash, IllegalInstructionIsCaught) {
  expect_crash_at(run("trap"), SIGILL, "strata_test_trap");
}

TEST_F(Crash, AccessPastTheEndOfAFileIsCaught) {
  const Left left = run("past_end");
  expect_crash_at(left, SIGBUS, "strata_test_past_end");
  EXPECT_THAT(left.text, HasSubstr("the file is shorter"));
}

TEST_F(Crash, WhatAnUncaughtExceptionSaysIsKept) {
  const Left left = run("uncaught");
  expect_crash(left, SIGABRT, "strata_test_throw");
  EXPECT_EQ(left.crash->text,
            "uncaught exception of type std::runtime_error: the cause: xxxxxxxxxx");
  const Left other = run("uncaught_int");
  expect_crash(other, SIGABRT, "main");
  EXPECT_EQ(other.crash->text, "uncaught exception of type int");
}

TEST_F(Crash, AnExceptionsTextThatHasNoRoomIsToldByItsLength) {
  const Left left = run("uncaught_long");
  expect_crash(left, SIGABRT, "strata_test_throw");
  const std::size_t bytes =
      std::string("uncaught exception of type std::runtime_error: the cause: ").size() + 100'000;
  EXPECT_THAT(left.crash->text, HasSubstr("(" + std::to_string(bytes) + " bytes in all)"));
}

TEST_F(Crash, ACallOfNothingIsToldWithItsCaller) {
  const Left left = run("call_null");
  expect_crash(left, SIGSEGV, "strata_test_call");
  EXPECT_THAT(left.text, ContainsRegex("#0 0x0 .*\n  #1 strata_test_call\\(\\)"));
  EXPECT_EQ(left.crash->pc, 0U);
}

TEST_F(Crash, WithMallocsLocksHeldIsCaught) {
  const Left left = run("in_malloc");
  expect_crash_at(left, SIGSEGV, "strata_test_null_write");
  EXPECT_THAT(left.text, HasSubstr("fork")) << "the frames below the other signal are there too";
}

TEST_F(Crash, InAConstructorOfALibraryWithTheLoadersLockHeldIsCaught) {
  const Left left = run("load:" + kLibraries + "/libstrata_test_constructor_crashes.so");
  expect_crash_at(left, SIGSEGV, "strata_test_crash_in_constructor");
  EXPECT_THAT(left.text, HasSubstr("libstrata_test_constructor_crashes.so+0x"));
  EXPECT_THAT(left.text, HasSubstr("dlopen"));
  expect_task_in_hand(left);
}

TEST_F(Crash, InAStaticInitialiserIsCaught) {
  const Left left =
      run("null_write", {std::string(kWorkerToken) + "=1", "STRATA_TEST_CRASH_IN_CONSTRUCTOR=1"});
  expect_crash_at(left, SIGSEGV, "strata_test_null_write");
  EXPECT_THAT(left.text, HasSubstr("crash_in_constructor"));
  EXPECT_THAT(left.text, Not(HasSubstr(" main()")));
}

TEST_F(Crash, WithTheHandlerInstalledEarlyIsCaughtInMainToo) {
  const Left left = run("null_write", {std::string(kWorkerToken) + "=1"});
  expect_crash_at(left, SIGSEGV, "strata_test_null_write");
  expect_task_in_hand(left);
}

TEST_F(Crash, OfTwoThreadsAtOnceIsOneCrash) {
  for (int i = 0; i < 10; ++i) {
    const Left left = run("two_threads");
    expect_crash_at(left, SIGSEGV, "strata_test_null_write");
  }
}

TEST_F(Crash, OfAForkedChildIsNotItsParents) {
  const Left left = run("forked_child");
  EXPECT_TRUE(left.status.clean()) << left.status.to_string();
  EXPECT_FALSE(left.crash.has_value());
  EXPECT_EQ(left.card.state, ProcessState::running);
}

TEST_F(Crash, AHandlerThatWasThereBeforeIsCalled) {
  const Left left = run("library_before");
  expect_crash_at(left, SIGSEGV, "strata_test_null_write");
  EXPECT_EQ(left.errors, "library's handler\n");
}

TEST_F(Crash, AHandlerThatComesLaterAndCallsOursLosesNothing) {
  const Left left = run("library_after");
  expect_crash_at(left, SIGSEGV, "strata_test_null_write");
  EXPECT_EQ(left.errors, "library's handler\n");
}

TEST_F(Crash, AHandlerThatIsBeforeAndAfterOursMakesNoLoop) {
  const Left left = run("library_around");
  expect_crash_at(left, SIGSEGV, "strata_test_null_write");
  EXPECT_EQ(left.errors, "library's handler\nlibrary's handler\n");
}

TEST_F(Crash, AHandlerThatCrashesItselfChangesNothing) {
  const Left left = run("handler_crashes");
  expect_crash_at(left, SIGSEGV, "strata_test_null_write");
  EXPECT_EQ(left.errors, "crashes now\n");
}

TEST_F(Crash, AHandlerThatHangsIsSeenByOthersAndHidesNothing) {
  Driver driver("handler_hangs");
  while (driver.errors().find('\n') == std::string::npos)
    std::this_thread::yield();
  EXPECT_EQ(driver.errors(), "crash in progress\n");
  ASSERT_TRUE(driver.process().send(SIGKILL));
  EXPECT_EQ(driver.wait().value, SIGKILL);
  const auto crash = driver.reader().crash();
  ASSERT_TRUE(crash.has_value());
  EXPECT_EQ(crash->signal, SIGSEGV);
  EXPECT_THAT(describe(*crash), HasSubstr("#0 strata_test_null_write()"));
}

TEST_F(Crash, WithoutOurHandlerTheSignalIsStillTrue) {
  const Left left = run("default_after");
  expect_signal(left, SIGSEGV);
  EXPECT_FALSE(left.crash.has_value());
  ASSERT_TRUE(left.card.task.has_value());
}

TEST_F(Crash, WhatALibraryCatchesAndSurvivesIsNoCrash) {
  const Left left = run("recovers");
  EXPECT_TRUE(left.status.clean()) << left.status.to_string();
  EXPECT_FALSE(left.crash.has_value());
}

TEST_F(Crash, ASignalThatWasSentNamesItsSender) {
  Driver driver("wait");
  while (driver.errors() != "ready\n")
    std::this_thread::yield();
  ASSERT_TRUE(driver.process().send(SIGSEGV));
  EXPECT_EQ(driver.wait().value, SIGSEGV);
  const auto crash = driver.reader().crash();
  ASSERT_TRUE(crash.has_value());
  EXPECT_EQ(crash->sender, getpid());
  EXPECT_THAT(crash->headline(), HasSubstr("sent by process " + std::to_string(getpid())));
}

TEST_F(Crash, AProcessThatIsStoppedOrKilledCanBeRead) {
  Driver driver("wait");
  while (driver.errors() != "ready\n")
    std::this_thread::yield();
  ASSERT_TRUE(driver.process().send(SIGSTOP));
  const auto by_pid = ProcessRecordReader::of_process(driver.process().pid());
  ASSERT_TRUE(by_pid.has_value()) << "found through /proc";
  EXPECT_EQ(by_pid->card().task->name, "the task");
  ASSERT_TRUE(driver.process().send(SIGKILL));
  EXPECT_EQ(driver.wait().value, SIGKILL);
  const ProcessRecordReader reader = driver.reader();
  EXPECT_EQ(reader.card().task->name, "the task");
  EXPECT_EQ(reader.card().state, ProcessState::running);
  EXPECT_EQ(reader.events().front().events.size(), 11U);
  EXPECT_FALSE(reader.crash().has_value());
}

TEST_F(Crash, InAFileThatIsGoneOrReplacedIsNotExplainedByAnother) {
  namespace fs = std::filesystem;
  const test::TempDir folder;
  const fs::path library = folder.path() / "library.so";
  fs::copy_file(kLibraries + "/libstrata_test_constructor_crashes.so", library);
  const Left left = run("load:" + library.string());
  expect_crash_at(left, SIGSEGV, "strata_test_crash_in_constructor");

  fs::remove(library);
  const std::string gone = describe(*left.crash);
  EXPECT_THAT(gone, ContainsRegex("#0 0x[0-9a-f]+ in " + library.string() +
                                  "\\+0x[0-9a-f]+ "
                                  "\\(build id [0-9a-f]+\\) \\[the file can't be read"));
  EXPECT_THAT(gone, HasSubstr("dlopen")) << "other files are still explained";

  fs::copy_file(kLibraries + "/libstrata_test_many.so", library);
  EXPECT_THAT(describe(*left.crash), AllOf(HasSubstr("has been replaced since it was loaded"),
                                           Not(HasSubstr("strata_test_crash_in_constructor"))));
}

}  // namespace
}  // namespace strata::trace
