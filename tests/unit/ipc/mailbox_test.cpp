#include "ipc/mailbox.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <deque>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "os/memfd.hpp"
#include "strata/error.hpp"
#include "support/guard.hpp"
#include "support/mailbox_ends.hpp"
#include "support/process.hpp"
#include "support/random.hpp"

namespace strata::ipc {
namespace {

using strata::test::done;
using strata::test::Ends;
using strata::test::numbered;
using Push = MailboxParent::PushResult;
using Pop = MailboxParent::PopResult;
using Take = MailboxWorker::TakeResult;
using Wait = MailboxWorker::WaitResult;

TEST(Mailbox, FrameArrivesWithAllItsParts) {
  Ends ends;
  const std::vector<std::int64_t> extents{3, 4};
  const std::vector<std::int64_t> strides{4, 1};
  const std::vector<TensorFrame> tensors{{.slab = 7,
                                          .generation = 9,
                                          .offset = 128,
                                          .reach_begin = 128,
                                          .reach_end = 176,
                                          .dtype = DType::float32,
                                          .access = Access::inout,
                                          .extents = extents,
                                          .strides = strides}};
  const std::vector<std::uint64_t> scalars{1, 2, 3};
  const Submission sent{
      .header =
          {.dispatch = 5, .task = 6, .time_limit_ns = 7, .callable = 8, .member = 1, .members = 2},
      .tensors = tensors,
      .scalars = scalars,
      .name = "gemm"};
  ASSERT_EQ(ends.parent.push(sent).result, Push::pushed);
  ASSERT_EQ(ends.worker.wait(), Wait::frame);
  const auto taken = ends.worker.take();
  ASSERT_EQ(taken.result, Take::frame);
  EXPECT_EQ(taken.frame.header(), sent.header);
  EXPECT_EQ(taken.frame.name(), "gemm");
  EXPECT_TRUE(std::ranges::equal(taken.frame.scalars(), scalars));
  ASSERT_EQ(taken.frame.tensor_count(), 1U);
  const TensorFrame tensor = *taken.frame.tensors().begin();
  EXPECT_EQ(tensor.slab, 7U);
  EXPECT_EQ(tensor.generation, 9U);
  EXPECT_EQ(tensor.offset, 128U);
  EXPECT_EQ(tensor.dtype, DType::float32);
  EXPECT_EQ(tensor.access, Access::inout);
  EXPECT_TRUE(std::ranges::equal(tensor.extents, extents));
  EXPECT_TRUE(std::ranges::equal(tensor.strides, strides));

  CompletionFrame completion = done(5);
  completion.set_inline_value("forty-two");
  ends.worker.complete(completion);
  const auto popped = ends.parent.pop();
  ASSERT_EQ(popped.result, Pop::completion);
  EXPECT_EQ(popped.frame.dispatch, 5U);
  EXPECT_EQ(popped.frame.inline_value(), "forty-two");
  EXPECT_EQ(ends.parent.in_flight(), 0U);
}

TEST(Mailbox, NothingIsThereAtFirst) {
  Ends ends;
  EXPECT_EQ(ends.worker.take().result, Take::nothing);
  EXPECT_EQ(ends.parent.pop().result, Pop::nothing);
  EXPECT_FALSE(ends.parent.can_pop());
}

TEST(Mailbox, TakesAsManyFramesAsItHasSlots) {
  Ends ends({.slots = 4});
  for (std::uint64_t i = 0; i < 4; ++i)
    ASSERT_EQ(ends.parent.push(numbered(i)).result, Push::pushed);
  EXPECT_EQ(ends.parent.push(numbered(4)).result, Push::ring_full);
  ASSERT_EQ(ends.worker.take().result, Take::frame);
  EXPECT_EQ(ends.parent.push(numbered(4)).result, Push::ring_full) << "it is not completed";
  ends.worker.complete(done(0));
  EXPECT_EQ(ends.parent.push(numbered(4)).result, Push::ring_full) << "nor popped";
  ASSERT_EQ(ends.parent.pop().result, Pop::completion);
  EXPECT_EQ(ends.parent.push(numbered(4)).result, Push::pushed);
}

// Invariant (1), over many laps and where the frames' numbers end at 2^64.
class MailboxLaps : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Mailbox, MailboxLaps,
                         testing::Values(0, 12345, ~std::uint64_t{0} - 2 * kMaxSlots));

TEST_P(MailboxLaps, FramesKeepTheirOrder) {
  for (const std::uint32_t slots : {1U, 2U, 64U, 256U}) {
    Ends ends({.slots = slots, .first = GetParam()});
    strata::test::Random random(slots + GetParam());
    std::uint64_t pushed = 0, taken = 0, completed = 0, popped = 0;
    std::vector<std::uint64_t> tickets;
    while (popped < 3000) {
      switch (random.below(4)) {
        case 0:
          if (const auto result = ends.parent.push(numbered(pushed));
              result.result == Push::pushed) {
            ++pushed;
          } else {
            ASSERT_EQ(pushed - popped, slots);
          }
          break;
        case 1:
          if (const auto result = ends.worker.take(); result.result == Take::frame) {
            ASSERT_EQ(result.frame.header().dispatch, taken++);
            ASSERT_FALSE(ends.worker.cancelled(result.number));
          } else {
            ASSERT_EQ(result.result, Take::nothing);
            ASSERT_EQ(taken, pushed);
          }
          break;
        case 2:
          if (completed < taken) ends.worker.complete(done(completed++));
          break;
        default:
          if (const auto result = ends.parent.pop(); result.result == Pop::completion) {
            ASSERT_EQ(result.frame.dispatch, popped++);
          } else {
            ASSERT_EQ(result.result, Pop::nothing);
            ASSERT_EQ(popped, completed);
          }
      }
    }
  }
}

TEST(Mailbox, KnowsWhichFramesWereBegun) {
  Ends ends({.first = 77});
  std::vector<MailboxParent::Ticket> tickets;
  for (std::uint64_t i = 0; i < 3; ++i)
    tickets.push_back(ends.parent.push(numbered(i)).ticket);
  EXPECT_FALSE(ends.parent.begun(tickets[0]));
  (void)ends.worker.take();
  (void)ends.worker.take();
  EXPECT_TRUE(ends.parent.begun(tickets[0]));
  EXPECT_TRUE(ends.parent.begun(tickets[1]));
  EXPECT_FALSE(ends.parent.begun(tickets[2]));
}

TEST(Mailbox, CancelReachesThatFrameOnly) {
  Ends ends({.slots = 2});
  const auto first = ends.parent.push(numbered(0)).ticket;
  (void)ends.parent.push(numbered(1));
  ends.parent.cancel(first);
  const std::uint64_t a = ends.worker.take().number;
  const std::uint64_t b = ends.worker.take().number;
  EXPECT_TRUE(ends.worker.cancelled(a));
  EXPECT_FALSE(ends.worker.cancelled(b));
  ends.worker.complete(done(0));
  (void)ends.parent.pop();
  (void)ends.parent.push(numbered(2));  // In the slot of the cancelled one.
  EXPECT_FALSE(ends.worker.cancelled(ends.worker.take().number));
}

// ---- The arena ----------------------------------------------------------------------------------

/// A frame of `bytes` in all, which says which it is in every scalar.
struct LongFrame {
  LongFrame(std::uint64_t dispatch, std::size_t bytes)
      : scalars((bytes - kSubmissionHeaderBytes) / 8, dispatch) {
    submission.header.dispatch = dispatch;
    submission.scalars = scalars;
  }
  std::vector<std::uint64_t> scalars;
  Submission submission;
};

TEST(Mailbox, FrameThatJustFitsItsSlotAndOneThatDoesNot) {
  Ends ends;
  const LongFrame fits(1, SubmissionSlot::kFrameBytes);
  const LongFrame does_not(2, SubmissionSlot::kFrameBytes + 8);
  for (const LongFrame* frame : {&fits, &does_not}) {
    ASSERT_EQ(ends.parent.push(frame->submission).result, Push::pushed);
    const auto taken = ends.worker.take();
    ASSERT_EQ(taken.result, Take::frame);
    EXPECT_TRUE(std::ranges::equal(taken.frame.scalars(), frame->scalars));
  }
}

TEST(Mailbox, FrameOfTheWholeArenaFitsWhenNothingElseIsThere) {
  Ends ends({.arena_bytes = 4096});
  for (std::uint64_t i = 0; i < 5; ++i) {
    const LongFrame small(i * 2, 1024);
    const LongFrame whole(i * 2 + 1, 4096);
    ASSERT_EQ(ends.parent.push(small.submission).result, Push::pushed);
    EXPECT_EQ(ends.parent.push(whole.submission).result, Push::arena_full);
    ASSERT_EQ(ends.worker.take().result, Take::frame);
    ends.worker.complete(done(i * 2));
    ASSERT_EQ(ends.parent.pop().result, Pop::completion);
    ASSERT_EQ(ends.parent.push(whole.submission).result, Push::pushed);
    const auto taken = ends.worker.take();
    ASSERT_EQ(taken.result, Take::frame);
    EXPECT_TRUE(std::ranges::equal(taken.frame.scalars(), whole.scalars));
    ends.worker.complete(done(i * 2 + 1));
    ASSERT_EQ(ends.parent.pop().result, Pop::completion);
  }
  EXPECT_EQ(ends.parent.push(LongFrame(0, 4096 + 8).submission).result, Push::too_long);
}

// Invariant (6): frames of many lengths, in an arena that is often full.
TEST(Mailbox, RoomOfTheArenaIsUsedAgainOnlyAfterItsCompletion) {
  Ends ends({.slots = 16, .arena_bytes = 8192});
  strata::test::Random random(4);
  std::deque<std::pair<std::uint64_t, std::size_t>> in_flight;
  std::uint64_t pushed = 0, popped = 0;
  std::size_t refused = 0;
  while (popped < 5000) {
    const std::size_t bytes = 64 + 8 * random.below(random.chance(10) ? 1000 : 200);
    if (random.chance(60)) {
      const LongFrame frame(pushed, bytes);
      const auto result = ends.parent.push(frame.submission).result;
      if (result == Push::pushed) {
        in_flight.emplace_back(pushed++, frame.scalars.size());
      } else {
        if (result == Push::arena_full) ++refused;
        ASSERT_FALSE(in_flight.empty()) << "an empty arena refused " << bytes << " bytes";
      }
    } else if (!in_flight.empty()) {
      const auto taken = ends.worker.take();
      ASSERT_EQ(taken.result, Take::frame);
      const auto [number, scalars] = in_flight.front();
      in_flight.pop_front();
      ASSERT_EQ(taken.frame.scalars().size(), scalars);
      for (const std::uint64_t scalar : taken.frame.scalars())
        ASSERT_EQ(scalar, number);
      ends.worker.complete(done(number));
      ASSERT_EQ(ends.parent.pop().result, Pop::completion);
      ++popped;
    }
  }
  EXPECT_GT(refused, 100U) << "the test means to fill the arena";
}

TEST(Mailbox, FrameThatNoMailboxCanCarryIsRefused) {
  Ends ends;
  const std::vector<std::uint64_t> scalars(kMaxFrameScalars + 1);
  EXPECT_EQ(ends.parent.push({.header = {}, .scalars = scalars}).result, Push::too_long);
  const std::vector<std::int64_t> nine(9, 1);
  const std::vector<TensorFrame> tensors{{.extents = nine, .strides = nine}};
  EXPECT_EQ(ends.parent.push({.header = {}, .tensors = tensors}).result, Push::too_long);
  EXPECT_EQ(ends.parent.in_flight(), 0U);
}

// ---- Sleeping and waking ------------------------------------------------------------------------

TEST(Mailbox, ArmRefusesWhereACompletionIsThere) {
  Ends ends;
  (void)ends.parent.push(numbered(1));
  EXPECT_TRUE(ends.parent.arm());
  EXPECT_FALSE(ends.event.drain());
  (void)ends.worker.take();
  ends.worker.complete(done(1));
  EXPECT_TRUE(ends.event.drain()) << "the parent said that it sleeps";
  EXPECT_FALSE(ends.parent.arm());
  ASSERT_EQ(ends.parent.pop().result, Pop::completion);
  EXPECT_TRUE(ends.parent.arm());
}

// Invariant (4)
TEST(Mailbox, AwakeParentIsNotWokenAndASleepingOneOnce) {
  Ends ends;
  for (std::uint64_t i = 0; i < 4; ++i)
    (void)ends.parent.push(numbered(i));
  for (std::uint64_t i = 0; i < 4; ++i)
    (void)ends.worker.take();
  ends.worker.complete(done(0));
  EXPECT_FALSE(ends.event.drain()) << "nobody sleeps";
  (void)ends.parent.pop();
  ASSERT_TRUE(ends.parent.arm());
  ends.worker.complete(done(1));
  EXPECT_TRUE(ends.event.drain());
  ends.worker.complete(done(2));
  EXPECT_FALSE(ends.event.drain()) << "it was woken already";
  (void)ends.parent.pop();
  (void)ends.parent.pop();
  ASSERT_TRUE(ends.parent.arm());
  ends.parent.disarm();
  ends.worker.complete(done(3));
  EXPECT_FALSE(ends.event.drain()) << "the announcement was withdrawn";
}

TEST(Mailbox, InterruptMakesOneWaitReturnAndGoesBeforeAFrame) {
  Ends ends;
  ends.worker.interrupt();
  ends.worker.interrupt();
  (void)ends.parent.push(numbered(1));
  EXPECT_EQ(ends.worker.wait(), Wait::interrupted);
  EXPECT_EQ(ends.worker.wait(), Wait::frame);
}

TEST(Mailbox, InterruptWakesASleepingWorker) {
  strata::test::Guard guard("interrupt of a sleeping worker");
  Ends ends;
  for (int i = 0; i < 200; ++i) {
    std::thread interrupter([&] {
      if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      ends.worker.interrupt();
    });
    EXPECT_EQ(ends.worker.wait(), Wait::interrupted);
    interrupter.join();
  }
}

TEST(Mailbox, FrameWakesASleepingWorkerAndItsCompletionTheParent) {
  strata::test::Guard guard("wake-ups");
  Ends ends;
  constexpr std::uint64_t kFrames = 2000;
  std::thread worker([&] {
    for (std::uint64_t i = 0; i < kFrames; ++i) {
      ASSERT_EQ(ends.worker.wait(), Wait::frame);
      const auto taken = ends.worker.take();
      ASSERT_EQ(taken.result, Take::frame);
      ends.worker.complete(done(taken.frame.header().dispatch));
    }
  });
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    ASSERT_EQ(ends.parent.push(numbered(i)).result, Push::pushed);
    while (ends.parent.arm()) {
      while (!ends.event.drain())
        std::this_thread::yield();
    }
    ASSERT_EQ(ends.parent.pop().result, Pop::completion);
  }
  worker.join();
}

TEST(Mailbox, WaitingWorkerUsesNoCpu) {
  Ends ends;
  SpinnerBudget* none = nullptr;
  MailboxWorker worker(ends.memfd.get(), ends.event.fd(), none);
  std::thread waiter([&] { EXPECT_EQ(worker.wait(), Wait::interrupted); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto before = strata::test::process_cpu_time();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto used = strata::test::process_cpu_time() - before;
  worker.interrupt();
  waiter.join();
  EXPECT_LT(used, std::chrono::milliseconds(50));
}

// ---- What is no mailbox -------------------------------------------------------------------------

TEST(Mailbox, MemoryOfSomethingElseIsRefused) {
  const os::EventFd event = os::EventFd::make();
  const os::UniqueFd empty = os::make_memfd("test", 1 << 16);
  EXPECT_THROW(MailboxWorker(empty.get(), event.fd(), nullptr), Error);
  const os::UniqueFd small = os::make_memfd("test", 64);
  EXPECT_THROW(MailboxWorker(small.get(), event.fd(), nullptr), Error);
  EXPECT_THROW(MailboxWorker(event.fd(), event.fd(), nullptr), Error);
  EXPECT_THROW(MailboxWorker(-1, event.fd(), nullptr), Error);
  for (const std::size_t field : {0U, 8U, 12U, 16U}) {
    const os::UniqueFd memfd = make_mailbox();
    const std::uint32_t wrong = 0x55555555;
    ASSERT_EQ(pwrite(memfd.get(), &wrong, sizeof wrong, static_cast<off_t>(field)), 4);
    EXPECT_THROW(MailboxWorker(memfd.get(), event.fd(), nullptr), Error) << "field at " << field;
  }
}

TEST(Mailbox, OptionsOutOfBoundsAreRefused) {
  EXPECT_THROW((void)make_mailbox({.slots = 0}), InvalidArgument);
  EXPECT_THROW((void)make_mailbox({.slots = kMaxSlots + 1}), InvalidArgument);
  EXPECT_THROW((void)make_mailbox({.arena_bytes = std::size_t{1} << 40U}), InvalidArgument);
  EXPECT_THROW((void)make_mailbox({.first = ~std::uint64_t{0}}), InvalidArgument);
}

TEST(Mailbox, LeavesNothingOpen) {
  const strata::test::LeakCheck check;
  Ends ends;
}

}  // namespace
}  // namespace strata::ipc
