// The mailbox between two processes: what they do to each other when all is well, when one dies and
// when one writes where it should not.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "ipc/mailbox.hpp"
#include "os/mapping.hpp"
#include "os/memfd.hpp"
#include "support/forked_child.hpp"
#include "support/guard.hpp"
#include "support/mailbox_ends.hpp"
#include "support/process.hpp"
#include "support/random.hpp"

namespace strata::ipc {
namespace {

using strata::test::done;
using strata::test::ForkedChild;
using strata::test::Guard;
using strata::test::LeakCheck;
using strata::test::Memory;
using strata::test::numbered;
using Push = MailboxParent::PushResult;
using Pop = MailboxParent::PopResult;
using Take = MailboxWorker::TakeResult;
using Wait = MailboxWorker::WaitResult;

/// What a worker does that answers each frame with its scalars' sum; for ever.
int serve(const Memory& memory, int page) {
  SpinnerBudget budget(page);
  MailboxWorker worker(memory.memfd.get(), memory.event.fd(), &budget);
  for (;;) {
    if (worker.wait() != Wait::frame) return 1;
    const auto taken = worker.take();
    if (taken.result != Take::frame) return 2;
    std::uint64_t sum = 0;
    for (const std::uint64_t scalar : taken.frame.scalars())
      sum += scalar;
    CompletionFrame frame = done(taken.frame.header().dispatch);
    frame.set_inline_value({reinterpret_cast<const char*>(&sum), sizeof sum});
    worker.complete(frame);
  }
}

/// Sleeps until the mailbox has something to pop.
void sleep_for_completion(const Memory& memory, MailboxParent& parent) {
  while (parent.arm()) {
    pollfd entry{.fd = memory.event.fd(), .events = POLLIN, .revents = 0};
    (void)poll(&entry, 1, -1);
    (void)memory.event.drain();
  }
}

void expect_sum(const MailboxParent::Popped& popped, std::uint64_t sum) {
  ASSERT_EQ(popped.frame.inline_value().size(), sizeof sum);
  EXPECT_EQ(std::memcmp(popped.frame.inline_value().data(), &sum, sizeof sum), 0);
}

TEST(MailboxProcesses, PingPong) {
  const LeakCheck check;
  const Memory memory;
  const os::UniqueFd page = SpinnerBudget::make(SpinnerBudget::default_limit());
  ForkedChild child([&] { return serve(memory, page.get()); });
  Guard guard("ping-pong between two processes");
  MailboxParent parent(memory.memfd.get());
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const std::vector<std::uint64_t> scalars(i % 100, i);  // Some go to the arena.
    Submission submission = numbered(i);
    submission.scalars = scalars;
    ASSERT_EQ(parent.push(submission).result, Push::pushed);
    sleep_for_completion(memory, parent);
    const auto popped = parent.pop();
    ASSERT_EQ(popped.result, Pop::completion);
    expect_sum(popped, i % 100 * i);
  }
}

TEST(MailboxProcesses, Pipelined) {
  const LeakCheck check;
  const Memory memory({.slots = 16, .arena_bytes = 4096});
  const os::UniqueFd page = SpinnerBudget::make(SpinnerBudget::default_limit());
  ForkedChild child([&] { return serve(memory, page.get()); });
  Guard guard("frames between two processes");
  MailboxParent parent(memory.memfd.get());
  constexpr std::uint64_t kFrames = 60000;
  std::uint64_t pushed = 0, popped = 0;
  while (popped < kFrames) {
    while (pushed < kFrames) {
      const std::vector<std::uint64_t> scalars(pushed % 83, pushed);
      Submission submission = numbered(pushed);
      submission.scalars = scalars;
      const auto result = parent.push_quietly(submission);
      if (result.result != Push::pushed) break;
      ++pushed;
    }
    parent.wake();
    sleep_for_completion(memory, parent);
    for (auto next = parent.pop(); next.result == Pop::completion; next = parent.pop()) {
      ASSERT_EQ(next.frame.dispatch, popped);
      expect_sum(next, popped % 83 * popped);
      ++popped;
    }
  }
}

TEST(MailboxProcesses, WhatADeadWorkerHadDoneAndBegunIsKnown) {
  const LeakCheck check;
  for (int begun = 1; begun <= 4; ++begun) {
    const Memory memory;
    MailboxParent parent(memory.memfd.get());
    std::vector<MailboxParent::Ticket> tickets;
    for (std::uint64_t i = 0; i < 5; ++i)
      tickets.push_back(parent.push(numbered(i)).ticket);
    ForkedChild child([&] {
      MailboxWorker worker(memory.memfd.get(), memory.event.fd(), nullptr);
      for (int i = 0;; ++i) {
        (void)worker.wait();
        const auto taken = worker.take();
        if (i + 1 == begun) kill(getpid(), SIGKILL);
        worker.complete(done(taken.frame.header().dispatch));
      }
      return 0;
    });
    const int status = child.wait();
    ASSERT_TRUE(WIFSIGNALED(status));
    for (int i = 0; i + 1 < begun; ++i)
      EXPECT_EQ(parent.pop().result, Pop::completion);
    EXPECT_EQ(parent.pop().result, Pop::nothing);
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(parent.begun(tickets[i]), i < begun);
  }
}

// ---- Invariant (5) ------------------------------------------------------------------------------

/// Writes random bytes all over [data, data + size), but not into words that are multiples of
/// `spare` from its beginning (0: none are spared); for ever.
int scribble(std::byte* data, std::size_t size, std::size_t spare, std::uint64_t seed) {
  strata::test::Random random(seed);
  for (;;) {
    const std::size_t at = random.below(size / 8) * 8;
    if (spare != 0 && at % spare == 0) continue;
    auto* word = reinterpret_cast<volatile std::uint64_t*>(data + at);
    switch (random.below(4)) {
      case 0:
        *word = random();
        break;
      case 1:
        *word = random.below(70);
        break;
      case 2:
        *word = *word ^ (std::uint64_t{1} << random.below(64));
        break;
      default:
        *reinterpret_cast<volatile std::uint8_t*>(data + at + random.below(8)) = 0xff;
    }
  }
}

/// Reads all of a frame, so that a span that leads nowhere is found out.
std::uint64_t read_all(const SubmissionView& view) {
  std::uint64_t sum = view.header().dispatch;
  for (const TensorFrame& tensor : view.tensors()) {
    for (const std::int64_t extent : tensor.extents)
      sum += static_cast<std::uint64_t>(extent);
    for (const std::int64_t stride : tensor.strides)
      sum += static_cast<std::uint64_t>(stride);
  }
  for (const std::uint64_t scalar : view.scalars())
    sum += scalar;
  for (const char c : view.name())
    sum += static_cast<unsigned char>(c);
  return sum;
}

TEST(MailboxProcesses, WorkerSurvivesAParentThatScribbles) {
  const LeakCheck check;
  int frames = 0;
  std::uint64_t checksum = 0;
  for (std::uint64_t round = 0; round < 60; ++round) {
    const Memory memory({.slots = 8, .arena_bytes = 4096});
    const MailboxLayout layout{8, 4096};
    const os::Mapping mapping = os::Mapping::shared(memory.memfd.get(), layout.bytes());
    MailboxParent parent(memory.memfd.get());
    MailboxWorker worker(memory.memfd.get(), memory.event.fd(), nullptr);
    const bool everywhere = round % 4 == 0;
    ForkedChild child([&] {
      // All of it, or all but the sequence words of the slots: so that frames keep coming.
      return everywhere
                 ? scribble(mapping.data(), mapping.size(), 0, round)
                 : scribble(mapping.data() + layout.submissions(),
                            mapping.size() - layout.submissions(), SubmissionSlot::kBytes, round);
    });
    Guard guard("a parent that scribbles");
    const std::vector<std::int64_t> shape{4, 4};
    const TensorFrame tensor{.reach_end = 4096, .extents = shape, .strides = shape};
    const std::vector<TensorFrame> tensors(1 + round % 9, tensor);
    std::uint64_t number = 0;
    std::uint64_t completed = 0;
    // Sooner or later it hits: the guard says if not.
    while (worker.broken().empty()) {
      Submission submission = numbered(number);
      submission.tensors = tensors;
      submission.name = "name";
      while (parent.push(submission).result == Push::pushed)
        submission.header.dispatch = ++number;
      worker.interrupt();
      const Wait wait = worker.wait();
      ASSERT_TRUE(wait == Wait::interrupted || wait == Wait::broken);
      const auto taken = worker.take();
      if (taken.result == Take::frame) {
        ++frames;
        checksum += read_all(taken.frame);
        worker.complete(done(completed++));
        (void)parent.pop();
      } else {
        std::this_thread::yield();
      }
    }
    EXPECT_EQ(worker.take().result, Take::broken) << "for good";
  }
  EXPECT_GT(frames, 60) << "it read next to nothing; sum " << checksum;
}

TEST(MailboxProcesses, ParentSurvivesAWorkerThatScribbles) {
  const LeakCheck check;
  int broken = 0;
  int completions = 0;
  for (std::uint64_t round = 0; round < 60; ++round) {
    const Memory memory({.slots = 8, .arena_bytes = 4096});
    const MailboxLayout layout{8, 4096};
    const os::Mapping mapping = os::Mapping::shared(memory.memfd.get(), layout.bytes());
    MailboxParent parent(memory.memfd.get());
    const bool everywhere = round % 4 == 0;
    ForkedChild child([&] {
      if (everywhere) return scribble(mapping.data(), mapping.size(), 0, round);
      // A worker that works, and then writes into what the completions are.
      MailboxWorker worker(memory.memfd.get(), memory.event.fd(), nullptr);
      strata::test::Random random(round);
      for (int i = 0;; ++i) {
        (void)worker.wait();
        CompletionFrame frame = done(worker.take().frame.header().dispatch);
        if (i == 50) std::memset(&frame.status, static_cast<int>(random()), 48);
        worker.complete(frame);
      }
      return 0;
    });
    Guard guard("a worker that scribbles");
    std::uint64_t number = 0;
    for (int i = 0; i < 100000 && parent.broken().empty(); ++i) {
      const auto pushed = parent.push(numbered(number));
      if (pushed.result == Push::pushed) {
        ++number;
        (void)parent.begun(pushed.ticket);
        parent.cancel(pushed.ticket);
      }
      if (parent.arm()) parent.disarm();
      const auto popped = parent.pop();
      if (popped.result == Pop::completion) {
        ++completions;
        EXPECT_LE(popped.frame.inline_value().size(), CompletionFrame::kInlineBytes);
      }
      if (popped.result == Pop::broken) {
        EXPECT_TRUE(parent.can_pop());
        EXPECT_FALSE(parent.arm()) << "the popper must not sleep: it has something to hear";
        EXPECT_EQ(parent.pop().result, Pop::broken) << "for good";
        ++broken;
      }
      if (popped.result == Pop::nothing) std::this_thread::yield();
    }
  }
  EXPECT_GT(broken, 10);
  EXPECT_GT(completions, 100);
}

TEST(MailboxProcesses, CompletionOfWhatWasNotPushedOrOutOfTurnIsBroken) {
  for (const bool pushed : {false, true}) {
    const Memory memory;
    MailboxParent parent(memory.memfd.get());
    const MailboxLayout layout{64, 1U << 20U};
    const os::Mapping mapping = os::Mapping::shared(memory.memfd.get(), layout.bytes());
    if (pushed) (void)parent.push(numbered(9));
    auto* slot = reinterpret_cast<CompletionSlot*>(mapping.data() + layout.completions());
    slot->frame = done(pushed ? 10 : 9);
    slot->sequence.store(1);
    EXPECT_EQ(parent.pop().result, Pop::broken);
    EXPECT_FALSE(parent.broken().empty());
  }
}

}  // namespace
}  // namespace strata::ipc
