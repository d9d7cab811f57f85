#include "trace/recorder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "support/guard.hpp"
#include "trace/clocks.hpp"
#include "trace/process_record.hpp"
#include "trace/process_record_reader.hpp"

namespace strata::trace {
namespace {

/// A record of its own for each test, and nothing recorded outside.
class Recorder : public testing::Test {
 protected:
  Recorder() { record_into(record_); }
  ~Recorder() override { stop_recording(); }

  std::uint32_t self() { return static_cast<std::uint32_t>(syscall(SYS_gettid)); }

  /// What one thread has recorded, or an empty list.
  ThreadEvents events_of(std::uint32_t thread) const {
    for (ThreadEvents& events : ProcessRecordReader(record_).events()) {
      if (events.thread == thread) return std::move(events);
    }
    return {};
  }

  test::Guard guard_{"recording"};
  ProcessRecord record_ = ProcessRecord::create({.path = "node", .role = "node"});
};

TEST_F(Recorder, EventsAreReadBackInOrderWithTheirTimes) {
  const auto before = static_cast<std::int64_t>(monotonic_ns());
  record(EventKind::dispatch, 1, 2);
  record(EventKind::completion, 3, 4, 5);
  const ThreadEvents thread = events_of(self());
  const auto after = static_cast<std::int64_t>(monotonic_ns());
  ASSERT_EQ(thread.events.size(), 2U);
  EXPECT_EQ(thread.recorded, 2U);
  EXPECT_EQ(thread.events[0].kind, EventKind::dispatch);
  EXPECT_EQ(thread.events[0].a, 1U);
  EXPECT_EQ(thread.events[0].b, 2U);
  EXPECT_EQ(thread.events[1].kind, EventKind::completion);
  EXPECT_EQ(thread.events[1].a, 3U);
  EXPECT_EQ(thread.events[1].b, 4U);
  EXPECT_EQ(thread.events[1].detail, 5U);
  EXPECT_LE(thread.events[0].at, thread.events[1].at);
  // The two clocks meet to some microseconds.
  EXPECT_GE(thread.events[0].at.count() + 100'000, before);
  EXPECT_LE(thread.events[1].at.count(), after);
}

TEST_F(Recorder, TasksStatesAndStepsLeaveEvents) {
  record_.set_state(ProcessState::running);
  record_.set_step("abc");
  record_.begin_task(9, "task", "callable");
  record_.end_task(2);
  const ThreadEvents thread = events_of(self());
  ASSERT_EQ(thread.events.size(), 4U);
  EXPECT_EQ(thread.events[0].kind, EventKind::state_transition);
  EXPECT_EQ(thread.events[0].b, static_cast<std::uint64_t>(ProcessState::running));
  EXPECT_EQ(thread.events[1].kind, EventKind::step);
  EXPECT_EQ(thread.events[2].kind, EventKind::task_start);
  EXPECT_EQ(thread.events[2].a, 9U);
  EXPECT_EQ(thread.events[3].kind, EventKind::task_end);
  EXPECT_EQ(thread.events[3].a, 9U);
  EXPECT_EQ(thread.events[3].b, 2U);
}

TEST_F(Recorder, WithoutARecordNothingHappens) {
  stop_recording();
  record(EventKind::dispatch, 1);
  EXPECT_TRUE(ProcessRecordReader(record_).events().empty());
}

TEST_F(Recorder, AfterWrapAroundTheLatestEventsAreThere) {
  constexpr std::uint64_t kEvents = 3 * kEventsPerRing + 17;
  for (std::uint64_t i = 0; i < kEvents; ++i)
    record(EventKind::message, i, ~i);
  const ThreadEvents thread = events_of(self());
  EXPECT_EQ(thread.recorded, kEvents);
  // The slot that the next event will go to counts as being written.
  ASSERT_EQ(thread.events.size(), kEventsPerRing - 1);
  for (std::size_t i = 0; i < thread.events.size(); ++i)
    ASSERT_EQ(thread.events[i].a, kEvents - thread.events.size() + i);
}

TEST_F(Recorder, Invariant2WhatIsReadDuringWritingIsWholeAndInOrder) {
  std::atomic<bool> over{false};
  std::atomic<std::uint32_t> id{0};
  std::thread writer([&] {
    id = self();
    for (std::uint64_t i = 0; !over.load(std::memory_order_relaxed); ++i)
      record_at(i, EventKind::message, i ^ 0x5555, ~i, static_cast<std::uint32_t>(i));
  });
  while (id.load() == 0)
    std::this_thread::yield();
  std::uint64_t laps = 0;
  for (int round = 0; round < 500; ++round) {
    const ThreadEvents thread = events_of(id);
    laps = std::max(laps, thread.recorded / kEventsPerRing);
    std::uint64_t last = 0;
    for (const Event& event : thread.events) {
      ASSERT_EQ(event.a, event.cycles ^ 0x5555);
      ASSERT_EQ(event.b, ~event.cycles);
      ASSERT_EQ(event.detail, static_cast<std::uint32_t>(event.cycles));
      ASSERT_TRUE(last == 0 || event.cycles == last + 1);
      last = event.cycles;
    }
  }
  over = true;
  writer.join();
  EXPECT_GT(laps, 0U);
}

TEST_F(Recorder, MoreThreadsThanRingsAreCounted) {
  constexpr std::size_t kThreads = kRings + 5;
  std::latch all_recorded(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      record(EventKind::message);
      record(EventKind::message);
      all_recorded.arrive_and_wait();  // So that no ring becomes free early.
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  const ProcessRecordReader reader(record_);
  EXPECT_EQ(reader.events().size(), kRings);
  EXPECT_EQ(reader.events_dropped(), 2 * (kThreads - kRings));
}

TEST_F(Recorder, RingsOfThreadsThatEndedAreUsedAgain) {
  // One after the other, far more than there are rings. What the last ones recorded is there.
  std::uint32_t last = 0;
  for (std::uint64_t i = 0; i < 5 * kRings; ++i) {
    std::thread([&] {
      last = self();
      record(EventKind::message, i);
    }).join();
  }
  const ThreadEvents thread = events_of(last);
  ASSERT_EQ(thread.events.size(), 1U) << "another thread's events are not this one's";
  EXPECT_EQ(thread.events[0].a, 5 * kRings - 1);
}

TEST_F(Recorder, AForkedChildDoesNotWriteIntoItsParentsRecord) {
  record(EventKind::message, 1);
  const pid_t child = fork();
  if (child == 0) {
    record(EventKind::message, 2);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const ThreadEvents thread = events_of(self());
  ASSERT_EQ(thread.events.size(), 1U);
  EXPECT_EQ(thread.events[0].a, 1U);
}

TEST_F(Recorder, ThreadsChangeOverToAnotherRecord) {
  record(EventKind::message, 1);
  ProcessRecord other = ProcessRecord::create({.path = "other", .role = "node"});
  record_into(other);
  record(EventKind::message, 2);
  const auto events = ProcessRecordReader(other).events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].events[0].a, 2U);
  EXPECT_EQ(events_of(self()).events.size(), 1U);
  stop_recording();
}

TEST(Clocks, WhatLiesBetweenTwoInstantsIsInterpolatedAndKeptBetween) {
  constexpr Instant kFrom{.cycles = 1000, .ns = 5000};
  constexpr Instant kTo{.cycles = 3000, .ns = 6000};
  EXPECT_EQ(ns_between(kFrom, kTo, 2000), 5500U);
  EXPECT_EQ(ns_between(kFrom, kTo, 0), 5000U);
  EXPECT_EQ(ns_between(kFrom, kTo, UINT64_MAX), 6000U);
  EXPECT_EQ(ns_between(kTo, kFrom, 2000), 6000U);
}

}  // namespace
}  // namespace strata::trace
