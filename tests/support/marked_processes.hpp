// Finds every process that a test has brought about, also those whose parents are dead: all carry
// the variable STRATA_TEST_ID in the environment with which they were started.
//
// Thread safety: any thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace strata::test {

inline constexpr const char* kMarkVariable = "STRATA_TEST_ID";

/// A value that no other test has.
[[nodiscard]] std::string new_mark();
/// From now on what this process starts is marked; the process itself is not. Gives the mark.
const std::string& mark_children();

struct MarkedProcess {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';  ///< 'R', 'S', 'T', ... as in ps; never 'Z': a zombie has no environment.
  std::string command = {};
};
/// Other processes than this one that carry the mark.
[[nodiscard]] std::vector<MarkedProcess> marked_processes(const std::string& mark);
/// One line each.
[[nodiscard]] std::string to_string(const std::vector<MarkedProcess>& processes);
/// Ends them all by SIGKILL, for tests that failed.
void kill_marked(const std::string& mark);

/// CPU time that all threads of these processes have used so far.
[[nodiscard]] std::chrono::nanoseconds cpu_time_of(const std::vector<pid_t>& pids);

}  // namespace strata::test
