// Communicator in a kernel: it sleeps, wakes and stops by the kernel's services only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "comm/shared_windows.hpp"
#include "comm/signal.hpp"
#include "rank_threads.hpp"
#include "strata/comm_error.hpp"
#include "strata/communicator.hpp"
#include "support/time_bounds.hpp"

namespace strata::comm {
namespace {

using namespace std::chrono_literals;

/// What a runtime throws through a kernel whose run was cancelled; no std::exception.
struct RunIsOver {};

std::atomic<int> waits{0};
std::atomic<int> notifications{0};
std::atomic<bool> over{false};

const detail::KernelServices& services() {
  static const detail::KernelServices the_services = [] {
    detail::KernelServices s = {};
    s.notify = [](const detail::KernelBlock&, Signal* signal, SignalOp op, std::uint32_t value) {
      ++notifications;
      if (change(*signal, op, value)) wake(*signal);
    };
    s.wait_signal = [](const detail::KernelBlock&, Signal* signal, Compare compare,
                       std::uint32_t value) {
      ++waits;
      for (std::uint32_t seen = load(*signal); !holds(seen, compare, value); seen = load(*signal)) {
        if (over) throw RunIsOver{};
        sleep_while(*signal, seen, os::Deadline::after(2ms));
      }
    };
    s.cancelled = [](const detail::KernelBlock&) { return false; };
    return s;
  }();
  return the_services;
}

class CommInKernels : public testing::Test {
 protected:
  CommInKernels() {
    waits = 0;
    notifications = 0;
    over = false;
    block_.services = &services();
  }
  detail::KernelBlock block_;
  RankThreads domain_{
      {.name = "k", .size = 2, .slices = {{"x", DType::int32, 64}, {"flags", DType::uint64, 2}}}};
};

TEST_F(CommInKernels, AWaitSleepsInTheKernelsServiceAndIsWokenByTheOthers) {
  std::int32_t sum = 0;
  std::jthread first([&] {
    const DomainContext context = domain_.context(0);
    const Kernel kernel(block_);
    const Communicator ranks(kernel, context);
    const std::int32_t one = 1;
    ranks.all_reduce(&one, &sum, 1, DType::int32, ReduceOp::sum);
  });
  ASSERT_TRUE(test::within(10s, [] { return waits > 0; }));
  EXPECT_THAT(describe_waits(domain_.context(1)),
              testing::ElementsAre("rank 0 of domain 'k' waits in all_reduce #1 on channel 0 for "
                                   "rank 1 (it has called nothing there)"));
  const DomainContext context = domain_.context(1);
  const Kernel kernel(block_);
  const Communicator ranks(kernel, context);
  const std::int32_t two = 2;
  std::int32_t result = 0;
  ranks.all_reduce(&two, &result, 1, DType::int32, ReduceOp::sum);
  first.join();
  EXPECT_EQ(sum, 3);
  EXPECT_EQ(result, 3);
}

TEST_F(CommInKernels, WhateverTheKernelsWaitThrowsPassesAndTheOtherRanksLearnOfIt) {
  const DomainContext context = domain_.context(0);
  const Kernel kernel(block_);
  over = true;
  EXPECT_THROW(Communicator(kernel, context).barrier(), RunIsOver);
  const auto errors = domain_.try_all([](const Communicator& ranks) {
    if (ranks.rank() == 1) {
      ranks.barrier();  // The other had come to this one.
      ranks.barrier();
    }
  });
  EXPECT_THAT(RankThreads::text_of(errors[1]),
              testing::HasSubstr("rank 1 of domain 'k' waits in barrier #2 on channel 0 for rank 0,"
                                 " which has given up: in barrier #1 on channel 0: its run was "
                                 "cancelled"));
}

TEST_F(CommInKernels, NotifyAndWaitAreTheKernels) {
  const DomainContext context = domain_.context(0);
  const Kernel kernel(block_);
  const Communicator ranks(kernel, context);
  Signal& flag = ranks.slice<Signal>("flags")[1];
  ranks.notify(0, flag, 5);
  ranks.notify(0, flag, 2, SignalOp::add);
  EXPECT_EQ(notifications, 2);
  ranks.wait(flag, Compare::equal, 7);
  over = true;
  EXPECT_THROW(ranks.wait(flag, Compare::equal, 8), RunIsOver);
}

}  // namespace
}  // namespace strata::comm
