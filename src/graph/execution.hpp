// What running a task takes, wherever it runs: its context, whether it runs at all, and what is
// kept of a failure.
//
// Thread safety: each function is for the thread that has the task in hand.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>

#include "base/planted_fault.hpp"
#include "graph/node.hpp"
#include "graph/run_state.hpp"
#include "graph/scheduler.hpp"
#include "strata/task_context.hpp"

namespace strata::graph {

/// The context of a part that starts on `lane`.
[[nodiscard]] TaskContext context_of(TaskNode& task, std::uint32_t member, const Lane& lane);
/// Whether the token of a plain task of the run, a RunState, is set.
[[nodiscard]] bool run_is_cancelled(const void* token);

/// Whether a ready task ends without running: something it needs failed, or its run was ended.
[[nodiscard]] inline bool must_skip(const TaskNode& task) {
  return task.poison.load(std::memory_order_relaxed) != nullptr ||
         (task.run->cancelled() && task.host == nullptr && !base::planted("cancel_runs_waiting"));
}
/// Whether a part that was started must not run. For a group that was settled for all members when
/// it started: some may be running already and wait for the others.
[[nodiscard]] bool dropped(const TaskNode& task);

/// Enters the start in the kept graph. Only if task.log is set.
void log_start(TaskNode& task, const Lane& lane);

/// What is kept of a task that ended with `error`.
[[nodiscard]] std::shared_ptr<const Failure> failure_of(const TaskNode& task,
                                                        std::exception_ptr error);
/// What is kept of a task that did not run.
[[nodiscard]] std::shared_ptr<const Failure> skip_of(const TaskNode& task);

}  // namespace strata::graph
