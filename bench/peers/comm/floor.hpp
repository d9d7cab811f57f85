// The least that can do an all_reduce of tensors that all ranks can read: written by hand, without
// any of the library, for the benchmarks to compare with. It checks nothing and never sleeps.
//
// Thread safety: each rank has its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "strata/domain_context.hpp"

namespace strata::bench {

// The arrays are the same, element for element, or do not overlap.
#if defined(__clang__)
#define STRATA_FLOOR_ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define STRATA_FLOOR_ELEMENTWISE _Pragma("GCC ivdep")
#endif

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Words in the slice "flags", each on a line of its own.
inline std::atomic<std::uint32_t>& floor_flag(const DomainContext& domain, std::uint32_t rank,
                                              std::uint32_t index) {
  const std::uint64_t flags = domain.slices[2].offset;
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(domain.windows[rank] + flags + 64 +
                                                        64 * index);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
inline void
floor_add_two(const float* a, const float* b, float* x, float* y, std::size_t count) {
  STRATA_FLOOR_ELEMENTWISE
  for (std::size_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    x[i] = sum;
    y[i] = sum;
  }
}
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
inline void
floor_add_four(const float* a, const float* b, const float* c, const float* d, float* x,
               std::size_t count) {
  STRATA_FLOOR_ELEMENTWISE
  for (std::size_t i = 0; i < count; ++i)
    x[i] = ((a[i] + b[i]) + c[i]) + d[i];
}

/// For 2 and 4 ranks.
class Floor {
 public:
  Floor(const DomainContext& domain, std::size_t count) : domain_(domain), count_(count) {}

  void meet() {
    ++round_;
    floor_flag(domain_, domain_.rank, 0).store(round_, std::memory_order_release);
    for (std::uint32_t r = 0; r < domain_.size; ++r) {
      while (static_cast<std::int32_t>(floor_flag(domain_, r, 0).load(std::memory_order_acquire) -
                                       round_) < 0)
        pause_briefly();
    }
  }
  void all_reduce() {
    meet();
    if (count_ <= 1024) return add(0, count_, true);
    const std::size_t each = (count_ / domain_.size + 15) / 16 * 16;
    const std::size_t begin = std::min(count_, domain_.rank * each);
    add(begin, std::min(each, count_ - begin), false);
    meet();
  }

 private:
  [[nodiscard]] float* array(std::uint32_t rank, int slice) const {
    return reinterpret_cast<float*>(domain_.windows[rank] + domain_.slices[slice].offset);
  }
  [[nodiscard]] const float* in(std::uint32_t rank) const { return array(rank, 0); }
  void add(std::size_t begin, std::size_t count, bool own_only) {
    float* const own = array(domain_.rank, 1) + begin;
    const std::uint32_t other = (domain_.rank + 1) % domain_.size;
    if (domain_.size == 2) {
      float* const second = own_only ? own : array(other, 1) + begin;
      floor_add_two(in(0) + begin, in(1) + begin, own, second, count);
      return;
    }
    // In blocks that stay in the first-level cache.
    for (std::size_t done = 0; done < count; done += 2048) {
      const std::size_t now = std::min<std::size_t>(2048, count - done);
      const std::size_t at = begin + done;
      floor_add_four(in(0) + at, in(1) + at, in(2) + at, in(3) + at, own + done, now);
      for (std::uint32_t i = 1; i < domain_.size && !own_only; ++i)
        std::memcpy(array((domain_.rank + i) % domain_.size, 1) + at, own + done, now * 4);
    }
  }

  const DomainContext& domain_;
  std::size_t count_;
  std::uint32_t round_ = 0;
};

/// A line with a word of data and a flag, there and back.
class RawPing {
 public:
  explicit RawPing(const DomainContext& domain) : domain_(domain) {}
  void round_trip() {
    ++round_;
    if (domain_.rank == 0) put();
    while (floor_flag(domain_, domain_.rank, 1).load(std::memory_order_acquire) != round_)
      pause_briefly();
    if (domain_.rank == 1) put();
  }

 private:
  void put() {
    std::atomic<std::uint32_t>& flag = floor_flag(domain_, 1 - domain_.rank, 1);
    (&flag)[1].store(round_, std::memory_order_relaxed);
    flag.store(round_, std::memory_order_release);
  }
  const DomainContext& domain_;
  std::uint32_t round_ = 0;
};

}  // namespace strata::bench
