// RunState: one run, shared by its handles, its orchestration and the engine.
//
// Thread safety: the counters and flags are atomics with the roles noted below; everything else is
// guarded by `mutex`, which is a leaf: nothing is locked inside it.
//
// Invariant: the run ends exactly once: when its orchestration has returned (`target` is set) and
// as many nodes have ended.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/node.hpp"
#include "os/adaptive_mutex.hpp"
#include "os/parker.hpp"
#include "strata/run.hpp"

namespace strata::graph {

class EngineState;

/// A task in a kept graph. Written by the submitter before the task can start; then times and state
/// by whoever runs it (relaxed: each is written once, and readers want a picture, not an order).
struct LoggedNode {
  TaskId task;
  std::string name;
  std::atomic<TaskState> state{TaskState::waiting};
  std::atomic<std::uint32_t> lane{0};
  std::uint64_t submitted = 0;  ///< Cycle counts.
  std::atomic<std::uint64_t> ready{0}, started{0}, ended{0};
  std::vector<GraphEdge> edges;
  std::atomic<std::uint64_t> last_from{0};  ///< `from` of the edge that was released last.
};

class RunState : public std::enable_shared_from_this<RunState> {
 public:
  enum class Ending : std::uint8_t { none, cancelled, deadline };

  RunState(EngineState* owner, std::uint64_t number, RunOptions run_options);
  ~RunState();

  // --- Constant ---
  RunOptions options;
  std::string name;
  std::uint64_t opened_cycles = 0;

  // --- Written by the orchestration's thread, read by anyone (relaxed; statistics) ---
  std::atomic<std::uint64_t> submitted{0};  ///< All nodes; those that end are counted.
  std::atomic<std::uint64_t> tasks{0};
  std::atomic<std::uint64_t> edges{0};
  std::atomic<std::uint64_t> assumed{0};

  // --- Heap account; written under the heap lock, read by anyone (relaxed) ---
  std::atomic<std::uint64_t> heap_bytes{0};
  std::atomic<std::uint64_t> heap_peak{0};

  /// Set once by cancel() (release); looked at before each task (acquire).
  std::atomic<Ending> ending{Ending::none};
  /// Number of nodes that must end; ~0 until the orchestration has returned.
  std::atomic<std::uint64_t> target{~std::uint64_t{0}};

  /// Nodes that have ended, counted apart by lane so that lanes do not meet: each lane of a thread
  /// writes its own (a plain add), everybody else the last one (read-modify-write). Read by those
  /// who check whether the run has ended.
  static constexpr std::uint32_t kCounters = 9;
  struct alignas(64) Counter {
    std::atomic<std::uint64_t> ended{0};
  };
  std::array<Counter, kCounters> counters;

  /// For the counters that only the orchestration's thread writes.
  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  [[nodiscard]] bool cancelled() const noexcept {
    return ending.load(std::memory_order_acquire) != Ending::none;
  }
  /// One node of the run has ended on lane `lane`, whose thread will call check_end() before it
  /// starts anything of another run, or sleeps.
  void node_ended_on(std::uint32_t lane) noexcept {
    std::atomic<std::uint64_t>& ended = counters[lane % kCounters].ended;
    if (lane < kCounters - 1) [[likely]] {
      // Release: who finds that the run has ended sees all that its tasks did.
      ended.store(ended.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    } else {
      counters[kCounters - 1].ended.fetch_add(1, std::memory_order_release);
    }
  }
  /// One node of the run has ended, elsewhere.
  void node_ended() noexcept {
    counters[kCounters - 1].ended.fetch_add(1, std::memory_order_release);
    check_end();
  }
  /// Ends the run if all its nodes have ended and its orchestration has returned.
  void check_end() noexcept {
    // Of two who count a node (or close the run) and then check, at least one sees what both did:
    // each has a fence between its own write and its reads of the others'.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::uint64_t all = target.load(std::memory_order_relaxed);
    if (all == ~std::uint64_t{0}) return;
    std::uint64_t ended = 0;
    for (const Counter& counter : counters)
      ended += counter.ended.load(std::memory_order_acquire);
    if (ended == all) end();
  }
  /// The orchestration has returned, with what it threw if it threw.
  void close(std::exception_ptr error) noexcept;

  [[nodiscard]] bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  void add_waiter(os::Parker& parker);
  void remove_waiter(os::Parker& parker);

  void add_failure(std::shared_ptr<const Failure> failure);
  /// A task has returned a value; before it ends.
  void add_value(TaskId task, std::uint32_t member, std::string value);
  [[nodiscard]] std::optional<std::string> value(TaskId task, std::uint32_t member) const;
  [[nodiscard]] std::vector<std::pair<TaskId, std::string>> values() const;
  /// Throws what the run ended with, if not well.
  void throw_result() const;
  [[nodiscard]] RunStats stats() const;
  /// Ends the run early. Returns false if it has ended or is being ended.
  bool cancel(Ending why) noexcept;

  /// The run's tasks use what `what` owns.
  void keep_alive(std::shared_ptr<const void> what) {
    const std::lock_guard lock(mutex);
    if (std::find(kept_.begin(), kept_.end(), what) == kept_.end())
      kept_.push_back(std::move(what));
  }
  LoggedNode& log(TaskId task, std::string_view task_name, std::vector<GraphEdge> task_edges);
  [[nodiscard]] Graph graph() const;
  [[nodiscard]] std::vector<GraphEdge> why(TaskId task) const;

  /// The engine, or null once it is gone. Guarded by mutex.
  EngineState* engine;
  mutable os::AdaptiveMutex mutex;

 private:
  void end() noexcept;

  std::atomic<bool> ended_once_{false};
  std::atomic<bool> done_{
      false};  ///< Release: all of the run's results are visible to who sees it.
  // Guarded by mutex.
  std::vector<os::Parker*> waiters_;
  std::vector<std::shared_ptr<const Failure>> failures_;
  std::exception_ptr orchestration_error_;
  std::vector<std::shared_ptr<const void>> kept_;
  std::deque<LoggedNode> log_;
  std::vector<std::pair<TaskId, std::string>> values_;  ///< In the order in which tasks ended.
  /// Index in values_ by task and member.
  std::map<std::pair<TaskId, std::uint32_t>, std::size_t> value_of_;
};

}  // namespace strata::graph
