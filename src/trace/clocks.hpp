// The two clocks of the process record: cycle counts, which are cheap to take, and
// CLOCK_MONOTONIC, which all processes of a machine share.
//
// Thread safety: free functions; any thread, and signal handlers too.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

#include "os/cpu.hpp"

namespace strata::trace {

inline std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// The same instant on both clocks.
struct Instant {
  std::uint64_t cycles = 0;
  std::uint64_t ns = 0;
};

/// Now. The closest of some tries, so that being interrupted between the clocks spoils nothing.
inline Instant now_on_both_clocks() noexcept {
  Instant best;
  std::uint64_t narrowest = UINT64_MAX;
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t before = monotonic_ns();
    const std::uint64_t cycles = os::cycle_count();
    const std::uint64_t width = monotonic_ns() - before;
    if (width < narrowest) {
      narrowest = width;
      best = {cycles, before + width / 2};
    }
  }
  return best;
}

/// What `cycles` is in nanoseconds, from two instants; kept between them.
inline std::uint64_t ns_between(Instant from, Instant to, std::uint64_t cycles) noexcept {
  if (to.cycles <= from.cycles || to.ns <= from.ns || cycles <= from.cycles) return from.ns;
  if (cycles >= to.cycles) return to.ns;
  const double share =
      static_cast<double>(cycles - from.cycles) / static_cast<double>(to.cycles - from.cycles);
  return from.ns + static_cast<std::uint64_t>(share * static_cast<double>(to.ns - from.ns));
}

}  // namespace strata::trace
