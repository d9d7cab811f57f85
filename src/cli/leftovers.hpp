// What a program leaves behind when it ends: processes that it or its children started, wherever
// they hide. This process is their subreaper, so that all of them are its descendants, also those
// whose parents have ended and those in sessions of their own.
//
// Thread safety: one thread. Needs that this process has no children but the program and what came
// of it, and those that are told to leave alone.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace strata::cli {

/// From now on, whatever a descendant of this process leaves behind becomes its child. Throws
/// SystemError.
void adopt_orphans();

/// Waits for all children that have ended, but not for `except`.
void reap_orphans(pid_t except);

/// "1234 (sleep 100)"
struct Leftover {
  pid_t pid = 0;
  std::string name;
  std::uint64_t start_time = 0;  ///< With the pid it names a process for ever.
};

/// Descendants of this process that run, but for `except`, children of this process, and all below
/// those.
[[nodiscard]] std::vector<Leftover> find_leftovers(const std::vector<pid_t>& except = {});

/// Ends those that find_leftovers() finds: SIGTERM, and SIGKILL once `patience` is over or `hurry`
/// says so, again and again until none is left, for at most ten seconds more. Returns those that
/// the kernel does not give back.
std::vector<Leftover> end_leftovers(std::chrono::milliseconds patience,
                                    const std::function<bool()>& hurry,
                                    const std::vector<pid_t>& except = {});

}  // namespace strata::cli
