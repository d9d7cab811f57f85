// The Strata processes of this machine, found by reading /proc: whoever has a process record of its
// own (trace/process_record.hpp) among its descriptors is one. There is no list of them anywhere,
// so none can be wrong or left behind.
//
// Nobody is asked and nothing is waited for: a process that hangs or is stopped is found like any
// other. One that may not be looked at (another user's) or ends meanwhile is left out.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "os/procfs.hpp"
#include "trace/process_record_reader.hpp"

namespace strata::cli {

struct StrataProcess {
  os::ProcessInfo info;
  trace::Card card;
  std::vector<std::string> command_line;
  std::vector<StrataProcess> children;  ///< By path, numbers in it by value.
};

/// All trees, by the pids of their roots. A process hangs below the nearest of its ancestors that
/// is a Strata process too.
[[nodiscard]] std::vector<StrataProcess> find_trees();

/// The state in its record; running while it has a task in hand, which workers don't write down as
/// a state of its own since that would cost each task time.
[[nodiscard]] trace::ProcessState doing_of(const StrataProcess& process);
/// When that began, on CLOCK_MONOTONIC.
[[nodiscard]] std::chrono::nanoseconds since_of(const StrataProcess& process);
/// "idle", "running"; "running, stopped" where the kernel has stopped it.
[[nodiscard]] std::string state_of(const StrataProcess& process);
/// CPU time so far, user and kernel.
[[nodiscard]] std::chrono::nanoseconds cpu_time_of(const StrataProcess& process);

}  // namespace strata::cli
