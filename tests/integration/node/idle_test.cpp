// An idle tree uses no CPU, and is as quick as before when there is work again.

#include <algorithm>
#include <thread>

#include "support/node_test.hpp"

namespace strata::test {
namespace {

class NodeIdle : public NodeTest {
 protected:
  /// The best of many bursts: what the machine allows, not what others leave of it.
  static std::chrono::nanoseconds best_burst(Worker& worker, CallableId callable) {
    auto best = std::chrono::nanoseconds::max();
    for (int i = 0; i < 40; ++i) {
      const auto start = std::chrono::steady_clock::now();
      worker.run([&](Orchestration& o) {
        for (int t = 0; t < 200; ++t)
          o.submit(Call(callable), on(worker.any_sub()));
      });
      best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
    }
    return best;
  }
};

// "8 idle workers for 10 s: whole tree under 1 % of one core; the next burst is not slower than
// before by more than 10 %."
TEST_F(NodeIdle, EightWorkersUseUnderOnePercentOfACoreAndAreAsQuickAsBefore) {
  Worker worker({.subs = {{.count = 8}}});
  worker.init();
  const CallableId nothing = worker.add(task_in_library("nothing"));
  (void)best_burst(worker, nothing);
  const auto before = best_burst(worker, nothing);

  constexpr std::chrono::milliseconds kTime = 10s;
  auto after = std::chrono::nanoseconds::max();
  for (int attempt = 0; attempt < 3; ++attempt) {
    // What a burst started may go on for a moment.
    std::this_thread::sleep_for(bound(50ms));
    std::vector<pid_t> pids{::getpid()};
    for (const MarkedProcess& process : marked_processes(mark_children()))
      pids.push_back(process.pid);
    ASSERT_EQ(pids.size(), 9u);
    const auto start = cpu_time_of(pids);
    std::this_thread::sleep_for(kTime);
    const auto used = cpu_time_of(pids) - start;
    EXPECT_LT(used, kTime / 100) << "in attempt " << attempt;
    after = std::min(after, best_burst(worker, nothing));
    if (after <= before * 11 / 10) break;
  }
  const double ratio = static_cast<double>(after.count()) / static_cast<double>(before.count());
  RecordProperty("burst_after_to_before", std::to_string(ratio));
  // The figure itself is a benchmark's (strata-bench node): here others may be busy in the second
  // half only. A burst that wakes up by the clock, or not at all, is slower by far more.
  EXPECT_LE(ratio, 3);
}

TEST_F(NodeIdle, ATreeOfThreeLevelsIsIdleToo) {
  Worker worker(tree_options());
  worker.init();
  EXPECT_EQ(value_of(worker, "return_worker", on(worker.sub(0))), "node/sub[0]");
  std::this_thread::sleep_for(bound(50ms));
  std::vector<pid_t> pids{::getpid()};
  for (const MarkedProcess& process : marked_processes(mark_children()))
    pids.push_back(process.pid);
  const auto start = cpu_time_of(pids);
  std::this_thread::sleep_for(3s);
  EXPECT_LT(cpu_time_of(pids) - start, 3000ms / 100);
}

}  // namespace
}  // namespace strata::test
