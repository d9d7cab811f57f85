// What the worker processes have recorded of their tasks: when each began and ended in each. They
// always record; this reads it, while they live.
//
// Thread safety: functions of their arguments.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <strata/worker.hpp>

namespace distributed {

/// One task, or one member of a group, in one process. Times are of CLOCK_MONOTONIC.
struct RecordedTask {
  std::string process;  ///< "node/chip[0]".
  int pid = 0;
  strata::TaskId task;
  std::chrono::nanoseconds begin{0};
  std::chrono::nanoseconds end{0};
  [[nodiscard]] std::chrono::nanoseconds time() const { return end - begin; }
};

/// The latest tasks of each worker process that have ended, in the order in which they began there.
/// A process keeps its last 1024 events, which are about 500 tasks.
[[nodiscard]] std::vector<RecordedTask> recorded_tasks(const strata::Worker& worker);

using TaskNames = std::map<strata::TaskId, std::string>;

/// Writes them as a JSON file of trace events, which ui.perfetto.dev and chrome://tracing show: a
/// row per process. Throws strata::Error.
void write_timeline(const std::filesystem::path& file, const std::vector<RecordedTask>& tasks,
                    const TaskNames& names);

}  // namespace distributed
