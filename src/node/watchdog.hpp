// Watchdog: writes a report of a Worker's tree when its runs hang, miss a deadline, or somebody
// sends SIGQUIT; see WatchdogOptions.
//
// A thread of its own makes the reports, since whatever else the process has may be what hangs. It
// is started by the first run, sleeps while no run is open, and looks four times in the time that
// counts as a hang. Without the options there is no thread, and a run costs a branch.
//
// The threads of this very process can't be looked at by it: of those the report has what /proc and
// the runtime say. `strata dump PID`, from outside, has their stacks too.
//
// Thread safety: run_opened() from any thread.
//
// Invariants
//   (1) A hang is told of once: not again before something has moved.
//   (2) While it reports it holds no lock that others need.
#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "os/event_fd.hpp"
#include "strata/worker.hpp"

namespace strata::node {

class LogSink;

class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;
  /// What it needs of the Worker. Called on its thread.
  struct Hooks {
    std::string path;  ///< Of the Worker.
    LogSink* log = nullptr;
    std::function<EngineStats()> stats;
    std::function<void()> cancel_runs;
  };

  /// Throws InvalidState if SIGQUIT is another Watchdog's already.
  Watchdog(WatchdogOptions options, Hooks hooks);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// A run is open from now on.
  void run_opened(const Run& run, Clock::time_point deadline) {
    if (watches_) watch(run, deadline);
  }

 private:
  struct Watched {
    Run run;
    Clock::time_point deadline;
  };

  void watch(const Run& run, Clock::time_point deadline);
  void take_sigquit();
  void main();
  [[nodiscard]] int sleep_ms();
  void look();
  [[nodiscard]] std::optional<std::string> missed_deadline();
  [[nodiscard]] bool is_hung();
  [[nodiscard]] std::map<pid_t, std::string> progress_below() const;
  void report(const std::string& why);

  const WatchdogOptions options_;
  const Hooks hooks_;
  const bool watches_;
  os::EventFd wake_ = os::EventFd::make();
  std::atomic<bool> asked_{false};          ///< By SIGQUIT. Set by its handler, relaxed: a flag.
  std::atomic<bool> stopping_{false};       ///< Release before the wake, acquire after it.
  std::optional<struct sigaction> before_;  ///< What SIGQUIT did before.

  std::mutex mutex_;
  // --- Guarded by mutex_ ---
  std::vector<Watched> runs_;

  // --- The thread's own ---
  std::pair<std::uint64_t, std::uint64_t> seen_{};  ///< Tasks so far, and those in flight.
  std::map<pid_t, std::string> seen_below_;
  Clock::time_point since_{};  ///< Since when nothing has changed.
  bool told_ = false;          ///< Of this hang.

  std::once_flag started_;
  std::thread thread_;
};

}  // namespace strata::node
