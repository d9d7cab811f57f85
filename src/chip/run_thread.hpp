// RunThread: a thread on which runs with a time limit are done, while the thread that asked for one
// waits, and is free at the deadline.
//
// Thread safety: start(), wait_until() and cancel() are for one thread, began() for the job.
//
// Invariants
//   (1) When wait_until() has returned true, the job has left the engine and the pool altogether.
//   (2) A cancellation reaches the run, whether it comes before or after the run has begun.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "strata/run.hpp"

namespace strata::chip {

class RunThread {
 public:
  RunThread() = default;
  /// Requires that no job is under way.
  ~RunThread();
  RunThread(const RunThread&) = delete;
  RunThread& operator=(const RunThread&) = delete;

  /// Begins a job, which must not throw. Requires that none is under way.
  void start(std::function<void()> job);
  /// Waits for the end of the job; false if it had not ended by then.
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline);
  /// Cancels the run of the job.
  void cancel();

  /// This is the run of the job.
  void began(const Run& run);

 private:
  void main();

  std::mutex mutex_;
  std::condition_variable changed_;
  // --- Guarded by mutex_ ---
  std::function<void()> job_ = {};  ///< Set while one is under way.
  bool stopping_ = false;
  bool cancelled_ = false;
  Run run_ = {};
  bool has_run_ = false;
  // --- The thread that calls start() ---
  std::thread thread_;
};

}  // namespace strata::chip
