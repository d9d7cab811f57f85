#include <sched.h>

#include <atomic>
#include <stdexcept>
#include <strata/kernel.hpp>

STRATA_KERNEL(add) {
  const auto x = kernel.tensor(0);
  for (std::int64_t i = 0; i < x.extent(0); ++i)
    x.at<std::int64_t>(i) += kernel.scalar<std::int64_t>(0);
}

STRATA_KERNEL(throws) { throw std::out_of_range("element 7 is below zero"); }

STRATA_KERNEL(wait_for_flag) { kernel.wait_flag(3); }

/// Could still set the flag.
STRATA_KERNEL(until_cancelled) {
  while (!kernel.cancelled())
    sched_yield();
}

STRATA_KERNEL(nothing) {}

STRATA_KERNEL(spin) {
  const std::atomic_ref begun(*kernel.data<std::int64_t>(0));
  begun.store(1);
  while (begun.load() != 0) {
  }
}

STRATA_KERNEL(hold) {
  auto* const x = kernel.data<std::int64_t>(0);
  std::atomic_ref(x[0]).store(1);
  while (std::atomic_ref(x[1]).load() == 0) {
    if (kernel.cancelled()) return;
    sched_yield();
  }
}

STRATA_KERNEL(misuse) { (void)kernel.tensor(9); }

STRATA_KERNEL(logs) { kernel.log("here is the kernel"); }

STRATA_KERNEL(meet_aic) {
  kernel.barrier();
  if (kernel.block() == 0) kernel.data<std::int64_t>(0)[0] += kernel.blocks();
}

STRATA_KERNEL(meet_aiv) { kernel.barrier(); }

STRATA_KERNEL(cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  int first = 0;
  while (first < CPU_SETSIZE && !CPU_ISSET(first, &set))
    ++first;
  auto* const x = kernel.data<std::int64_t>(0);
  x[kernel.block()] = CPU_COUNT(&set);
  x[8 + kernel.block()] = first;
}
