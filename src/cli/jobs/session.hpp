// Session: all jobs, from the first start to the last end.
//
//   Plan says what is next ── JobProcess runs it ── judge() ── again, or done
//
// Thread safety: one thread. Needs adopt_orphans().
//
// Invariants
//   (1) When run() returns, no job runs, and each job has a result.
//   (2) Once it is to stop (a signal, its time-out, the first failure), no job is started.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/jobs/console.hpp"
#include "cli/jobs/job.hpp"
#include "cli/jobs/job_process.hpp"
#include "cli/jobs/plan.hpp"
#include "cli/jobs/result.hpp"
#include "os/deadline.hpp"
#include "os/unique_fd.hpp"

namespace strata::cli::jobs {

struct SessionOptions {
  enum class AfterFailure : std::uint8_t { go_on, stop };
  enum class Outputs : std::uint8_t { of_not_good, all };
  unsigned slots = 1;
  std::optional<DevicePool> devices;
  double timeout = 0;    ///< Seconds, of jobs that say none.
  double grace = 0;      ///< Seconds between SIGTERM and SIGKILL.
  double patience = 60;  ///< Seconds that a supervisor may take beyond these.
  std::optional<double> session_timeout;
  unsigned retries = 0;
  AfterFailure after_failure = AfterFailure::go_on;
  Outputs kept = Outputs::of_not_good;  ///< In the result.
};

class Session {
 public:
  /// `signals` from signals_as_descriptor(). Refers to all but that.
  Session(const std::vector<Job>& jobs, const SessionOptions& options, Console& console,
          os::UniqueFd signals);
  [[nodiscard]] SessionResult run();

 private:
  struct Running {
    Plan::Start start;
    double started_at = 0;
    JobProcess process;
  };
  void settle_unreachable();
  void settle_what_waits();
  void start_what_can_be();
  void start(const Plan::Start& start);
  void wait();
  void take_signals();
  void take_ended();
  void check_deadlines();
  void ended(const Plan::Start& start, double started_at, JobEnd end);
  void finish(std::size_t job, Outcome outcome, std::string reason);
  void stop(Order order, std::string why);
  [[nodiscard]] std::vector<pid_t> others_than(const Running& one) const;
  [[nodiscard]] double now() const;

  const std::vector<Job>& jobs_;
  const SessionOptions& options_;
  Console& console_;
  os::UniqueFd signals_;
  Plan plan_;
  SessionResult result_;
  std::vector<Running> running_;
  std::string stopped_;  ///< Why no more jobs are started; empty while they are.
  const os::Deadline::Clock::time_point start_ = os::Deadline::Clock::now();
  os::Deadline deadline_;
};

}  // namespace strata::cli::jobs
