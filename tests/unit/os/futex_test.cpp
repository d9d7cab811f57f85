#include "os/futex.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <vector>

#include "os/mapping.hpp"
#include "os/memfd.hpp"

namespace strata::os {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Word = std::atomic<std::uint32_t>;

/// Wakes until `count` threads were there to be woken: the only sign that they slept.
void wake_until(const Word& word, int count) {
  for (int woken = 0; woken < count;) {
    woken += futex_wake_one(word);
    std::this_thread::yield();
  }
}

// Invariant (1)
TEST(Futex, WaitReturnsAtOnceIfTheWordDiffers) {
  const Word word{7};
  futex_wait(word, 8);
  EXPECT_TRUE(futex_wait_until(word, 8, Clock::now() + 1h));
}

// Invariant (1)
TEST(Futex, ChangeBeforeWakeIsNeverMissed) {
  constexpr std::uint32_t kTurns = 3000;
  Word turn{0};  // Even: the main thread's; odd: the other's.
  std::thread other([&] {
    for (std::uint32_t mine = 1; mine < 2 * kTurns; mine += 2) {
      for (std::uint32_t seen = turn.load(std::memory_order_acquire); seen != mine;
           seen = turn.load(std::memory_order_acquire)) {
        futex_wait(turn, seen);
      }
      turn.store(mine + 1, std::memory_order_release);
      futex_wake_one(turn);
    }
  });
  for (std::uint32_t mine = 0; mine < 2 * kTurns; mine += 2) {
    for (std::uint32_t seen = turn.load(std::memory_order_acquire); seen != mine;
         seen = turn.load(std::memory_order_acquire)) {
      futex_wait(turn, seen);
    }
    turn.store(mine + 1, std::memory_order_release);
    futex_wake_one(turn);
  }
  other.join();
  EXPECT_EQ(turn.load(), 2 * kTurns);
}

// Invariant (2): what the caller has to do, done.
TEST(Futex, StrayWakeReturnsWithTheWordUnchanged) {
  Word word{0};
  std::atomic<bool> returned{false};
  std::thread sleeper([&] {
    futex_wait(word, 0);
    returned.store(true);
  });
  while (!returned.load()) {
    futex_wake_one(word);
    std::this_thread::yield();
  }
  sleeper.join();
  EXPECT_EQ(word.load(), 0u);
}

// Invariant (3)
TEST(Futex, WaitUntilIsFalseOnlyAfterTheDeadline) {
  const Word word{0};
  const auto deadline = Clock::now() + 20ms;
  while (futex_wait_until(word, 0, deadline)) {
  }
  EXPECT_GE(Clock::now(), deadline);
}

// Invariant (3)
TEST(Futex, DeadlineInThePastReturnsAtOnce) {
  const Word word{0};
  EXPECT_FALSE(futex_wait_until(word, 0, Clock::now() - 1h));
  EXPECT_FALSE(futex_wait_until(word, 0, Clock::time_point{}));
  EXPECT_FALSE(futex_wait_until(word, 0, Clock::time_point::min()));
}

TEST(Futex, FarthestDeadlineStillSleepsAndWakes) {
  Word word{0};
  std::atomic<bool> timed_out{false};
  std::thread sleeper([&] {
    while (word.load(std::memory_order_acquire) == 0) {
      if (!futex_wait_until(word, 0, Clock::time_point::max())) timed_out.store(true);
    }
  });
  wake_until(word, 1);
  word.store(1, std::memory_order_release);
  futex_wake_one(word);
  sleeper.join();
  EXPECT_FALSE(timed_out.load());
}

TEST(Futex, WakeWithNobodyAsleepWakesNobody) {
  const Word word{0};
  EXPECT_EQ(futex_wake_one(word), 0);
  EXPECT_EQ(futex_wake_all(word), 0);
}

TEST(Futex, WakeAllWakesEverySleeper) {
  constexpr int kSleepers = 4;
  Word word{0};
  std::atomic<int> awake{0};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < kSleepers; ++i) {
    sleepers.emplace_back([&] {
      while (word.load(std::memory_order_acquire) == 0)
        futex_wait(word, 0);
      awake.fetch_add(1);
    });
  }
  std::this_thread::sleep_for(5ms);
  word.store(1, std::memory_order_release);
  futex_wake_all(word);  // Those that did not sleep yet see the word.
  for (auto& sleeper : sleepers)
    sleeper.join();
  EXPECT_EQ(awake.load(), kSleepers);
}

// Invariant (4)
TEST(Futex, WakeOfAWordThatIsGoneDoesNothing) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto* word = new (memory) Word{0};
  ASSERT_EQ(munmap(memory, page), 0);
  EXPECT_EQ(futex_wake_all(*word), 0);
}

TEST(Futex, LeavesErrnoAlone) {
  const Word word{0};
  errno = EDOM;
  futex_wait(word, 1);
  (void)futex_wait_until(word, 0, Clock::now());
  futex_wake_all(word);
  EXPECT_EQ(errno, EDOM);
}

/// One word seen at two addresses, as two processes see it.
class SharedWord {
 public:
  Word& here() noexcept { return *reinterpret_cast<Word*>(here_.data()); }
  Word& there() noexcept { return *reinterpret_cast<Word*>(there_.data()); }

 private:
  UniqueFd memory_ = make_memfd("word", sizeof(Word));
  Mapping here_ = Mapping::shared(memory_.get(), sizeof(Word));
  Mapping there_ = Mapping::shared(memory_.get(), sizeof(Word));
};

TEST(SharedFutex, WakeReachesASleeperAtAnotherAddress) {
  SharedWord word;
  std::thread sleeper([&] {
    while (word.here().load(std::memory_order_acquire) == 0)
      EXPECT_TRUE(futex_wait_shared(word.here(), 0));
  });
  while (futex_wake_shared(word.there()) == 0)  // The only sign that it slept.
    std::this_thread::yield();
  word.there().store(1, std::memory_order_release);
  futex_wake_shared(word.there());
  sleeper.join();
}

TEST(SharedFutex, WakesNoMoreThanAskedFor) {
  SharedWord word;
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 3; ++i) {
    sleepers.emplace_back([&] {
      while (word.here().load(std::memory_order_acquire) == 0)
        futex_wait_shared(word.here(), 0);
    });
  }
  for (int woken = 0; woken < 3;) {
    const int now = futex_wake_shared(word.there(), 2);
    EXPECT_LE(now, 2);
    woken += now;
    std::this_thread::yield();
  }
  word.there().store(1, std::memory_order_release);
  futex_wake_shared(word.there(), 3);
  for (auto& sleeper : sleepers)
    sleeper.join();
}

TEST(SharedFutex, WaitEndsAtTheDeadlineOrAtOnceIfTheWordDiffers) {
  SharedWord word;
  EXPECT_TRUE(futex_wait_shared(word.here(), 1));
  const Deadline deadline = Deadline::after(3ms);
  while (futex_wait_shared(word.here(), 0, deadline)) {
  }
  EXPECT_TRUE(deadline.passed());
  EXPECT_FALSE(futex_wait_shared(word.here(), 0, Deadline::after(-1h)));
  EXPECT_EQ(futex_wake_shared(word.there()), 0);
}

TEST(TwoWords, AWaitReturnsAtOnceIfEitherDiffers) {
  const Word shared{1};
  const Word own{2};
  futex_wait_two(shared, 0, own, 2, 1h);
  futex_wait_two(shared, 1, own, 0, 1h);
}

TEST(TwoWords, AWaitEndsByAWakeOfEither) {
  for (const bool by_shared : {true, false}) {
    Word shared{0};
    Word own{0};
    Word& word = by_shared ? shared : own;
    std::thread sleeper([&] {
      // The patience is for kernels that can't wait on both.
      while (shared.load() + own.load() == 0)
        futex_wait_two(shared, 0, own, 0, 10ms);
    });
    word.store(1);
    (void)(by_shared ? futex_wake_shared(word) : futex_wake_all(word));
    sleeper.join();
    EXPECT_EQ(word, 1U);
  }
}

}  // namespace
}  // namespace strata::os
