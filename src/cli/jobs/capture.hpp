// capture: what a command writes to one of its descriptors, for commands that list tests. A command
// that hangs is explained and ended.
//
// Thread safety: one thread, while this process has no other children. Needs adopt_orphans().
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace strata::cli::jobs {

struct CaptureOptions {
  std::vector<std::string> command;
  std::vector<std::string> environment;
  int fd = 1;  ///< What is written there.
  std::chrono::milliseconds limit{120'000};
};
struct Captured {
  int exit_code = 0;
  std::string text;
  std::string rest;  ///< What it wrote to stdout and stderr besides.
};
/// Throws NotStarted, or DeadlineExceeded with a report of what it was doing.
[[nodiscard]] Captured capture(const CaptureOptions& options);

}  // namespace strata::cli::jobs
