#include "os/child_process.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "base/fault_point.hpp"
#include "child.hpp"
#include "os/procfs.hpp"
#include "strata/error.hpp"
#include "support/guard.hpp"
#include "support/process.hpp"

namespace strata::os {
namespace {

using namespace std::chrono_literals;
using test::child_options;

/// Whether the kernel keeps the status of a process that somebody else waited for.
bool kernel_keeps_status() {
  utsname name{};
  int major = 0;
  int minor = 0;
  return ::uname(&name) == 0 && std::sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
         (major > 6 || (major == 6 && minor >= 15));
}

void expect_status(const std::optional<ExitStatus>& status, ExitStatus wanted) {
  ASSERT_TRUE(status.has_value());
  if (kernel_keeps_status()) {
    EXPECT_EQ(*status, wanted) << status->to_string();
  } else {
    EXPECT_TRUE(*status == wanted || status->kind == ExitStatus::Kind::unknown);
  }
}

/// Changes SIGCHLD's action for a while.
class ChildSignal {
 public:
  explicit ChildSignal(void (*handler)(int), int flags = 0) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    ::sigaction(SIGCHLD, &action, &before_);
  }
  ~ChildSignal() { ::sigaction(SIGCHLD, &before_, nullptr); }
  ChildSignal(const ChildSignal&) = delete;
  ChildSignal& operator=(const ChildSignal&) = delete;

 private:
  struct sigaction before_ {};
};

TEST(ExitStatus, SaysInWordsHowAProcessEnded) {
  using Kind = ExitStatus::Kind;
  EXPECT_EQ((ExitStatus{Kind::exited, 7}).to_string(), "exited with status 7");
  EXPECT_EQ((ExitStatus{Kind::signalled, SIGSEGV}).to_string(),
            "killed by signal 11 (segmentation fault)");
  EXPECT_EQ((ExitStatus{Kind::signalled, SIGKILL}).to_string(), "killed by signal 9 (killed)");
  EXPECT_EQ(ExitStatus{}.to_string(), "ended, status unknown (reaped by the host program)");
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(signal_name(1000), "signal 1000");
  EXPECT_EQ(signal_text(1000), "signal 1000");
  EXPECT_TRUE((ExitStatus{Kind::exited, 0}).clean());
  EXPECT_FALSE((ExitStatus{Kind::exited, 1}).clean());
  EXPECT_FALSE(ExitStatus{}.clean());
}

TEST(ChildProcess, NothingIsKnownWhileItRuns) {
  const strata::test::LeakCheck leaks;
  ChildProcess child = spawn(child_options({"sleep"}));
  EXPECT_EQ(child.try_wait(), std::nullopt);
  EXPECT_EQ(child.wait(Deadline::after(1ms)), std::nullopt);
  EXPECT_TRUE(child.send(SIGKILL));
  EXPECT_EQ(child.wait(Deadline::never()), (ExitStatus{ExitStatus::Kind::signalled, SIGKILL}));
}

// Invariant (2)
TEST(ChildProcess, StatusIsReturnedAgain) {
  ChildProcess child = spawn(child_options({"exit", "9"}));
  const ExitStatus wanted{ExitStatus::Kind::exited, 9};
  EXPECT_EQ(child.wait(Deadline::never()), wanted);
  EXPECT_EQ(child.wait(Deadline::never()), wanted);
  EXPECT_EQ(child.try_wait(), wanted);
  EXPECT_EQ(child.status(), wanted);
  ChildProcess moved = std::move(child);
  EXPECT_EQ(moved.try_wait(), wanted);
}

TEST(ChildProcess, SignalToOneThatHasEndedIsNoError) {
  ChildProcess child = spawn(child_options({"exit", "0"}));
  (void)child.wait(Deadline::never());
  EXPECT_FALSE(child.send(SIGKILL));
  EXPECT_FALSE(ChildProcess().send(SIGKILL));
}

TEST(ChildProcess, DescriptorIsReadableOnceItHasEnded) {
  const strata::test::Guard guard("a pidfd");
  ChildProcess child = spawn(child_options({"exit", "0"}));
  pollfd waiting{.fd = child.pidfd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&waiting, 1, -1), 1);
  EXPECT_TRUE(child.try_wait().has_value());
}

// Invariant (1)
TEST(ChildProcess, EndIsKnownWhileTheHostIgnoresItsChildren) {
  const strata::test::LeakCheck leaks;
  const ChildSignal ignored(SIG_IGN);
  for (int i = 0; i < 10; ++i) {
    ChildProcess child = spawn(child_options({"exit", "7"}));
    expect_status(child.wait(Deadline::never()), {ExitStatus::Kind::exited, 7});
  }
  ChildProcess child = spawn(child_options({"signal", "6"}));
  expect_status(child.wait(Deadline::never()), {ExitStatus::Kind::signalled, 6});
}

// Invariant (1)
TEST(ChildProcess, EndIsKnownWhileTheHostWantsNoZombies) {
  const ChildSignal no_zombies(SIG_DFL, SA_NOCLDWAIT);
  ChildProcess child = spawn(child_options({"exit", "7"}));
  expect_status(child.wait(Deadline::never()), {ExitStatus::Kind::exited, 7});
}

// Invariant (1)
TEST(ChildProcess, EndIsKnownWhileAnotherThreadReapsEverything) {
  const strata::test::LeakCheck leaks;
  const strata::test::Guard guard("children that another thread reaps");
  std::atomic<bool> stop{false};
  std::atomic<int> reaped{0};
  std::thread reaper([&] {
    while (!stop.load()) {
      if (::waitpid(-1, nullptr, WNOHANG) > 0) {
        ++reaped;
      } else {
        std::this_thread::yield();
      }
    }
  });
  SpawnOptions missing;
  missing.path = "/nonexistent";
  missing.argv = {"x"};
  for (int i = 0; i < 30; ++i) {
    ChildProcess child = spawn(child_options({"exit", "7"}));
    expect_status(child.wait(Deadline::never()), {ExitStatus::Kind::exited, 7});
    EXPECT_THROW((void)spawn(missing), SystemError);
  }
  // Not left to chance: one that we do not wait for until the other thread has.
  const int before = reaped.load();
  ChildProcess child = spawn(child_options({"exit", "8"}));
  while (reaped.load() == before)
    std::this_thread::yield();
  expect_status(child.try_wait(), {ExitStatus::Kind::exited, 8});
  EXPECT_FALSE(child.send(SIGKILL));
  stop = true;
  reaper.join();
}

TEST(ChildProcess, ProcessThatTheKernelWontGiveBackIsWaitedForUpToTheDeadline) {
  if (!base::kFaultPoints) GTEST_SKIP() << "this build has no fault points";
  ChildProcess child = spawn(child_options({"exit", "7"}));
  base::set_faults("os.child.wait=error:11");
  EXPECT_EQ(child.wait(Deadline::after(30ms)), std::nullopt);
  base::set_faults("");
  EXPECT_EQ(child.wait(Deadline::never()), (ExitStatus{ExitStatus::Kind::exited, 7}));
}

TEST(ChildProcess, OneThatIsNotOursToWaitForHasNotEndedWhileItRuns) {
  if (!base::kFaultPoints) GTEST_SKIP() << "this build has no fault points";
  ChildProcess child = spawn(child_options({"sleep"}));
  base::set_faults("os.child.wait=error:10");
  EXPECT_EQ(child.try_wait(), std::nullopt);
  EXPECT_EQ(child.wait(Deadline::after(1ms)), std::nullopt);
  child.send(SIGKILL);
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus{});
  base::set_faults("");
  EXPECT_EQ(::waitpid(child.pid(), nullptr, 0), child.pid());
}

TEST(ChildProcess, DestructorNeitherWaitsNorKills) {
  test::Pipe pipe = test::make_pipe();
  pid_t pid = -1;
  {
    SpawnOptions options = child_options({"ready-and-sleep"});
    options.descriptors[1].from = pipe.write.get();
    pid = spawn(options).pid();
  }
  EXPECT_EQ(test::read_line(pipe.read.get()), "ready");
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
}

}  // namespace
}  // namespace strata::os
