#include "os/parker.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "os/cpu.hpp"

namespace strata::os {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(Parker, UnparkBeforeParkMakesItReturnAtOnce) {
  Parker parker;
  parker.unpark();
  parker.park();
  parker.unpark();
  EXPECT_TRUE(parker.park_until(Clock::now() + 1h));
}

// Invariant (1)
TEST(Parker, ManyUnparksLeaveOneToken) {
  Parker parker;
  for (int i = 0; i < 100; ++i)
    parker.unpark();
  parker.park();
  EXPECT_FALSE(parker.park_until(Clock::now() + 1ms));
}

TEST(Parker, PassedDeadlineTakesATokenThatIsThere) {
  Parker parker;
  EXPECT_FALSE(parker.park_until(Clock::time_point::min()));
  parker.unpark();
  EXPECT_TRUE(parker.park_until(Clock::time_point::min()));
  EXPECT_FALSE(parker.park_until(Clock::time_point::min()));
}

TEST(Parker, TimesOutNoEarlierThanTheDeadline) {
  Parker parker;
  const auto deadline = Clock::now() + 20ms;
  EXPECT_FALSE(parker.park_until(deadline));
  EXPECT_GE(Clock::now(), deadline);
}

TEST(Parker, WorksAgainAfterATimeOut) {
  Parker parker;
  EXPECT_FALSE(parker.park_until(Clock::now()));
  std::thread waker([&] { parker.unpark(); });
  parker.park();
  waker.join();
  EXPECT_FALSE(parker.park_until(Clock::now()));
}

// Invariant (1): exactly one park per unpark, when each waits for the other's answer.
TEST(Parker, PingPongLosesNoWakeUp) {
  constexpr int kTurns = 5000;
  Parker ping;
  Parker pong;
  int ball = 0;  // Not atomic: invariant (2) orders it, and tsan looks.
  std::thread other([&] {
    for (int i = 0; i < kTurns; ++i) {
      ping.park();
      ++ball;
      pong.unpark();
    }
  });
  for (int i = 0; i < kTurns; ++i) {
    ++ball;
    ping.unpark();
    pong.park();
  }
  other.join();
  EXPECT_EQ(ball, 2 * kTurns);
}

// Invariant (2): the writes of every waker, not only of the last one, are there after the park.
TEST(Parker, EveryFoldedUnparkPublishesItsWrites) {
  constexpr int kWakers = 3;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    Parker parker;
    int data[kWakers] = {};  // Not atomic, written by one waker each.
    std::atomic<int> unparked{0};
    std::vector<std::thread> wakers;
    for (int w = 0; w < kWakers; ++w) {
      wakers.emplace_back([&, w] {
        data[w] = w + 1;
        parker.unpark();
        // Relaxed: it must not be this counter that orders the data.
        unparked.fetch_add(1, std::memory_order_relaxed);
      });
    }
    while (unparked.load(std::memory_order_relaxed) != kWakers)
      std::this_thread::yield();
    parker.park();
    for (int w = 0; w < kWakers; ++w)
      EXPECT_EQ(data[w], w + 1);
    for (auto& waker : wakers)
      waker.join();
  }
}

// The loop that the header recommends, under load: conditions made true by many threads at once.
TEST(Parker, ConditionLoopLosesNoWakeUpOfManyWakers) {
  constexpr int kWakers = 3;
  constexpr int kPosts = 3000;
  Parker parker;
  std::atomic<int> posted{0};
  std::vector<std::thread> wakers;
  for (int w = 0; w < kWakers; ++w) {
    wakers.emplace_back([&, w] {
      for (int i = 0; i < kPosts; ++i) {
        posted.fetch_add(1, std::memory_order_release);
        parker.unpark();
        if (i % 64 == w) std::this_thread::yield();
      }
    });
  }
  int taken = 0;
  while (taken < kWakers * kPosts) {
    while (posted.load(std::memory_order_acquire) == taken)
      parker.park();
    taken = posted.load(std::memory_order_acquire);
  }
  for (auto& waker : wakers)
    waker.join();
  EXPECT_EQ(taken, kWakers * kPosts);
}

// A token that comes around the deadline is taken by that park or by the next, never lost.
TEST(Parker, TokenThatRacesWithTheDeadlineIsNotLost) {
  constexpr int kRounds = 2000;
  Parker parker;
  Parker back;
  std::thread waker([&] {
    for (int i = 0; i < kRounds; ++i) {
      back.park();
      for (int spin = 0; spin < i % 200; ++spin)
        cpu_relax();
      parker.unpark();
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    back.unpark();
    const auto deadline = Clock::now() + std::chrono::microseconds(i % 60);
    if (!parker.park_until(deadline)) parker.park();
  }
  waker.join();
  EXPECT_FALSE(parker.park_until(Clock::now()));  // Nor doubled.
}

// Invariant (4): asan and tsan look. The waker's last act is its unpark.
TEST(Parker, OwnerMayDestroyItAfterTheLastUnpark) {
  constexpr int kRounds = 1000;
  std::atomic<Parker*> mailbox{nullptr};
  std::thread waker([&] {
    for (int i = 0; i < kRounds; ++i) {
      Parker* parker = nullptr;
      while ((parker = mailbox.exchange(nullptr, std::memory_order_acquire)) == nullptr) {
        std::this_thread::yield();
      }
      parker->unpark();
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    auto parker = std::make_unique<Parker>();
    mailbox.store(parker.get(), std::memory_order_release);
    parker->park();
  }
  waker.join();
}

}  // namespace
}  // namespace strata::os
