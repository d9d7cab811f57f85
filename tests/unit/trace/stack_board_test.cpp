#include "trace/stack_board.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "support/signals_at_once.hpp"
#include "support/time_bounds.hpp"
#include "trace/stack_request.hpp"
#include "trace/text_words.hpp"

namespace strata::trace {
namespace {

using namespace std::chrono_literals;

StackBoard& board() {
  StackBoard::of_process().open();
  return StackBoard::of_process();
}

/// A thread that can answer is waited for, however slow the machine is.
void answer_in_full() { board().answer(test::bound(2s)); }
/// As a worker process does it, for threads that can't.
void answer_in_time() { board().answer(); }

/// What this process answers itself, by a function that does so.
StackAnswer answer(const std::function<void()>& answers = answer_in_full) {
  board();
  const auto request = StackRequest::ask(getpid());
  EXPECT_TRUE(request);
  if (!request) return {};
  EXPECT_FALSE(request->answer());
  answers();
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

/// Waits until the kernel says that the thread is in one of these system calls.
bool is_in_call(pid_t thread, std::initializer_list<long> calls) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/syscall";
  return test::within(5s, [&] {
    FILE* const file = fopen(path.c_str(), "re");
    long number = -1;
    if (file == nullptr) return false;
    const bool known = fscanf(file, "%ld", &number) == 1;
    (void)fclose(file);
    return known && std::ranges::find(calls, number) != calls.end();
  });
}
bool is_in_call(pid_t thread, long call) { return is_in_call(thread, {call}); }

/// A thread that sleeps until it is woken by a signal.
class Sleeper {
 public:
  Sleeper() {
    woken = false;
    struct sigaction action = {};
    action.sa_handler = [](int) { woken = true; };
    (void)sigaction(SIGUSR1, &action, nullptr);
    subject_ = std::make_unique<Subject>([this](std::atomic<int>&) {
      const timespec time{.tv_sec = 100'000, .tv_nsec = 0};
      (void)nanosleep(&time, nullptr);
      by_us_ = woken.load();
    });
  }
  ~Sleeper() { (void)wake(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  [[nodiscard]] pid_t id() const { return subject_->id(); }
  [[nodiscard]] bool sleeps() const {
    return is_in_call(id(), {SYS_clock_nanosleep, SYS_nanosleep});
  }
  /// Whether it has slept until now.
  bool wake() {
    if (!ended_ && sleeps()) syscall(SYS_tgkill, getpid(), id(), SIGUSR1);
    subject_->join();
    ended_ = true;
    return by_us_;
  }

 private:
  static inline std::atomic<bool> woken{false};
  bool ended_ = false;
  bool by_us_ = false;
  std::unique_ptr<Subject> subject_;
};

TEST(StackBoard, EveryThreadIsCopiedWithWhatIsOnItsStack) {
  if (!test::kSignalsAtOnce) GTEST_SKIP() << "threads do not answer";
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
  if (!test::kSignalsAtOnce) GTEST_SKIP() << "threads do not answer";
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

/// The kernel lists them in front of the signals that the thread blocks.
bool join_many_groups() {
  const std::vector<gid_t> groups(3000, 100'000);
  return syscall(SYS_setgroups, groups.size(), groups.data()) == 0;  // Of this thread alone.
}

TEST(StackBoard, AThreadIsSeenToBlockTheSignalHoweverLongItsStatusIs) {
  std::atomic<bool> joined{false};
  const Subject subject([&](std::atomic<int>& go) {
    joined = join_many_groups();
    sigset_t set;
    sigfillset(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, nullptr);
    go.wait(0);
  });
  ASSERT_TRUE(is_in_call(subject.id(), SYS_futex));
  if (!joined) GTEST_SKIP() << "this user may not join groups";
  EXPECT_EQ(thread_in(answer(), subject.id()).stage, StackStage::blocked);
}

TEST(StackBoard, ASleepThatAHandlerWouldEndIsLeftAloneAndTold) {
  Sleeper sleeper;
  ASSERT_TRUE(sleeper.sleeps());
  const CopiedThread thread = thread_in(answer(), sleeper.id());
  EXPECT_EQ(thread.stage, StackStage::in_call);
  EXPECT_TRUE(thread.call == SYS_clock_nanosleep || thread.call == SYS_nanosleep);
  EXPECT_TRUE(sleeper.wake());
}

TEST(StackBoard, AThreadThatProcDoesNotTellOfIsLeftAloneAndTold) {
  if (test::kSanitized) {
    GTEST_SKIP()
        << "the sanitizer looks at objects through a pipe, for which no descriptor is left";
  }
  Sleeper sleeper;
  ASSERT_TRUE(sleeper.sleeps());
  // One descriptor is left, which the list of the threads takes.
  const auto answers = [] {
    const int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(lowest);
    rlimit limit = {};
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit less{.rlim_cur = static_cast<rlim_t>(lowest) + 1, .rlim_max = limit.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &less);
    answer_in_full();
    (void)setrlimit(RLIMIT_NOFILE, &limit);
  };
  const StackAnswer all = answer(answers);
  EXPECT_EQ(thread_in(all, sleeper.id()).stage, StackStage::unseen);
  EXPECT_EQ(thread_in(all, own_id()).stage, StackStage::whole);
  EXPECT_TRUE(sleeper.wake());
}

/// So many threads, which wait with that much on their stacks.
std::vector<std::unique_ptr<Subject>> waiting_threads(std::size_t count, std::size_t bytes) {
  std::vector<std::unique_ptr<Subject>> threads;
  threads.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    threads.push_back(std::make_unique<Subject>([bytes](std::atomic<int>& go) {
      auto* const deep = static_cast<volatile char*>(__builtin_alloca(bytes + 1));
      deep[0] = 1;
      go.wait(0);
      (void)deep[0];
    }));
  }
  return threads;
}

TEST(StackBoard, ThreadsForWhoseStacksThereIsNoRoomAreToldAndTheNextAnswerHasRoomAgain) {
  if (!test::kSignalsAtOnce) GTEST_SKIP() << "threads do not answer";
  constexpr std::size_t kFit = kStackArenaBytes / kMostStackBytes;
  {
    const auto threads = waiting_threads(kFit + 10, kMostStackBytes + 4096);
    for (const auto& thread : threads)
      ASSERT_TRUE(is_in_call(thread->id(), SYS_futex));
    const StackAnswer all = answer();
    std::size_t whole = 0;
    for (const auto& each : threads) {
      const CopiedThread thread = thread_in(all, each->id());
      EXPECT_EQ(thread.stack.size(), thread.stage == StackStage::whole ? kMostStackBytes : 0);
      if (thread.stage == StackStage::whole) {
        ++whole;
      } else {
        EXPECT_EQ(thread.stage, StackStage::no_room);
      }
    }
    EXPECT_GE(whole, kFit - 1);  // The one that answers has its part, too.
    EXPECT_LE(whole, kFit);
  }
  const auto one = waiting_threads(1, kMostStackBytes);
  ASSERT_TRUE(is_in_call(one[0]->id(), SYS_futex));
  EXPECT_EQ(thread_in(answer(), one[0]->id()).stage, StackStage::whole);
}

TEST(StackBoard, ThreadsForWhichThereIsNoSlotAreCounted) {
  if (!test::kSignalsAtOnce) GTEST_SKIP() << "threads do not answer";
  const auto threads = waiting_threads(kStackSlots + 10, 0);
  const StackAnswer all = answer();
  EXPECT_EQ(all.threads.size(), kStackSlots);
  EXPECT_GE(all.threads_in_all, kStackSlots + 11);
}

TEST(StackBoard, AReadGoesOnAfterItWasInterrupted) {
  if (!test::kSignalsAtOnce) GTEST_SKIP() << "threads do not answer";
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
  if (!test::kSignalsAtOnce) GTEST_SKIP() << "threads do not answer";
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
  const StackAnswer before = answer(answer_in_time);
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

/// A process that says to each request that all its threads have stacks of that size.
[[noreturn]] void claim(std::uint64_t bytes) {
  const RequestDoor door = RequestDoor::open(kStackDoor);
  auto& layout = *std::launder(reinterpret_cast<StackLayout*>(door.data()));
  for (;;) {
    usleep(1000);
    if (!door.take_requests()) continue;
    const auto odd = begin_change(layout.door.sequence);
    layout.slots_used.store(UINT32_MAX);
    for (StackSlot& slot : layout.slots) {
      slot.bytes.store(bytes);
      slot.stage.store(static_cast<std::uint32_t>(StackStage::whole));
    }
    layout.door.answers.store(layout.door.answers.load() + 1);
    end_change(layout.door.sequence, odd);
  }
}

/// How many of the stacks that it claims a reader takes from it.
std::size_t stacks_taken(std::uint64_t bytes) {
  const pid_t child = fork();
  if (child == 0) claim(bytes);
  std::optional<StackAnswer> all;
  std::optional<StackRequest> request;
  EXPECT_TRUE(test::within(5s, [&] {
    if (!request) request = StackRequest::ask(child);
    if (request) all = request->answer();
    return all.has_value();
  }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::size_t taken = 0;
  for (const CopiedThread& thread : all.value_or(StackAnswer{}).threads) {
    EXPECT_EQ(thread.stack.size(), thread.stage == StackStage::whole ? bytes : 0);
    if (thread.stage == StackStage::whole) ++taken;
  }
  return taken;
}

TEST(StackRequest, TakesNoMoreFromADamagedProcessThanThereCanBe) {
  EXPECT_EQ(stacks_taken(4096), kStackSlots);
  EXPECT_EQ(stacks_taken(kMostStackBytes), kStackArenaBytes / kMostStackBytes);
  EXPECT_EQ(stacks_taken(kMostStackBytes + 8), 0U);
  EXPECT_EQ(stacks_taken(kStackArenaBytes), 0U);
}

}  // namespace
}  // namespace strata::trace
