// Clock, median and threads that start together, shared by the peers and the harness.
//
// Thread safety: free functions without state.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace strata::bench {

inline double now_ns() noexcept {
  return std::chrono::duration<double, std::nano>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Requires at least one sample.
inline double median(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

/// Calls body(0) ... body(threads - 1), each on a thread, the first on this one; returns the time
/// from when all were there to when the last was done.
template <class Body>
double parallel_ns(unsigned threads, Body body) {
  std::atomic<unsigned> here{0};
  std::vector<double> begin(threads), end(threads);
  const auto take_part = [&](unsigned index) {
    here.fetch_add(1);
    while (here.load(std::memory_order_acquire) < threads)
      std::this_thread::yield();
    begin[index] = now_ns();
    body(index);
    end[index] = now_ns();
  };
  {
    std::vector<std::jthread> others;
    for (unsigned i = 1; i < threads; ++i)
      others.emplace_back(take_part, i);
    take_part(0);
  }
  return *std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end());
}

}  // namespace strata::bench
