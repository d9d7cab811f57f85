// What happens to a run that has not ended by its deadline: who is still busy, and who does not
// come back although the run is over.
//
// No clock decides alone that a kernel is stuck. A block that has been told, by cancellation, that
// it is of no use gets some time to return. While other blocks still end, or its thread wants a CPU
// and does not get one, it gets more.
//
// Thread safety: functions for the thread that waits for the run.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "chip/cores/core_pool.hpp"
#include "chip/run_thread.hpp"

namespace strata::chip {

/// Busy cores, one a line: what each does, for how long, and with which arguments.
[[nodiscard]] std::string describe(std::span<const CoreStatus> cores);

/// How long a block may take to return once it is told to; ten times that if there is a reason.
inline constexpr std::chrono::milliseconds kGrace{200};

/// Waits for a run that was cancelled. True if it has ended; false if it does not come to an end,
/// and `pool` tells which cores are still busy.
[[nodiscard]] bool wait_for_cancelled(RunThread& run, const CorePool& pool);

}  // namespace strata::chip
