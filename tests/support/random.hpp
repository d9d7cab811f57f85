// Random: a small, seeded generator for tests. The same seed gives the same sequence on every
// machine and in every version, so a seed in a report is enough to repeat a failure.
//
// The generator is xoshiro256** and its seeding splitmix64 (Blackman and Vigna, "Scrambled linear
// pseudorandom number generators", 2018).
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace strata::test {

/// One step of splitmix64: a good mix of all bits of `x`, also of use as a hash.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class Random {
 public:
  using result_type = std::uint64_t;
  explicit Random(std::uint64_t seed) noexcept {
    for (std::uint64_t& word : state_) {
      word = mix(seed);
      seed += 0x9e3779b97f4a7c15ULL;
    }
  }

  static constexpr result_type min() noexcept { return 0; }
  static constexpr result_type max() noexcept { return std::numeric_limits<result_type>::max(); }
  std::uint64_t operator()() noexcept {
    const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = rotate(state_[3], 45);
    return result;
  }

  /// 0 ... bound - 1; the bias for small bounds is of no matter to tests. 0 for a bound of 0.
  std::uint64_t below(std::uint64_t bound) noexcept { return bound == 0 ? 0 : (*this)() % bound; }
  /// low ... high, both included.
  std::int64_t between(std::int64_t low, std::int64_t high) noexcept {
    return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
  }
  /// True in `percent` of 100 calls.
  bool chance(int percent) noexcept { return static_cast<int>(below(100)) < percent; }
  /// An element of a container that is not empty.
  template <class Container>
  auto& pick(Container& container) noexcept {
    return container[static_cast<std::size_t>(below(container.size()))];
  }
  template <class Container>
  void shuffle(Container& container) noexcept {
    for (std::size_t i = container.size(); i > 1; --i) {
      std::swap(container[i - 1], container[static_cast<std::size_t>(below(i))]);
    }
  }

 private:
  static constexpr std::uint64_t rotate(std::uint64_t x, int by) noexcept {
    return (x << by) | (x >> (64 - by));
  }
  std::uint64_t state_[4];
};

}  // namespace strata::test
