// The supervisor of one job: a process of its own between `strata test` and the job's program.
//
//   strata test ─┬─ supervisor ── program ── ...        output: pipe ── OutputRelay ── file
//                └─ supervisor ── program ── ...
//
// It is the sub-reaper of this job alone, so whatever lost its parent, left its session, changed
// its name or cleared its environment is still a descendant of it, and of no other job's. Process
// groups, environments and cgroups can be left, or are not there in a container; this can't.
//
// `strata test` tells it to end the job by a byte in a pipe; when that pipe is closed, since
// `strata test` was killed, it kills all that there is. If the supervisor itself is killed, what is
// left of the job becomes a child of `strata test`, which ends it.
//
// Thread safety: run_supervisor() is a process's whole work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/jobs/result.hpp"

namespace strata::cli::jobs {

/// Descriptors that a supervisor is started with.
inline constexpr int kRequestFd = 3;  ///< A file: the JobRequest.
inline constexpr int kResultFd = 4;   ///< A file: gets the JobEnd as JSON.
inline constexpr int kOutputFd = 5;   ///< A file: gets the output.
inline constexpr int kOrderFd = 6;    ///< A pipe: orders, one byte each.

enum class Order : char {
  explain_and_end = 'x',  ///< As at the time-out.
  end = 'e',
  kill = 'k',  ///< Without grace.
};

struct JobRequest {
  std::vector<std::string> command;
  std::string directory;  ///< Empty: ours.
  std::vector<std::string> environment;
  double timeout = 0;  ///< Seconds; 0: none.
  double grace = 0;    ///< Seconds between SIGTERM and SIGKILL.
};
[[nodiscard]] std::string to_text(const JobRequest& request);

/// Without the output. Throws if it is no such text.
[[nodiscard]] JobEnd end_from_text(const std::string& text);

/// The work of a supervisor; returns its exit code.
int run_supervisor();

}  // namespace strata::cli::jobs
