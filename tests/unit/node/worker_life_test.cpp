// The life of a Worker when several threads start and end it: tests/model/start_close.pml shows
// that every call returns and no process is left; here real ones try.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "strata/error.hpp"
#include "strata/worker.hpp"
#include "strata/worker_error.hpp"
#include "support/guard.hpp"
#include "support/process.hpp"

namespace strata {
namespace {

constexpr int kRounds = 40;

WorkerOptions one_sub() {
  WorkerOptions options;
  options.subs = {SubWorkerOptions{}};
  return options;
}

/// What the first Worker of a process leaves on purpose is no leak.
void warm_up() { const Worker worker(one_sub()); }

bool has_process(const Worker& worker) {
  const auto all = worker.processes();
  return std::any_of(all.begin(), all.end(), [](const auto& each) { return each.pid != 0; });
}

/// Whether it started. It may as well be called off, or refused while it is not closed.
bool try_init(Worker& worker) {
  try {
    worker.init();
    return true;
  } catch (const Cancelled&) {
  } catch (const InvalidState&) {
  }
  return false;
}

TEST(WorkerLife, ACloseThatMeetsAnInitLeavesNoProcess) {
  const test::Guard guard("init and close at the same time");
  warm_up();
  const test::LeakCheck leaks;
  Worker worker(one_sub());
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> there{0};
    const auto meet = [&] {
      ++there;
      while (there.load() != 2) {
      }
    };
    std::thread other([&] {
      meet();
      // From well before the start is asked for to well into it.
      for (std::atomic<int> i{0}; i.load() < round * 500; ++i) {
      }
      worker.close();
    });
    meet();
    const bool started = try_init(worker);
    other.join();
    if (!started) {
      EXPECT_FALSE(has_process(worker)) << "in round " << round;
    }
    worker.close();
    ASSERT_FALSE(has_process(worker)) << "in round " << round;
  }
}

TEST(WorkerLife, ACloseReturnsThoughOthersInitAtOnce) {
  const test::Guard guard("close while others init");
  warm_up();
  const test::LeakCheck leaks;
  Worker worker(one_sub());
  std::atomic<bool> over{false};
  std::atomic<int> starts{0};
  std::thread other([&] {
    while (!over.load())
      starts += static_cast<int>(try_init(worker));
  });
  // At every moment of a start, and after it, however long it takes here.
  for (int round = 0; starts.load() < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds((round % 16) << (round / 16)));
    worker.close();
  }
  over.store(true);
  // If it starts once more, that one is not called off: it ends by itself.
  other.join();
  worker.close();
  EXPECT_FALSE(has_process(worker));
}

}  // namespace
}  // namespace strata
