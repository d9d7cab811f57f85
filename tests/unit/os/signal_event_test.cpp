#include "os/signal_event.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "child.hpp"
#include "os/epoll.hpp"
#include "strata/error.hpp"
#include "support/guard.hpp"
#include "support/process.hpp"

namespace strata::os {
namespace {

TEST(SignalEvents, SignalBecomesABitAndAnEvent) {
  const strata::test::LeakCheck leaks;
  SignalEvents events({SIGUSR1, SIGUSR2});
  EXPECT_TRUE(events.take().empty());
  ::raise(SIGUSR2);
  ::raise(SIGUSR2);
  Epoll epoll;
  epoll.add(events.fd(), EPOLLIN, 0);
  std::array<epoll_event, 1> room{};
  EXPECT_EQ(epoll.wait(room, Deadline::never()).size(), 1U);
  const SignalSet arrived = events.take();
  EXPECT_TRUE(arrived.contains(SIGUSR2));
  EXPECT_FALSE(arrived.contains(SIGUSR1));
  EXPECT_FALSE(arrived.contains(0));
  EXPECT_FALSE(arrived.contains(1000));
  EXPECT_TRUE(events.take().empty());
  EXPECT_TRUE(epoll.wait(room, Deadline::after(std::chrono::seconds(0))).empty());
}

// Invariant (2): the reader's read() is interrupted, restarted, and reads what comes later.
TEST(SignalEvents, SystemCallGoesOnAfterASignal) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer runs handlers only after read() has returned";
#endif
  const strata::test::Guard guard("a read that is interrupted");
  SignalEvents events({SIGUSR1});
  const test::Pipe pipe = test::make_pipe();
  std::atomic<ssize_t> result{-2};
  std::atomic<bool> reading{false};
  std::thread reader([&] {
    char byte = 0;
    reading = true;
    result = ::read(pipe.read.get(), &byte, 1);
  });
  while (!reading)
    std::this_thread::yield();
  Epoll epoll;
  epoll.add(events.fd(), EPOLLIN, 0);
  std::array<epoll_event, 1> room{};
  for (int i = 0; i < 100; ++i) {
    ::pthread_kill(reader.native_handle(), SIGUSR1);
    EXPECT_EQ(epoll.wait(room, Deadline::never()).size(), 1U);
    EXPECT_TRUE(events.take().contains(SIGUSR1));
  }
  EXPECT_EQ(result.load(), -2);
  EXPECT_EQ(::write(pipe.write.get(), "x", 1), 1);
  reader.join();
  EXPECT_EQ(result.load(), 1);
}

// Invariant (1)
TEST(SignalEvents, OnlyOneAtATime) {
  const SignalEvents events({SIGUSR1});
  EXPECT_THROW(SignalEvents({SIGUSR2}), InvalidState);
}

// Invariant (3)
TEST(SignalEvents, PreviousHandlersAreRestored) {
  static std::atomic<int> handled{0};
  handled = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { handled.fetch_add(1); };
  struct sigaction before {};
  ::sigaction(SIGUSR1, &action, &before);
  {
    SignalEvents events({SIGUSR1, SIGUSR1});
    ::raise(SIGUSR1);
    EXPECT_TRUE(events.take().contains(SIGUSR1));
    EXPECT_EQ(handled.load(), 0);
  }
  ::raise(SIGUSR1);
  EXPECT_EQ(handled.load(), 1);
  {
    SignalEvents events({SIGUSR1});  // Another one may follow.
    EXPECT_TRUE(events.take().empty());
  }
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(SignalEvents, SignalThatCannotBeHandledIsRefusedAndNothingStays) {
  const strata::test::LeakCheck leaks;
  EXPECT_THROW(SignalEvents({SIGUSR1, SIGKILL}), SystemError);
  struct sigaction now {};
  ::sigaction(SIGUSR1, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
  const SignalEvents events({SIGUSR1});
}

// Invariants (2) and (3), while handlers run in other threads at any instant.
TEST(SignalEvents, StormDuringConstructionAndDestruction) {
  const strata::test::Guard guard("a storm of signals");
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  struct sigaction before {};
  ::sigaction(SIGUSR1, &ignore, &before);
  std::atomic<bool> stop{false};
  std::thread victim([&] {
    while (!stop.load())
      std::this_thread::yield();
  });
  std::thread sender([&] {
    while (!stop.load())
      ::pthread_kill(victim.native_handle(), SIGUSR1);
  });
  for (int i = 0; i < 200; ++i) {
    SignalEvents events({SIGUSR1});
    if (i % 2 == 0) {
      while (!events.take().contains(SIGUSR1))
        std::this_thread::yield();
    }
  }
  stop = true;
  sender.join();
  victim.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace strata::os
