#include "trace/stack_board.hpp"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string_view>
#include <thread>

#include "support/time_bounds.hpp"
#include "trace/stack_request.hpp"

namespace strata::trace {
namespace {

using namespace std::chrono_literals;

StackBoard& board() {
  StackBoard::of_process().open();
  return StackBoard::of_process();
}

/// What this process answers itself.
StackAnswer answer() {
  board();
  const auto request = StackRequest::ask(getpid());
  EXPECT_TRUE(request);
  if (!request) return {};
  EXPECT_FALSE(request->answer());
  board().answer();
  return request->answer().value_or(StackAnswer{});
}

CopiedThread thread_in(const StackAnswer& answer, pid_t thread) {
  for (const CopiedThread& each : answer.threads) {
    if (each.thread == thread) return each;
  }
  return {};
}

pid_t own_id() { return static_cast<pid_t>(syscall(SYS_gettid)); }

/// A thread that says its id, does something, and ends at the latest when the object does.
class Subject {
 public:
  /// `work` gets the word for which it may wait to become 1.
  explicit Subject(std::function<void(std::atomic<int>&)> work)
      : thread_([this, work = std::move(work)] {
          id_.store(own_id());
          work(go_);
        }) {
    while (id_.load() == 0)
      std::this_thread::yield();
  }
  ~Subject() { join(); }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  void join() {
    go_.store(1);
    go_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] pid_t id() const { return id_.load(); }

 private:
  std::atomic<pid_t> id_{0};
  std::atomic<int> go_{0};
  std::thread thread_;
};

/// Until the kernel says that the thread is in a system call, or not in any.
bool is_in_call(pid_t thread, long call) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/syscall";
  return test::within(5s, [&] {
    FILE* const file = fopen(path.c_str(), "re");
    long number = -1;
    if (file == nullptr) return false;
    const bool known = fscanf(file, "%ld", &number) == 1;
    (void)fclose(file);
    return known && number == call;
  });
}

TEST(StackBoard, EveryThreadIsCopiedWithWhatIsOnItsStack) {
  constexpr std::string_view kWords = "what lies on the stack of this thread alone";
  const auto waits = [&](std::atomic<int>& go) {
    volatile char mark[64] = {};
    for (std::size_t i = 0; i < kWords.size(); ++i)
      mark[i] = kWords[i];
    go.wait(0);
    (void)mark[0];
  };
  const Subject first(waits);
  const Subject second(waits);
  ASSERT_TRUE(is_in_call(first.id(), SYS_futex) && is_in_call(second.id(), SYS_futex));
  const StackAnswer all = answer();
  for (const pid_t id : {first.id(), second.id(), own_id()}) {
    const CopiedThread thread = thread_in(all, id);
    ASSERT_EQ(thread.stage, StackStage::whole);
    EXPECT_NE(thread.pc, 0U);
    const std::uint64_t sp = thread.general[7];
    EXPECT_GE(sp, thread.begin);
    EXPECT_LT(sp, thread.begin + thread.stack.size());
    EXPECT_EQ(thread.stack.find(kWords) != std::string::npos, id != own_id());
  }
  EXPECT_EQ(all.signal, stack_signal());
}

TEST(StackBoard, AThreadThatComputesIsInterruptedAndGoesOn) {
  std::uint64_t sum = 0;
  Subject subject([&](std::atomic<int>& go) {
    for (std::uint64_t i = 0; i < 1'000'000 || go.load() == 0; ++i)
      sum += i < 1'000'000 ? i : 0;
  });
  for (int round = 0; round < 50; ++round)
    EXPECT_EQ(thread_in(answer(), subject.id()).stage, StackStage::whole);
  subject.join();
  EXPECT_EQ(sum, 499'999'500'000U);
}

TEST(StackBoard, AThreadThatBlocksTheSignalIsLeftAloneAndTold) {
  std::atomic<bool> pending{true};
  Subject subject([&](std::atomic<int>& go) {
    sigset_t set;
    sigfillset(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, nullptr);
    go.wait(0);
    (void)sigpending(&set);
    pending = sigismember(&set, stack_signal()) == 1;
  });
  ASSERT_TRUE(is_in_call(subject.id(), SYS_futex));
  EXPECT_EQ(thread_in(answer(), subject.id()).stage, StackStage::blocked);
  subject.join();
  EXPECT_FALSE(pending);
}

TEST(StackBoard, ASleepThatAHandlerWouldEndIsLeftAloneAndTold) {
  int result = -1;
  Subject subject([&](std::atomic<int>&) {
    const timespec time{.tv_sec = 0, .tv_nsec = 300'000'000};
    result = nanosleep(&time, nullptr);
  });
  ASSERT_TRUE(is_in_call(subject.id(), SYS_clock_nanosleep) ||
              is_in_call(subject.id(), SYS_nanosleep));
  const CopiedThread thread = thread_in(answer(), subject.id());
  EXPECT_EQ(thread.stage, StackStage::in_call);
  EXPECT_TRUE(thread.call == SYS_clock_nanosleep || thread.call == SYS_nanosleep);
  subject.join();
  EXPECT_EQ(result, 0);
}

TEST(StackBoard, AReadGoesOnAfterItWasInterrupted) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ssize_t got = -1;
  Subject subject([&](std::atomic<int>&) {
    char byte = 0;
    got = read(ends[0], &byte, 1);
  });
  ASSERT_TRUE(is_in_call(subject.id(), SYS_read));
  EXPECT_EQ(thread_in(answer(), subject.id()).stage, StackStage::whole);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  subject.join();
  EXPECT_EQ(got, 1);
  close(ends[0]);
  close(ends[1]);
}

TEST(StackBoard, AThreadThatDoesNotAnswerIsToldAndWritesNothingLater) {
  // Until its child is gone a thread in vfork takes no signal.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::atomic<bool> forked{false};
  Subject subject([&](std::atomic<int>& go) {
    const pid_t child = vfork();
    if (child == 0) {
      char byte = 0;
      (void)!syscall(SYS_read, ends[0], &byte, 1);
      _exit(0);
    }
    (void)waitpid(child, nullptr, 0);
    forked = true;
    go.wait(0);
  });
  ASSERT_TRUE(is_in_call(subject.id(), SYS_vfork));
  const StackAnswer before = answer();
  EXPECT_EQ(thread_in(before, subject.id()).stage, StackStage::late);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  ASSERT_TRUE(test::within(5s, [&] { return forked.load(); }));
  // The signal has come meanwhile. The next answer is whole, and has the thread once.
  const StackAnswer after = answer();
  EXPECT_EQ(thread_in(after, subject.id()).stage, StackStage::whole);
  EXPECT_EQ(after.threads.size(), before.threads.size());
  close(ends[0]);
  close(ends[1]);
}

TEST(StackBoard, ASignalFromSomebodyElseDoesNothing) {
  (void)answer();
  ASSERT_EQ(kill(getpid(), stack_signal()), 0);
  ASSERT_EQ(sigqueue(getpid(), stack_signal(), {.sival_int = 0}), 0);
  EXPECT_EQ(thread_in(answer(), own_id()).stage, StackStage::whole);
}

TEST(StackBoard, AHandlerOfTheProgramIsNeverCalled) {
  (void)answer();
  static std::atomic<int> calls{0};
  struct sigaction ours = {};
  struct sigaction theirs = {};
  theirs.sa_handler = [](int) { ++calls; };
  ASSERT_EQ(sigaction(stack_signal(), &theirs, &ours), 0);
  const Subject subject([](std::atomic<int>& go) { go.wait(0); });
  const StackAnswer nothing = answer();
  EXPECT_EQ(nothing.signal, 0);
  EXPECT_TRUE(nothing.threads.empty());
  EXPECT_EQ(calls, 0);
  ASSERT_EQ(sigaction(stack_signal(), &ours, nullptr), 0);
}

TEST(StackRequest, AForkThatInheritedTheBoardIsNotAsked) {
  (void)board();
  const pid_t child = fork();
  if (child == 0) {
    for (;;)
      pause();
  }
  EXPECT_FALSE(StackRequest::ask(child));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace strata::trace
