// The threads of the pool of cores: they all get to run, and sleep when there is nothing to do.

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "chip/cores/core_pool.hpp"
#include "node/cpu_shares.hpp"
#include "support/guard.hpp"
#include "support/on_cpus.hpp"
#include "support/pool_rig.hpp"

namespace strata::chip {
namespace {

using test::PoolRig;
using Counter = std::atomic<std::uint64_t>;

void count(const Kernel& kernel) { ++*kernel.scalar<Counter*>(0); }

// Invariant (3): lanes that have their cores are begun, whatever the others do.
struct Spins {
  Counter arrived{0};
  std::uint64_t all = 0;
};
void spin_for_others(const Kernel& kernel) {
  auto* const spins = kernel.scalar<Spins*>(0);
  ++spins->arrived;
  while (spins->arrived < spins->all)
    std::this_thread::yield();
}
TEST(CoreThreads, LanesThatSpinForEachOtherAllBeginWithOneThreadAllowed) {
  PoolRig rig("a2a3sim:clusters=3", 1);
  Spins mixed{.all = 3};
  rig.run(rig.mixed(spin_for_others, spin_for_others, spin_for_others), &mixed);
  Spins together{.all = 6};
  rig.run(rig.aiv(spin_for_others).blocks(6).together(), &together);
  rig.wait_all();
  EXPECT_EQ(mixed.arrived, 3U);
  EXPECT_EQ(together.arrived, 6U);
}

TEST(CoreThreads, ALongChainRunsToItsEndOnOneThread) {
  PoolRig rig("a2a3sim:clusters=1", 2);
  int left = 50'000;
  Counter runs{0};
  std::function<void()> next = [&] {
    if (left-- == 0) return;
    auto& task = rig.make(&runs);
    task.then = next;
    rig.start(task, left % 7 == 0 ? rig.aic(count) : rig.aiv(count));
  };
  next();
  rig.wait_all();
  EXPECT_EQ(runs, 50'000U);
}

/// How long each thread that acts as a core has been on a CPU, in nanoseconds.
std::map<std::string, std::uint64_t> times_on_cpu() {
  std::map<std::string, std::uint64_t> times;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(thread.path() / "comm") >> std::ws, name);
    if (!name.starts_with("core carrier")) continue;
    std::ifstream(thread.path() / "schedstat") >> times[thread.path().filename()];
  }
  return times;
}

// Invariant (3): nothing spins without bound, neither a thread without work nor one in a wait.
TEST(CoreThreads, NoneComesToACpuWhileThereIsNothingToDo) {
  if (!std::filesystem::exists("/proc/self/schedstat")) GTEST_SKIP() << "the kernel does not count";
#ifdef SYS_futex_waitv
  if (syscall(SYS_futex_waitv, nullptr, 0, 0, nullptr, 0) < 0 && errno != EINVAL) {
    GTEST_SKIP() << "before Linux 5.16 a lane that waits for a signal looks now and then";
  }
#endif
  const test::Guard guard("threads of the pool that do not come to rest");
  PoolRig rig("a2a3sim:clusters=24", 4);
  Counter runs{0};
  Signal signal{};
  rig.run(rig.aiv(count).blocks(48), &runs);
  rig.run(rig.aiv([](const Kernel& kernel) {
    kernel.wait_until(*kernel.scalar<Signal*>(0), Compare::equal, 1);
  }),
          &signal);
  const auto flag = [](const Kernel& kernel) { kernel.wait_flag(0); };
  const auto late = [](const Kernel& kernel) {
    kernel.wait_until(*kernel.scalar<Signal*>(0), Compare::equal, 1);
    kernel.set_flag(ClusterLane::aiv0, 0);
  };
  rig.run(rig.mixed(late, flag), &signal);
  // They come to rest at some time, and then stay there: no time-out of a sleep wakes them.
  for (auto before = times_on_cpu();;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    auto after = times_on_cpu();
    if (after == before && after.size() >= 3) break;
    before = std::move(after);
  }
  rig.run(rig.aic([](const Kernel& kernel) { kernel.notify(*kernel.scalar<Signal*>(0), 1U); }),
          &signal);
  rig.wait_all();
  EXPECT_EQ(runs, 48U);
}

/// Waits until no thread that acts as a core runs or is about to.
void wait_until_carriers_sleep() {
  const auto one_is_awake = [] {
    for (const auto& [thread, time] : times_on_cpu()) {
      std::string stat;
      std::getline(std::ifstream("/proc/self/task/" + thread + "/stat"), stat);
      if (stat.substr(stat.rfind(')') + 2, 1) != "S") return true;
    }
    return false;
  };
  while (one_is_awake())
    std::this_thread::yield();
}

// Linux would leave the thread where the one that woke it goes on to use the CPU.
TEST(CoreThreads, OfBoundThreadsOneIsWokenThatHasAnotherCpuThanTheCaller) {
  const test::Guard guard("threads of the pool that do not come to rest");
  std::vector<int> cpus = node::allowed_cpu_list();
  if (cpus.size() < 2) GTEST_SKIP() << "there is one CPU only";
  cpus.resize(2);
  const auto tell_cpu = [](const Kernel& kernel) {
    *kernel.scalar<std::atomic<int>*>(0) = sched_getcpu();
  };
  PoolRig rig({.platform = Platform::parse("cpu:clusters=2"), .threads = 2, .pin_to = cpus});
  Spins both{.all = 2};
  rig.run(rig.aiv(spin_for_others).blocks(2).together(), &both);  // Now there are two threads.
  rig.wait_all();
  for (int i = 0; i < 40; ++i) {
    const int here = cpus[static_cast<std::size_t>(i / 4 % 2)];
    const test::OnCpus bound({here});
    wait_until_carriers_sleep();
    std::atomic<int> there{-1};
    rig.run(rig.aiv(tell_cpu), &there);
    rig.wait_all();
    EXPECT_EQ(there, cpus[0] + cpus[1] - here);
  }
}

}  // namespace
}  // namespace strata::chip
