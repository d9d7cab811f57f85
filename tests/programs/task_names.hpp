// What the test libraries offer, by number: orchestrations of next-level workers get the number of
// the function that the worker below is to run.
//
// Thread safety: constants.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace strata::test {

/// Symbols of libstrata_test_tasks.so that a worker at any depth can run. Each takes what it needs
/// of: tensor 0 (where it notes its pid once it has begun, int32), scalar 0 (a number, int64).
inline constexpr std::array<std::string_view, 19> kTaskNames{
    "nothing",        "fail",       "fail_with_type",  "fail_with_number", "nap",
    "sleep_for_ever", "spin",       "spin_everywhere", "until_cancelled",  "ignore_everything",
    "null_write",     "overflow",   "abort_now",       "exit_now",         "hold_malloc",
    "hold_loader",    "hold_stdio", "write_lines",     "crash_in_library"};

constexpr std::int64_t number_of_task(std::string_view name) {
  for (std::size_t i = 0; i < kTaskNames.size(); ++i) {
    if (kTaskNames[i] == name) return static_cast<std::int64_t>(i);
  }
  throw std::invalid_argument("no such task");
}

/// What `fail` throws: exactly that many bytes (at least 20), with a beginning and an end by which
/// one sees that nothing is missing.
inline std::string text_of(std::size_t bytes) {
  constexpr std::string_view kBegin = "<begin> ";
  constexpr std::string_view kEnd = " <end>";
  std::string text(kBegin);
  while (text.size() + kEnd.size() < bytes) {
    text += static_cast<char>('a' + static_cast<char>(text.size() % 26));
  }
  text += kEnd;
  return text;
}

}  // namespace strata::test
