// Binds a thread of a test to some CPUs for a while.
//
// Thread safety: belongs to one thread.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <cstddef>
#include <vector>

namespace strata::test {

/// This thread, and what it starts, on these CPUs only, as long as this lives.
class OnCpus {
 public:
  explicit OnCpus(const std::vector<int>& cpus) {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus)
      CPU_SET(static_cast<std::size_t>(cpu), &set);
    EXPECT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
  }
  ~OnCpus() { sched_setaffinity(0, sizeof before_, &before_); }
  OnCpus(const OnCpus&) = delete;
  OnCpus& operator=(const OnCpus&) = delete;

 private:
  cpu_set_t before_;
};

}  // namespace strata::test
