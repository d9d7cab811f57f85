// Time bounds of tests. A test writes the bound that is promised; how much longer this machine may
// take is decided in one place.
//
// STRATA_TEST_TIME_FACTOR multiplies every bound: 1 on an idle machine, 5 in `./dev soak`. Without
// it the factor is 4, since tests share their machine with each other and with compilers. Under a
// sanitizer everything takes four times as long again.
//
// Thread safety: any thread.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>

namespace strata::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

inline double time_factor() {
  double factor = 4;
  if (const char* text = std::getenv("STRATA_TEST_TIME_FACTOR"); text != nullptr) {
    if (const double given = std::strtod(text, nullptr); given > 0) factor = given;
  }
  return kSanitized ? 4 * factor : factor;
}

/// The promised time, as long as it may take here.
inline std::chrono::milliseconds bound(std::chrono::milliseconds promised) {
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(static_cast<double>(promised.count()) * time_factor()));
}

/// Asks again and again until it is so, or the time is over.
template <class Condition>
[[nodiscard]] bool within(std::chrono::milliseconds promised, Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + bound(promised);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return condition();
    timespec pause{.tv_sec = 0, .tv_nsec = 500'000};
    ::nanosleep(&pause, nullptr);
  }
  return true;
}

/// How long something took.
class Stopwatch {
 public:
  [[nodiscard]] std::chrono::milliseconds elapsed() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                 start_);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace strata::test
