// The tree that tests of the node Worker use, and short ways to say what runs in it.
//
// "The tree" is a node with 2 chips, 2 subs and one next-level worker with 2 subs: with the test
// itself eight processes.
//
// Thread safety: free functions; a TaskFlag may be read from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "programs/task_names.hpp"
#include "strata/worker.hpp"
#include "strata/worker_error.hpp"
#include "support/program.hpp"
#include "support/time_bounds.hpp"

namespace strata::test {

/// Worker processes of the tree.
inline constexpr std::size_t kTreeProcesses = 7;

inline WorkerOptions tree_options() {
  WorkerOptions below;
  below.subs = {{.count = 2}};
  WorkerOptions options;
  options.chips = {{}, {}};
  options.subs = {{.count = 2}};
  options.next_level = {below};
  return options;
}

/// A function of libstrata_test_tasks.so.
inline Callable task_in_library(std::string_view symbol) {
  return Callable::in_library(test_library("strata_test_tasks"), std::string(symbol));
}

/// Where a task notes that it has begun: its tensor 0.
class TaskFlag {
 public:
  explicit TaskFlag(Worker& worker) : buffer_(worker.create_buffer(sizeof(std::int32_t))) {}
  [[nodiscard]] Tensor tensor() const { return buffer_.tensor(DType::int32, {1}); }
  /// Pid of the worker, or something else than 0 once the task has begun.
  [[nodiscard]] std::int32_t value() const {
    return std::atomic_ref<std::int32_t>(buffer_.as<std::int32_t>()[0])
        .load(std::memory_order_acquire);
  }
  [[nodiscard]] bool begun_within(std::chrono::milliseconds promised) const {
    return within(promised, [&] { return value() != 0; });
  }

 private:
  Buffer buffer_;
};

/// What the innermost cause of a failed run is: calls `found` with the WorkerError of its first
/// failed task. Returns what the run threw, as text.
template <class Found>
std::string with_failure_of(const Run& run, Found&& found) {
  try {
    run.result();
  } catch (const RunFailed& failed) {
    for (const TaskFailure& failure : failed.failed()) {
      if (failure.exception == nullptr) continue;
      try {
        std::rethrow_exception(failure.exception);
      } catch (const WorkerError& error) {
        found(error);
        return failed.what();
      } catch (const std::exception&) {
      }
    }
    return failed.what();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace strata::test
