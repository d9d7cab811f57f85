// Millions of frames through a mailbox whose two ends pause when it suits nobody. A wake-up that is
// lost leaves both asleep, which the guard then reports.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "ipc/mailbox.hpp"
#include "os/cpu.hpp"
#include "support/forked_child.hpp"
#include "support/guard.hpp"
#include "support/mailbox_ends.hpp"
#include "support/process.hpp"
#include "support/random.hpp"

namespace strata::ipc {
namespace {

using strata::test::done;
using strata::test::numbered;
using strata::test::Random;
using Push = MailboxParent::PushResult;
using Pop = MailboxParent::PopResult;

/// Mostly nothing, often about as long as the other side takes to fall asleep, seldom a real sleep.
void pause(Random& random) {
  const std::uint64_t kind = random.below(1000);
  if (kind < 940) return;
  if (kind < 998) {
    for (std::uint64_t i = random.below(300); i > 0; --i)
      os::cpu_relax();
  } else if (kind < 999) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(100)));
  }
}

/// Takes and completes frames until one says that it is the last.
int work(const strata::test::Memory& memory, SpinnerBudget* budget, std::uint64_t seed) {
  MailboxWorker worker(memory.memfd.get(), memory.event.fd(), budget);
  Random random(seed);
  for (std::uint64_t expected = 0;; ++expected) {
    if (worker.wait() != MailboxWorker::WaitResult::frame) return 1;
    const auto taken = worker.take();
    if (taken.result != MailboxWorker::TakeResult::frame) return 2;
    if (taken.frame.header().dispatch != expected) return 3;
    pause(random);
    worker.complete(done(expected));
    if (taken.frame.header().callable == 1) return 0;
  }
}

/// Sends `frames` frames, never more than `depth` in flight.
void drive(const strata::test::Memory& memory, std::uint64_t frames, std::uint64_t depth,
           std::uint64_t seed) {
  MailboxParent parent(memory.memfd.get());
  Random random(seed);
  std::uint64_t pushed = 0, popped = 0;
  while (popped < frames) {
    while (pushed < frames && pushed - popped < depth && !random.chance(10)) {
      Submission submission = numbered(pushed);
      submission.header.callable = pushed + 1 == frames ? 1 : 0;
      ASSERT_EQ(parent.push(submission).result, Push::pushed);
      ++pushed;
    }
    pause(random);
    if (popped != pushed && random.chance(50)) {
      while (parent.arm()) {
        pollfd entry{.fd = memory.event.fd(), .events = POLLIN, .revents = 0};
        (void)poll(&entry, 1, -1);
        (void)memory.event.drain();
      }
    }
    for (auto next = parent.pop(); next.result != Pop::nothing; next = parent.pop()) {
      ASSERT_EQ(next.result, Pop::completion) << parent.broken();
      ASSERT_EQ(next.frame.dispatch, popped);
      ++popped;
    }
  }
}

TEST(MailboxStress, NoWakeUpIsLostBetweenProcesses) {
  const strata::test::LeakCheck check;
  for (const std::uint64_t depth : {1U, 2U, 16U, 64U}) {
    for (const bool spins : {false, true}) {
      const std::uint64_t frames = depth == 1 ? 30000 : 250000;
      const std::uint64_t seed = depth * 2 + (spins ? 1 : 0);
      const strata::test::Memory memory;
      const os::UniqueFd page = SpinnerBudget::make(SpinnerBudget::default_limit());
      strata::test::ForkedChild child([&] {
        SpinnerBudget budget(page.get());
        return work(memory, spins ? &budget : nullptr, seed);
      });
      strata::test::Guard guard("frames between processes, depth " + std::to_string(depth));
      drive(memory, frames, depth, ~seed);
      const int status = child.wait();
      ASSERT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), 0);
    }
  }
}

TEST(MailboxStress, NoInterruptIsLostAmongFrames) {
  strata::test::Guard guard("frames and interrupts");
  strata::test::Ends ends;
  constexpr int kInterrupts = 3000;
  // Each interruption is waited for before the next is sent, so that they can be counted.
  std::atomic<int> seen{0};
  std::atomic<bool> over{false};
  std::thread worker([&] {
    while (!over.load()) {
      switch (ends.worker.wait()) {
        case MailboxWorker::WaitResult::interrupted:
          seen.fetch_add(1);
          break;
        case MailboxWorker::WaitResult::frame:
          ends.worker.complete(done(ends.worker.take().frame.header().dispatch));
          break;
        case MailboxWorker::WaitResult::broken:
          ADD_FAILURE() << ends.worker.broken();
          return;
      }
    }
  });
  std::thread parent([&] {
    Random random(7);
    std::uint64_t pushed = 0;
    while (!over.load()) {
      if (ends.parent.push(numbered(pushed)).result == Push::pushed) ++pushed;
      while (ends.parent.pop().result == Pop::completion) {
      }
      if (random.chance(5)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  Random random(8);
  for (int i = 1; i <= kInterrupts; ++i) {
    ends.worker.interrupt();
    while (seen.load() != i)
      std::this_thread::yield();
    pause(random);
  }
  over = true;
  ends.worker.interrupt();
  worker.join();
  parent.join();
}

}  // namespace
}  // namespace strata::ipc
