// ArgumentDump: writes the tensor arguments of tasks to files: what a task reads as it begins, what
// it has written as it ends. One folder holds one run of a chip:
//
//   FOLDER/PROGRAM.PID.RUN/tasks.jsonl                    a line for each task, in order of their
//   ends
//                          task-000007.0.before.npy       tensor argument 0 of task 7
//                          task-000007.2.after.npy
//
// Thread safety: begin() and end() from any thread, each task's one after the other; the others
// while no task runs. Files are written by the thread that begins or ends the task, one at a time.
//
// Invariants
//   (1) A task's bytes are read while it holds them: after those that it waits for have ended, and
//       before any that waits for it begins.
//   (2) What can't be written fails the run in the end, with the first reason; it stops no task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "strata/chip.hpp"
#include "strata/external_lane.hpp"
#include "strata/task_context.hpp"

namespace strata::chip {

class ArgumentDump {
 public:
  struct Options {
    std::filesystem::path folder;
    std::string program;
    std::uint64_t run = 0;
    bool all = false;  ///< Tasks that are not marked, too.
  };
  /// Makes the folder. Throws Error.
  explicit ArgumentDump(const Options& options);
  ArgumentDump(const ArgumentDump&) = delete;
  ArgumentDump& operator=(const ArgumentDump&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  /// Before the task's first block starts. The context lives until end().
  void begin(DispatchId dispatch, const TaskContext& context, const Launch& launch);
  /// Nothing happens for a task that is not marked.
  void end(DispatchId dispatch, bool went_well);
  /// Throws Error if something could not be written and the run has not failed anyway.
  void finish(const std::exception_ptr& run_error);

 private:
  enum class Moment : std::uint8_t { before, after };
  struct Task {
    const TaskContext* context = nullptr;
    std::string kernels;
    std::vector<std::size_t> arguments;  ///< Those to be written.
    bool all = false;
  };
  [[nodiscard]] bool is_marked(const TaskContext& context, std::size_t argument,
                               const Launch& launch) const;
  void write(const Task& task, Moment moment);
  void write_line(const Task& task, bool went_well);
  [[nodiscard]] static std::string file_of(const Task& task, std::size_t argument, Moment moment);
  /// Does what may fail, and keeps the first reason.
  template <class Write>
  void try_to(const Write& write);

  const bool all_;
  const std::filesystem::path folder_;
  std::mutex mutex_;
  // --- Guarded by mutex_ ---
  std::unordered_map<std::uint64_t, Task> tasks_;  ///< By dispatch.
  std::ofstream list_;
  std::string failure_;
};

}  // namespace strata::chip
