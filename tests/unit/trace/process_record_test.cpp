#include "trace/process_record.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "os/memfd.hpp"
#include "strata/error.hpp"
#include "support/guard.hpp"
#include "support/random.hpp"
#include "trace/clocks.hpp"
#include "trace/process_record_reader.hpp"

namespace strata::trace {
namespace {

using testing::HasSubstr;

ProcessRecord make_record() {
  return ProcessRecord::create({.path = "node/next[0]/sub[1]", .role = "sub worker"});
}

TEST(ProcessRecord, TellsWhoTheProcessIsBeforeItRuns) {
  const std::uint64_t before = monotonic_ns();
  const ProcessRecord record = make_record();
  const Card card = ProcessRecordReader(record).card();
  EXPECT_EQ(card.path, "node/next[0]/sub[1]");
  EXPECT_EQ(card.role, "sub worker");
  EXPECT_EQ(card.pid, 0);
  EXPECT_EQ(card.parent, getpid());
  EXPECT_EQ(card.state, ProcessState::starting);
  EXPECT_EQ(card.step, "");
  EXPECT_FALSE(card.task.has_value());
  EXPECT_GE(card.started.count(), static_cast<std::int64_t>(before));
  EXPECT_LE(card.started.count(), static_cast<std::int64_t>(monotonic_ns()));
  EXPECT_FALSE(ProcessRecordReader(record).crash().has_value());
}

TEST(ProcessRecord, HowTheProcessEndedIsNothingUntilItsParentSaysSo) {
  ProcessRecord record = make_record();
  const ProcessRecordReader reader(record);
  EXPECT_FALSE(reader.card().end);
  const os::ExitStatus killed{.kind = os::ExitStatus::Kind::signalled, .value = 11};
  record.set_end(killed);
  EXPECT_EQ(reader.card().end, killed);
  EXPECT_GE(reader.card().ended, reader.card().started);
}

TEST(ProcessRecordReader, FindsTheRecordsOfDeadChildrenAmongThoseThatAProcessHolds) {
  ProcessRecord dead = make_record();
  ProcessRecord living = make_record();
  // The dead one's number may be anybody's by now, also our own.
  dead.set_pid(getpid());
  dead.set_end({.kind = os::ExitStatus::Kind::exited, .value = 3});
  living.set_pid(1);
  std::size_t ended = 0;
  const std::vector<ProcessRecordReader> held = ProcessRecordReader::held_by(getpid());
  for (const ProcessRecordReader& reader : held)
    ended += reader.card().end ? 1 : 0;
  EXPECT_EQ(held.size(), 2U);
  EXPECT_EQ(ended, 1U);
  EXPECT_FALSE(ProcessRecordReader::of_process(getpid()));
  living.set_pid(getpid());
  EXPECT_TRUE(ProcessRecordReader::of_process(getpid()));
}

TEST(ProcessRecord, WhatIsWrittenThroughOneMappingIsReadThroughAnother) {
  const ProcessRecord parent = make_record();
  ProcessRecord child = ProcessRecord::attach(os::UniqueFd(dup(parent.fd())));
  const ProcessRecordReader reader(parent);
  EXPECT_EQ(reader.card().pid, getpid());

  child.set_state(ProcessState::initialising);
  child.set_step("load platform cpu");
  EXPECT_EQ(reader.card().state, ProcessState::initialising);
  EXPECT_EQ(reader.card().step, "load platform cpu");
  child.set_step("");
  EXPECT_EQ(reader.card().step, "");

  const auto before = monotonic_ns();
  child.begin_task(77, "scale rows 0..15", "libtasks.so:scale");
  const std::optional<TaskInHand> task = reader.card().task;
  ASSERT_TRUE(task.has_value());
  EXPECT_EQ(task->task, 77U);
  EXPECT_EQ(task->name, "scale rows 0..15");
  EXPECT_EQ(task->callable, "libtasks.so:scale");
  // Clocks are compared through two instants; some microseconds are allowed for that.
  EXPECT_GE(task->since.count() + 100'000, static_cast<std::int64_t>(before));
  EXPECT_LE(task->since.count(), static_cast<std::int64_t>(monotonic_ns()));
  child.end_task();
  EXPECT_FALSE(reader.card().task.has_value());
}

TEST(ProcessRecord, TextsOfEveryLengthAreWholeOrSayHowLongTheyAre) {
  ProcessRecord record = make_record();
  const ProcessRecordReader reader(record);
  std::string text;
  for (std::size_t length = 0; length <= 600; ++length) {
    record.set_step(text);
    const std::string step = reader.card().step;
    if (length <= 512) {
      ASSERT_EQ(step, text);
    } else {
      ASSERT_THAT(step, testing::StartsWith(text.substr(0, 512)));
      ASSERT_THAT(step, HasSubstr("(" + std::to_string(length) + " bytes in all)"));
    }
    text += static_cast<char>('a' + length % 26);
  }
  record.begin_task(1, std::string(5000, 'n'), std::string(121, 'c'));
  const Card card = reader.card();
  EXPECT_EQ(card.task->name, std::string(120, 'n') + " ... (5000 bytes in all)");
  EXPECT_EQ(card.task->callable, std::string(120, 'c') + " ... (121 bytes in all)");
}

TEST(ProcessRecord, Invariant1ATaskIsReadAsAWholeWhileItChanges) {
  const test::Guard guard("reading the task in hand while it changes");
  ProcessRecord record = make_record();
  const ProcessRecordReader reader(record);
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; !over.load(std::memory_order_relaxed); ++i) {
      const std::string name(i % 100 + 1, static_cast<char>('a' + i % 26));
      record.begin_task(i, name, name);
    }
  });
  for (int seen = 0; seen < 20'000;) {
    const std::optional<TaskInHand> task = reader.card().task;
    if (!task) continue;
    ++seen;
    const std::string name(task->task % 100 + 1, static_cast<char>('a' + task->task % 26));
    ASSERT_EQ(task->name, name) << "task " << task->task;
    ASSERT_EQ(task->callable, name) << "task " << task->task;
  }
  over = true;
  writer.join();
}

TEST(ProcessRecord, StepsOfSeveralThreadsAreNeverMixed) {
  const test::Guard guard("steps of several threads");
  ProcessRecord record = make_record();
  const ProcessRecordReader reader(record);
  std::atomic<int> left{3};
  std::vector<std::thread> writers;
  for (int thread = 0; thread < 3; ++thread) {
    writers.emplace_back([&, thread] {
      for (int i = 0; i < 20'000; ++i)
        record.set_step(std::string(40 + thread, static_cast<char>('x' + thread)));
      --left;
    });
  }
  while (left.load() > 0) {
    const std::string step = reader.card().step;
    // A reader that meets writers all the time may be told that the step was being written.
    if (step.empty() || step.front() == '(') continue;
    const int thread = step.front() - 'x';
    ASSERT_EQ(step, std::string(40 + thread, static_cast<char>('x' + thread)));
  }
  for (std::thread& writer : writers)
    writer.join();
}

TEST(ProcessRecord, AWriterThatStoppedInTheMiddleStopsNobody) {
  const test::Guard guard("a writer that stopped in the middle");
  ProcessRecord record = make_record();
  record.set_step("before");
  record.begin_task(5, "task", "callable");
  record.layout().card.step.sequence.fetch_or(1);
  record.layout().card.task.sequence.fetch_or(1);
  const Card card = ProcessRecordReader(record).card();
  EXPECT_THAT(card.step, HasSubstr("being written"));
  EXPECT_FALSE(card.task.has_value());
  record.set_step("after");  // Gives up.
  record.begin_task(6, "next task", "callable");
  EXPECT_EQ(ProcessRecordReader(record).card().task->name, "next task");
}

TEST(ProcessRecord, Invariant2NothingThatLiesInTheMemoryHurtsTheReader) {
  const ProcessRecord record = make_record();
  auto* const bytes = reinterpret_cast<unsigned char*>(const_cast<RecordLayout*>(&record.layout()));
  const ProcessRecordReader reader(record);
  test::Random random(20'240'607);
  for (int round = 0; round < 60; ++round) {
    // All of it at random, or only some words: lengths and counts among plausible neighbours.
    const std::size_t changes = round % 2 == 0 ? sizeof(RecordLayout) : 2000;
    for (std::size_t i = 0; i < changes; ++i) {
      const std::size_t at = round % 2 == 0 ? i : random.below(sizeof(RecordLayout));
      bytes[at] = static_cast<unsigned char>(random.below(256));
    }
    (void)reader.card();
    (void)reader.events();
    const std::optional<CrashReport> crash = reader.crash();
    if (crash) (void)crash->headline();
  }
}

TEST(ProcessRecord, WhatIsNoRecordIsRefused) {
  const os::UniqueFd zeros = os::make_memfd("zeros", sizeof(RecordLayout));
  EXPECT_THROW((void)ProcessRecord::attach(os::UniqueFd(dup(zeros.get()))), Error);
  EXPECT_THROW((void)ProcessRecordReader(zeros.get()), Error);
  const os::UniqueFd small = os::make_memfd("small", 4096);
  EXPECT_THROW((void)ProcessRecordReader(small.get()), Error);
  const os::UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), sizeof(RecordLayout)), 0);
  EXPECT_THROW((void)ProcessRecordReader(unsealed.get()), Error);
  const os::UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_THROW((void)ProcessRecordReader(null.get()), Error);
  EXPECT_THROW((void)ProcessRecordReader(-1), Error);

  ProcessRecord other = make_record();
  other.layout().version.store(99);
  try {
    (void)ProcessRecordReader(other);
    FAIL() << "another version was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("version 99"));
  }
}

TEST(ProcessRecord, IsFoundThroughProcByThePidOfItsProcess) {
  const ProcessRecord of_a_child = make_record();
  ProcessRecord own = ProcessRecord::create({.path = "node", .role = "node"});
  EXPECT_FALSE(ProcessRecordReader::of_process(getpid()).has_value());
  own.set_pid(getpid());
  const auto reader = ProcessRecordReader::of_process(getpid());
  ASSERT_TRUE(reader.has_value());
  EXPECT_EQ(reader->card().path, "node");
  EXPECT_FALSE(ProcessRecordReader::of_process(1 << 30).has_value());
}

TEST(ProcessRecord, NumbersThatThisBuildDoesNotKnowHaveANameToo) {
  EXPECT_EQ(name_of(ProcessState::running), "running");
  EXPECT_EQ(name_of(static_cast<ProcessState>(77)), "state 77");
  EXPECT_EQ(name_of(EventKind::task_start), "task_start");
  EXPECT_EQ(name_of(static_cast<EventKind>(77)), "event 77");
}

}  // namespace
}  // namespace strata::trace
