#include "graph/run_state.hpp"

#include <algorithm>
#include <mutex>

#include "graph/engine_state.hpp"
#include "os/cpu.hpp"

namespace strata::graph {

namespace {

/// The edges into a task of a kept graph, with the one that was released last marked.
std::vector<GraphEdge> edges_of(const LoggedNode& node) {
  std::vector<GraphEdge> edges = node.edges;
  const TaskId last{node.last_from.load(std::memory_order_relaxed)};
  const auto found = std::find_if(edges.begin(), edges.end(), [&](const GraphEdge& edge) {
    return edge.waited && edge.from == last;
  });
  if (found != edges.end()) found->last = true;
  return edges;
}

}  // namespace

RunState::RunState(EngineState* owner, std::uint64_t number, RunOptions run_options)
    : options(std::move(run_options)),
      name(options.name.empty() ? "run " + std::to_string(number) : options.name),
      opened_cycles(os::cycle_count()),
      engine(owner) {}

RunState::~RunState() = default;

void RunState::close(std::exception_ptr error) noexcept {
  {
    const std::lock_guard lock(mutex);
    orchestration_error_ = std::move(error);
  }
  target.store(submitted.load(std::memory_order_relaxed), std::memory_order_relaxed);
  check_end();
}

void RunState::end() noexcept {
  if (ended_once_.exchange(true, std::memory_order_acq_rel)) return;
  const std::lock_guard lock(mutex);
  done_.store(true, std::memory_order_release);
  // Inside the lock: a waiter takes itself off the list before its thread can go away.
  for (os::Parker* parker : waiters_)
    parker->unpark();
}

void RunState::add_waiter(os::Parker& parker) {
  const std::lock_guard lock(mutex);
  waiters_.push_back(&parker);
}

void RunState::remove_waiter(os::Parker& parker) {
  const std::lock_guard lock(mutex);
  waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &parker));
}

bool RunState::cancel(Ending why) noexcept {
  const std::lock_guard lock(mutex);  // A run that has ended stays as it ended.
  if (done()) return false;
  Ending none = Ending::none;
  return ending.compare_exchange_strong(none, why, std::memory_order_acq_rel);
}

void RunState::add_failure(std::shared_ptr<const Failure> failure) {
  const std::lock_guard lock(mutex);
  failures_.push_back(std::move(failure));
}

void RunState::add_value(TaskId task, std::uint32_t member, std::string value) {
  const std::lock_guard lock(mutex);
  value_of_.emplace(std::pair(task, member), values_.size());
  values_.emplace_back(task, std::move(value));
}

std::optional<std::string> RunState::value(TaskId task, std::uint32_t member) const {
  const std::lock_guard lock(mutex);
  const auto found = value_of_.find({task, member});
  if (found == value_of_.end()) return std::nullopt;
  return values_[found->second].second;
}

std::vector<std::pair<TaskId, std::string>> RunState::values() const {
  const std::lock_guard lock(mutex);
  return values_;
}

void RunState::throw_result() const {
  std::vector<TaskFailure> failed;
  std::vector<TaskFailure> skipped;
  {
    const std::lock_guard lock(mutex);
    for (const auto& failure : failures_) {
      if (failure->cancelled) continue;
      (failure->what.exception != nullptr ? failed : skipped).push_back(failure->what);
    }
    if (failed.empty() && ending.load(std::memory_order_acquire) != Ending::none) {
      const bool deadline = ending.load(std::memory_order_acquire) == Ending::deadline;
      const std::string counts = std::to_string(failures_.size()) + " of " +
                                 std::to_string(tasks.load(std::memory_order_relaxed)) +
                                 " submitted tasks were dropped";
      if (deadline) throw DeadlineExceeded(name + " did not end by its deadline; " + counts);
      throw Cancelled(name + " was cancelled; " + counts);
    }
    // What the orchestration threw comes first, unless it only passed on what a task did.
    if (orchestration_error_ != nullptr && failed.empty()) {
      std::rethrow_exception(orchestration_error_);
    }
  }
  if (failed.empty() && skipped.empty()) return;
  const TaskFailure& first = failed.empty() ? skipped.front() : failed.front();
  std::string message = name + " failed: task " + std::to_string(first.task.number()) +
                        (first.name.empty() ? "" : " '" + first.name + "'") +
                        (failed.empty() ? " was " : " threw: ") + first.message;
  if (failed.size() > 1) message += "; " + std::to_string(failed.size() - 1) + " more failed";
  if (failed.empty()) {
    if (skipped.size() > 1) message += "; so were " + std::to_string(skipped.size() - 1) + " more";
  } else if (!skipped.empty()) {
    message += "; " + std::to_string(skipped.size()) + " skipped since they needed what was lost";
  }
  throw RunFailed(message, std::move(failed), std::move(skipped));
}

RunStats RunState::stats() const {
  RunStats stats;
  stats.tasks = tasks.load(std::memory_order_relaxed);
  stats.edges = edges.load(std::memory_order_relaxed);
  stats.assumed_edges = assumed.load(std::memory_order_relaxed);
  stats.heap_bytes = heap_bytes.load(std::memory_order_relaxed);
  stats.heap_peak_bytes = heap_peak.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex);
  for (const auto& failure : failures_) {
    ++(failure->what.exception != nullptr ? stats.failed : stats.skipped);
  }
  return stats;
}

LoggedNode& RunState::log(TaskId task, std::string_view task_name,
                          std::vector<GraphEdge> task_edges) {
  const std::lock_guard lock(mutex);
  LoggedNode& node = log_.emplace_back();
  node.task = task;
  node.name = task_name;
  node.edges = std::move(task_edges);
  node.submitted = os::cycle_count();
  return node;
}

Graph RunState::graph() const {
  if (!options.keep_graph) {
    throw InvalidState("Run::graph: " + name + " keeps no graph; set RunOptions::keep_graph");
  }
  const double per_ns = os::cycles_per_ns();
  const auto time = [&](std::uint64_t cycles) {
    if (cycles == 0) return std::chrono::nanoseconds{0};
    return std::chrono::nanoseconds{
        static_cast<std::int64_t>(static_cast<double>(cycles - opened_cycles) / per_ns)};
  };
  Graph graph;
  graph.run = name;
  const std::lock_guard lock(mutex);
  for (const LoggedNode& node : log_) {
    graph.nodes.push_back({.task = node.task,
                           .name = node.name,
                           .state = node.state.load(std::memory_order_relaxed),
                           .lane = LaneId{node.lane.load(std::memory_order_relaxed)},
                           .submitted = time(node.submitted),
                           .ready = time(node.ready.load(std::memory_order_relaxed)),
                           .started = time(node.started.load(std::memory_order_relaxed)),
                           .ended = time(node.ended.load(std::memory_order_relaxed))});
    const std::vector<GraphEdge> edges_in = edges_of(node);
    graph.edges.insert(graph.edges.end(), edges_in.begin(), edges_in.end());
  }
  return graph;
}

std::vector<GraphEdge> RunState::why(TaskId task) const {
  if (!options.keep_graph) return EngineState::edges_in_window(*this, task);
  const std::lock_guard lock(mutex);
  const auto node =
      std::lower_bound(log_.begin(), log_.end(), task,
                       [](const LoggedNode& logged, TaskId id) { return logged.task < id; });
  if (node == log_.end() || node->task != task) {
    throw InvalidArgument("Run::why: " + name + " has no task " + std::to_string(task.number()));
  }
  return edges_of(*node);
}

}  // namespace strata::graph

namespace strata {

namespace {
graph::RunState& checked(const std::shared_ptr<graph::RunState>& state) {
  if (state == nullptr) throw InvalidState("this Run handle is empty: it names no run");
  return *state;
}
}  // namespace

bool Run::done() const { return checked(state_).done(); }

void Run::wait() const { (void)wait_until(std::chrono::steady_clock::time_point::max()); }

bool Run::wait_until(std::chrono::steady_clock::time_point deadline) const {
  graph::RunState& run = checked(state_);
  if (run.done()) return true;
  return graph::EngineState::wait_for_run(run, deadline);
}

void Run::result() const {
  wait();
  state_->throw_result();
}

void Run::cancel() const {
  graph::EngineState::cancel(checked(state_), graph::RunState::Ending::cancelled);
}

std::optional<std::string> Run::value(TaskId task, std::uint32_t member) const {
  return checked(state_).value(task, member);
}
std::vector<std::pair<TaskId, std::string>> Run::values() const { return checked(state_).values(); }

std::string Run::name() const { return checked(state_).name; }
RunStats Run::stats() const { return checked(state_).stats(); }
std::vector<GraphEdge> Run::why(TaskId task) const { return checked(state_).why(task); }
Graph Run::graph() const { return checked(state_).graph(); }

}  // namespace strata
