// RunWatch: looks every some milliseconds whether a run is still wanted, while the thread that
// waits for it may itself be busy as a core.
//
// Its thread is made by the first run that has a token. It looks on for a while after a run has
// ended, so that short runs in a row need not wake it, and then sleeps until the next one.
//
// Thread safety: begin() and end() from one thread at a time.
//
// Invariants
//   (1) The token is looked at, and the run cancelled, only between begin() and end().
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "strata/run.hpp"

namespace strata::chip {

class RunWatch {
 public:
  static constexpr std::chrono::milliseconds kInterval{20};

  RunWatch() = default;
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  using IsCancelled = bool (*)(const void* token);
  /// From here on the run is cancelled once `cancelled(token)` is true ...
  void begin(const Run& run, IsCancelled cancelled, const void* token);
  /// ... until here. Nothing if there was no begin().
  void end();

 private:
  void main();

  static constexpr std::chrono::seconds kLinger{1};

  std::mutex mutex_;
  std::condition_variable changed_;
  // --- Guarded by mutex_ ---
  Run run_ = {};
  IsCancelled cancelled_ = nullptr;  ///< Null while there is no run to watch.
  const void* token_ = nullptr;
  bool asleep_ = false;  ///< Only a notification ends its wait.
  bool stopping_ = false;
  std::chrono::steady_clock::time_point last_end_ = {};
  // --- The thread that calls begin() ---
  std::thread thread_;
};

}  // namespace strata::chip
