// Run: the handle of one execution of an orchestration.
//
// Thread safety: all members may be called from any thread, any number of times. Handles are
// copies of one reference; the run goes on whether or not handles are left, and the engine's
// destructor waits for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/error.hpp"
#include "strata/ids.hpp"

namespace strata {

namespace graph {
class RunState;
}

/// Why one task is ordered behind another.
enum class Hazard : std::uint8_t {
  read_after_write,
  write_after_write,
  write_after_read,
  explicit_after,  ///< after(task).
  creator,         ///< The task that allocated the tensor's storage.
};
/// "read after write", ...
[[nodiscard]] std::string_view name_of(Hazard hazard) noexcept;

/// One edge of a run's graph.
struct GraphEdge {
  TaskId from;
  TaskId to;
  Hazard hazard = Hazard::read_after_write;
  std::int32_t argument = -1;  ///< Tensor argument of `to` that caused it; -1 for explicit edges.
  bool assumed = false;        ///< Overlap could not be decided and was assumed.
  bool waited = false;         ///< `from` had not ended when `to` was submitted.
  bool last = false;  ///< The edge that was released last: what `to` in the end waited for.
};

enum class TaskState : std::uint8_t { waiting, ready, running, done, failed, skipped };
[[nodiscard]] std::string_view name_of(TaskState state) noexcept;

/// One node of a run's graph. Times are since the run was opened; zero if not reached.
struct GraphNode {
  TaskId task;
  std::string name;
  TaskState state = TaskState::waiting;
  LaneId lane;
  std::chrono::nanoseconds submitted{}, ready{}, started{}, ended{};
};

/// The graph of a run, in submission order.
struct Graph {
  std::string run;
  std::vector<GraphNode> nodes;
  std::vector<GraphEdge> edges;
  [[nodiscard]] std::string to_dot() const;
  [[nodiscard]] std::string to_json() const;
};

struct RunOptions {
  std::string name = {};  ///< "run 7" if empty.
  /// Ends the run with DeadlineExceeded.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  /// Infer no write-after-read and no write-after-write edges for this run's tasks.
  bool read_after_write_only = false;
  /// Keep the whole graph for graph() and why(): about 100 bytes a task, until the last handle
  /// goes.
  bool keep_graph = false;
  /// Refuse a task whose overlap with another can't be decided, rather than assuming it.
  bool strict = false;
};

struct RunStats {
  std::uint64_t tasks = 0;  ///< Submitted so far.
  std::uint64_t edges = 0;  ///< Dependencies found on tasks that had not ended.
  std::uint64_t assumed_edges = 0;
  std::uint64_t failed = 0;
  std::uint64_t skipped = 0;
  std::uint64_t heap_bytes = 0;  ///< Of runtime-allocated tensors, now.
  std::uint64_t heap_peak_bytes = 0;
};

class Run {
 public:
  Run() = default;  ///< Names no run; every other member then throws InvalidState.
  explicit Run(std::shared_ptr<graph::RunState> state) : state_(std::move(state)) {}

  [[nodiscard]] bool done() const;
  /// Waits for the end, whatever it is; helps on the caller lanes of the engine meanwhile.
  void wait() const;
  /// The same with a bound; false if the run had not ended by then. A task that this thread runs on
  /// a caller lane meanwhile is not interrupted at the bound.
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) const;
  template <class Rep, class Period>
  [[nodiscard]] bool wait_for(std::chrono::duration<Rep, Period> time) const {
    return wait_until(std::chrono::steady_clock::now() + time);
  }
  /// Waits, then returns if all went well; otherwise throws what the orchestration itself threw,
  /// Cancelled, DeadlineExceeded, or RunFailed.
  void result() const;
  /// Tells running tasks through their token, drops waiting ones. Returns at once; from any thread.
  /// A task that then throws Cancelled has not failed: it gave up.
  void cancel() const;

  /// What a task returned (Engine::complete with a value); for a group, what that member did.
  /// Nothing if it returned no value, failed, or has not ended. Values are kept as long as handles
  /// are.
  [[nodiscard]] std::optional<std::string> value(TaskId task, std::uint32_t member = 0) const;
  /// All values that tasks have returned so far, in the order in which they ended.
  [[nodiscard]] std::vector<std::pair<TaskId, std::string>> values() const;

  [[nodiscard]] std::string name() const;
  [[nodiscard]] RunStats stats() const;
  /// What made a task wait, with the edge that was released last marked. Needs keep_graph, or a
  /// task whose place in the window was not yet used again; otherwise throws InvalidState. Without
  /// keep_graph, readers beyond the last few of a region are not named one by one.
  [[nodiscard]] std::vector<GraphEdge> why(TaskId task) const;
  /// The graph so far. Needs keep_graph.
  [[nodiscard]] Graph graph() const;

 private:
  std::shared_ptr<graph::RunState> state_;
};

}  // namespace strata
