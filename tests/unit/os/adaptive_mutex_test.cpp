#include "os/adaptive_mutex.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace strata::os {
namespace {

using namespace std::chrono_literals;

TEST(AdaptiveMutex, TryLockFailsWhileHeldAndSucceedsAfter) {
  AdaptiveMutex mutex;
  ASSERT_TRUE(mutex.try_lock());
  std::thread([&] { EXPECT_FALSE(mutex.try_lock()); }).join();
  mutex.unlock();
  std::thread([&] {
    EXPECT_TRUE(mutex.try_lock());
    mutex.unlock();
  }).join();
}

TEST(AdaptiveMutex, WorksWithTheStandardGuards) {
  AdaptiveMutex a;
  AdaptiveMutex b;
  {
    const std::lock_guard guard(a);
    const std::unique_lock other(a, std::try_to_lock);
    EXPECT_FALSE(other.owns_lock());
  }
  {
    const std::scoped_lock both(a, b);
    const std::unique_lock third(a, std::try_to_lock);
    EXPECT_FALSE(third.owns_lock());
  }
  const std::unique_lock again(a, std::try_to_lock);
  EXPECT_TRUE(again.owns_lock());
}

// Invariant (1)
TEST(AdaptiveMutex, TwoHoldersNeverOverlap) {
  constexpr int kThreads = 4;
  constexpr int kTurns = 20000;
  AdaptiveMutex mutex;
  long count = 0;  // Neither is atomic: the mutex orders them, and tsan looks.
  long mirror = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTurns; ++i) {
        const std::lock_guard guard(mutex);
        ++count;
        if (i % 512 == t) std::this_thread::yield();  // Makes the others sleep.
        ++mirror;
        ASSERT_EQ(count, mirror);
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(count, long{kThreads} * kTurns);
}

// Invariant (1), with attempts that mostly fail.
TEST(AdaptiveMutex, TryLockExcludesToo) {
  constexpr int kThreads = 3;
  constexpr int kTurns = 5000;
  AdaptiveMutex mutex;
  long count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int done = 0; done < kTurns;) {
        if (!mutex.try_lock()) {
          std::this_thread::yield();
          continue;
        }
        ++count;
        ++done;
        mutex.unlock();
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(count, long{kThreads} * kTurns);
}

// Invariant (2): every sleeper is woken, though each unlock wakes one and barging threads come by.
TEST(AdaptiveMutex, NoSleeperIsForgotten) {
  constexpr int kRounds = 40;
  constexpr int kSleepers = 4;
  for (int round = 0; round < kRounds; ++round) {
    AdaptiveMutex mutex;
    int served = 0;
    mutex.lock();
    std::vector<std::thread> threads;
    for (int t = 0; t < kSleepers; ++t) {
      threads.emplace_back([&] {
        const std::lock_guard guard(mutex);
        ++served;
      });
    }
    std::this_thread::sleep_for(1ms);
    mutex.unlock();
    for (int i = 0; i < 100; ++i) {
      if (mutex.try_lock()) mutex.unlock();
    }
    for (auto& thread : threads)
      thread.join();
    EXPECT_EQ(served, kSleepers);
  }
}

TEST(AdaptiveMutex, WaiterSleepsAndDoesNotSpin) {
  AdaptiveMutex mutex;
  mutex.lock();
  std::chrono::nanoseconds cpu_time{};
  std::thread waiter([&] {
    mutex.lock();
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    cpu_time = std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
    mutex.unlock();
  });
  std::this_thread::sleep_for(200ms);
  mutex.unlock();
  waiter.join();
  EXPECT_LT(cpu_time, 100ms);
}

// Invariant (4): the last holder frees what the mutex guards, with the mutex in it.
TEST(AdaptiveMutex, NextHolderMayDestroyIt) {
  struct Shared {
    AdaptiveMutex mutex;
    int holders = 2;
  };
  constexpr int kRounds = 300;
  const auto leave = [](Shared* shared) {
    bool last = false;
    {
      shared->mutex.lock();
      last = --shared->holders == 0;
      shared->mutex.unlock();
    }
    if (last) delete shared;
  };
  for (int round = 0; round < kRounds; ++round) {
    auto* shared = new Shared;
    std::thread other(leave, shared);
    leave(shared);
    other.join();
  }
}

}  // namespace
}  // namespace strata::os
