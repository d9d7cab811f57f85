#include "os/cpu.hpp"

#include <sched.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>

namespace strata::os {
namespace {

#if defined(__x86_64__)

/// The same instant on both clocks.
struct Instant {
  std::uint64_t cycles;
  std::chrono::steady_clock::time_point time;
};

/// Reads the counter between two readings of the clock, and keeps the closest pair of several: a
/// preemption in between spoils a try, not the result.
Instant now_on_both() noexcept {
  using Clock = std::chrono::steady_clock;
  Instant best{};
  auto narrowest = Clock::duration::max();
  for (int i = 0; i < 16; ++i) {
    const auto before = Clock::now();
    const std::uint64_t cycles = cycle_count();
    const auto width = Clock::now() - before;
    if (width < narrowest) {
      narrowest = width;
      best = {cycles, before + width / 2};
    }
  }
  return best;
}

double measure_cycles_per_ns() noexcept {
  // Each end is off by some tens of nanoseconds at most: over 10 ms, some parts in a million.
  constexpr auto kInterval = std::chrono::milliseconds(10);
  const Instant begin = now_on_both();
  std::this_thread::sleep_for(kInterval);
  const Instant end = now_on_both();
  const std::chrono::duration<double, std::nano> elapsed = end.time - begin.time;
  return static_cast<double>(end.cycles - begin.cycles) / elapsed.count();
}

#elif defined(__aarch64__)

double measure_cycles_per_ns() noexcept {
  std::uint64_t frequency;  // The architecture tells it, in Hz.
  __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(frequency));
  return static_cast<double>(frequency) / 1e9;
}

#else

double measure_cycles_per_ns() noexcept { return 1.0; }

#endif

}  // namespace

int allowed_cpus() noexcept {
  // The kernel answers EINVAL to a mask that is smaller than its own, whose size it does not tell.
  for (int room = CPU_SETSIZE; room <= (1 << 20); room *= 2) {
    const auto destroy = [](cpu_set_t* set) { CPU_FREE(set); };
    const std::unique_ptr<cpu_set_t, decltype(destroy)> set(
        CPU_ALLOC(static_cast<std::size_t>(room)), destroy);
    if (set == nullptr) break;
    const std::size_t size = CPU_ALLOC_SIZE(static_cast<std::size_t>(room));
    if (sched_getaffinity(0, size, set.get()) == 0) {
      const int count = CPU_COUNT_S(size, set.get());
      return count > 0 ? count : 1;
    }
    if (errno != EINVAL) break;
  }
  return 1;
}

bool spinning_pays() noexcept {
  static const bool pays = allowed_cpus() > 1;
  return pays;
}

double cycles_per_ns() noexcept {
  static const double rate = measure_cycles_per_ns();
  return rate;
}

}  // namespace strata::os
