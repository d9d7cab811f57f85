#include "diag/native_stack.hpp"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "diag/stopped_thread.hpp"
#include "diag/thread_look.hpp"
#include "os/procfs.hpp"
#include "support/forked_child.hpp"
#include "support/time_bounds.hpp"

extern "C" __attribute__((noinline, used)) int strata_test_read_forever(int fd) {
  char byte = 0;
  const ssize_t got = ::read(fd, &byte, 1);
  __asm__ volatile("" ::: "memory");  // Not the last thing, so that the call is a call.
  return got == 1 ? byte : -1;
}

namespace strata::diag {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::HasSubstr;

/// A child that reads from a pipe in a function that has a name, and exits with the byte it reads.
class Reader {
 public:
  Reader() : ends_(make()), child_([this] { return strata_test_read_forever(ends_[0]); }) {
    waits_ = test::within(5s, [this] {
      const auto looks = look_at_threads(child_.pid());
      return looks.size() == 1 && looks[0].state == 'S' && looks[0].call.has_value();
    });
  }
  ~Reader() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  [[nodiscard]] pid_t pid() const { return child_.pid(); }
  [[nodiscard]] bool waits() const { return waits_; }
  /// Its exit code once it has got a byte.
  int answer(char byte) {
    EXPECT_EQ(::write(ends_[1], &byte, 1), 1);
    const int status = child_.wait();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void send(int signal) { child_.send(signal); }

 private:
  static std::array<int, 2> make() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    return ends;
  }
  std::array<int, 2> ends_;
  test::ForkedChild child_;
  bool waits_ = false;
};

std::vector<std::string> functions(const NativeStack& stack) {
  std::vector<std::string> names;
  for (const trace::StackFrame& frame : stack.frames)
    names.push_back(frame.function);
  return names;
}

ProcessStacks stacks_from_outside(pid_t pid) {
  FrameNames names;
  return stacks_of(pid, os::Deadline::after(10s), names);
}

TEST(NativeStack, NamesFunctionsFilesAndLinesFromOutside) {
  Reader reader;
  ASSERT_TRUE(reader.waits());
  const ProcessStacks stacks = stacks_from_outside(reader.pid());
  EXPECT_EQ(stacks.note, "");
  ASSERT_EQ(stacks.threads.size(), 1U);
  const NativeStack& stack = stacks.threads.begin()->second;
  EXPECT_THAT(functions(stack), Contains("strata_test_read_forever"));
  for (const trace::StackFrame& frame : stack.frames) {
    if (frame.function != "strata_test_read_forever") continue;
    EXPECT_THAT(frame.file, testing::EndsWith("native_stack_test.cpp"));
    EXPECT_GT(frame.line, 0);
    EXPECT_NE(frame.module, "");
  }
  EXPECT_GT(stack.held.count(), 0);
}

TEST(NativeStack, NamesThatWereFoundForAnotherProcessAreTheSameForThis) {
  Reader first;
  Reader second;
  ASSERT_TRUE(first.waits() && second.waits());
  const auto texts = [](pid_t pid, FrameNames& names) {
    std::vector<std::string> all;
    const ProcessStacks stacks = stacks_of(pid, os::Deadline::after(10s), names);
    for (const trace::StackFrame& frame : stacks.threads.at(pid).frames)
      all.push_back(trace::to_text(frame, 0));
    return all;
  };
  FrameNames of_both;
  FrameNames of_second;
  EXPECT_THAT(texts(first.pid(), of_both), Contains(HasSubstr("strata_test_read_forever")));
  EXPECT_EQ(texts(second.pid(), of_both), texts(second.pid(), of_second));
}

TEST(NativeStack, TheSystemCallGoesOnAsIfNothingHadBeen) {
  Reader reader;
  ASSERT_TRUE(reader.waits());
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(stacks_from_outside(reader.pid()).threads.size(), 1U);
  EXPECT_EQ(reader.answer(42), 42);
}

TEST(NativeStack, AProcessThatDoesNotExistOrHasEndedIsSaid) {
  test::ForkedChild child([] { return 0; });
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
  const ProcessStacks stacks = stacks_from_outside(child.pid());
  EXPECT_TRUE(stacks.threads.empty());
  // Nobody but its parent has waited for it.
  EXPECT_EQ(child.wait(), 0);
}

TEST(StoppedThread, AStoppedProcessStaysStoppedAfterwards) {
  Reader reader;
  ASSERT_TRUE(reader.waits());
  reader.send(SIGSTOP);
  const auto state = [&] {
    return os::read_process(reader.pid()).value_or(os::ProcessInfo{}).state;
  };
  ASSERT_TRUE(test::within(5s, [&] { return state() == 'T'; }));
  for (int i = 0; i < 5; ++i) {
    const ProcessStacks stacks = stacks_from_outside(reader.pid());
    ASSERT_EQ(stacks.threads.size(), 1U);
    EXPECT_THAT(functions(stacks.threads.begin()->second), Contains("strata_test_read_forever"));
    EXPECT_TRUE(test::within(5s, [&] { return state() == 'T'; }));
  }
  reader.send(SIGCONT);
  EXPECT_EQ(reader.answer(7), 7);
}

TEST(StoppedThread, ASignalThatComesWhileItIsHeldReachesIt) {
  Reader reader;
  ASSERT_TRUE(reader.waits());
  std::thread tracer([&] {
    StoppedThread stopped(reader.pid(), os::Deadline::after(10s));
    EXPECT_TRUE(stopped.registers());
    reader.send(SIGTERM);
    EXPECT_TRUE(os::read_process(reader.pid()));
  });
  tracer.join();
  EXPECT_TRUE(test::within(5s, [&] {
    const auto info = os::read_process(reader.pid());
    return !info || info->state == 'Z';
  }));
}

TEST(StoppedThread, AThreadThatEndsWithoutLettingGoLeavesNothingStopped) {
  Reader reader;
  ASSERT_TRUE(reader.waits());
  std::unique_ptr<StoppedThread> stopped;
  std::thread tracer([&] {
    // Outlives its thread, as if that had been killed in the middle.
    stopped = std::make_unique<StoppedThread>(reader.pid(), os::Deadline::after(10s));
    EXPECT_TRUE(stopped->registers());
  });
  tracer.join();
  EXPECT_EQ(reader.answer(9), 9);
}

TEST(StoppedThread, OneThatIsGoneOrOursIsAFailureAndNoMore) {
  const StoppedThread gone(4194304, os::Deadline::after(1s));
  EXPECT_FALSE(gone.registers());
  EXPECT_TRUE(gone.failure().gone());
  const StoppedThread own(::getpid(), os::Deadline::after(1s));
  EXPECT_FALSE(own.registers());
  EXPECT_TRUE(own.failure().refused());
}

TEST(ReadWord, GivesWhatLiesThere) {
  Reader reader;
  ASSERT_TRUE(reader.waits());
  static std::uint32_t word = 0x12345678;
  EXPECT_EQ(read_word(reader.pid(), reinterpret_cast<std::uint64_t>(&word)), 0x12345678U);
  EXPECT_EQ(read_word(reader.pid(), 8), std::nullopt);
}

}  // namespace
}  // namespace strata::diag
