// Durations as messages say them: "50 ms", "1.5 s".
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>

namespace strata::base {

/// In the largest unit of which it is at least one, with as many digits as it needs, three after
/// the point at most.
[[nodiscard]] inline std::string duration_text(std::chrono::nanoseconds time) {
  const auto ns = static_cast<double>(time.count());
  const double size = ns < 0 ? -ns : ns;
  const auto in = [&](double unit, const char* name) {
    std::string text = fmt::format("{:.3f}", ns / unit);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text + " " + name;
  };
  if (size >= 1e9) return in(1e9, "s");
  if (size >= 1e6) return in(1e6, "ms");
  if (size >= 1e3) return in(1e3, "us");
  return in(1, "ns");
}

}  // namespace strata::base
