#include "diag/thread_look.hpp"

#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/time_bounds.hpp"

namespace strata::diag {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(SystemCallLine, IsReadInFull) {
  const auto call =
      parse_system_call("202 0x7f01 0x80 0x0 0x0 0x0 0xffffffffffffffff 0x7ffe10 0x7fae42\n");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->number, 202);
  EXPECT_THAT(call->arguments, testing::ElementsAre(0x7f01, 0x80, 0, 0, 0, UINT64_MAX));
  EXPECT_EQ(call->sp, 0x7ffe10U);
  EXPECT_EQ(call->pc, 0x7fae42U);
}

TEST(SystemCallLine, WhatIsNoCallIsNone) {
  for (const char* text : {"", "running\n", "-1 0x7ffe 0x7fae\n", "0 0x1 0x2\n",
                           "1 2 3 4 5 6 7 8 9", "0 0xg 0x0 0x0 0x0 0x0 0x0 0x0 0x0"}) {
    EXPECT_FALSE(parse_system_call(text)) << text;
  }
}

TEST(SystemCallText, SaysWhatIsWaitedFor) {
  const auto text = [](long number, std::uint64_t first = 0, std::uint64_t second = 0) {
    return describe_call(::getpid(), {.number = number, .arguments = {first, second}});
  };
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_THAT(text(SYS_read, static_cast<std::uint64_t>(ends[0])), HasSubstr("(pipe:["));
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(text(SYS_read, 999'999), "read of descriptor 999999");
  EXPECT_EQ(text(SYS_wait4, 55), "wait4: waits for its child 55");
  EXPECT_EQ(text(SYS_wait4, static_cast<std::uint64_t>(-1)), "wait4: waits for a child");
  EXPECT_EQ(text(SYS_waitid, 1, 56), "waitid: waits for its child 56");
  EXPECT_EQ(text(SYS_waitid, 0), "waitid: waits for a child");
  EXPECT_EQ(text(SYS_futex, 0x10), "futex: waits on 0x10");
  EXPECT_EQ(text(SYS_clock_nanosleep), "clock_nanosleep: sleeps");
  EXPECT_EQ(text(999), "system call 999");
}

TEST(ThreadLook, SeesEveryThreadWithItsNameAndWhatItIsIn) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  std::atomic<pid_t> id{0};
  std::thread thread([&] {
    (void)pthread_setname_np(pthread_self(), "a reader");
    id = static_cast<pid_t>(::syscall(SYS_gettid));
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  });
  // What is seen of a thread is not seen at one moment: until it is all as it stays.
  ThreadLook found;
  EXPECT_TRUE(test::within(5s,
                           [&] {
                             for (ThreadLook& look : look_at_threads(::getpid())) {
                               if (look.thread == id) found = std::move(look);
                             }
                             return found.name == "a reader" && found.state == 'S' && found.call &&
                                    found.call->number == SYS_read;
                           }))
      << found.name << ", " << found.state;
  ASSERT_TRUE(found.call);
  EXPECT_EQ(descriptor_of(*found.call), ends[0]);
  EXPECT_EQ(::write(ends[1], "x", 1), 1);
  thread.join();
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(ThreadLook, TimeThatIsWantedGrowsForOneThatSpinsAndForNoOther) {
  std::atomic<bool> stop{false};
  std::atomic<pid_t> id{0};
  std::thread spinner([&] {
    id = static_cast<pid_t>(::syscall(SYS_gettid));
    while (!stop.load(std::memory_order_relaxed)) {
    }
  });
  const auto wanted = [&] {
    for (const ThreadLook& look : look_at_threads(::getpid())) {
      if (look.thread == id) return look.wanted_time;
    }
    return 0ns;
  };
  EXPECT_TRUE(test::within(5s, [&] { return wanted() > 1ms; }));
  const auto before = wanted();
  EXPECT_TRUE(test::within(5s, [&] { return wanted() > before + 20ms; }));
  stop = true;
  spinner.join();
}

TEST(ThreadLook, AProcessThatIsGoneHasNone) { EXPECT_TRUE(look_at_threads(4194304).empty()); }

}  // namespace
}  // namespace strata::diag
