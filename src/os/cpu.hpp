// The CPUs this process may use, and their cycle counter.
//
// Thread safety: every function may be called by any thread at any time.
#pragma once

#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <chrono>
#endif

namespace strata::os {

/// How many CPUs the calling thread may run on (its affinity mask; a cgroup's quota of CPU time is
/// not looked at). At least 1. Asks the kernel each time.
[[nodiscard]] int allowed_cpus() noexcept;

/// Whether a thread that spins can hope that another runs meanwhile: allowed_cpus() > 1, as it was
/// at the first call. Costs a load.
[[nodiscard]] bool spinning_pays() noexcept;

/// Counter that runs at a constant rate: the time stamp counter on x86-64, the virtual counter on
/// arm64, nanoseconds elsewhere. For intervals only. Not ordered with the loads and stores around
/// it.
[[nodiscard]] inline std::uint64_t cycle_count() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t value;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
#endif
}

/// How far cycle_count() goes in a nanosecond. On x86-64 the first call measures it, which takes 10
/// ms; later ones cost a load.
[[nodiscard]] double cycles_per_ns() noexcept;

/// Tells the CPU that this thread spins: yields its pipeline to a sibling and saves power. A few to
/// some tens of nanoseconds.
inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::
                       : "memory");  // `yield` does nothing on most cores; this one waits a little.
#else
  __asm__ volatile("" ::: "memory");
#endif
}

}  // namespace strata::os
