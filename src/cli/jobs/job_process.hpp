// JobProcess: a job that runs, seen from `strata test`: its supervisor (supervisor.hpp), and the
// files that it writes.
//
// Thread safety: one thread.
//
// Invariants
//   (1) Once taken() has given the end, nothing of the job runs, but for what `stuck` names.
//   (2) All that the job wrote is in the end's output.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "cli/jobs/supervisor.hpp"
#include "os/child_process.hpp"
#include "os/deadline.hpp"
#include "os/unique_fd.hpp"

namespace strata::cli::jobs {

class JobProcess {
 public:
  /// Starts it. Its supervisor is overdue `patience` seconds after time-out and grace: that is for
  /// the report, for processes that take long to end, and for a machine that is busy. Throws
  /// SystemError.
  JobProcess(const JobRequest& request, double patience);

  /// Readable once it has ended.
  [[nodiscard]] int pidfd() const noexcept { return supervisor_.pidfd(); }
  [[nodiscard]] pid_t pid() const noexcept { return supervisor_.pid(); }
  /// By when a supervisor that is well has ended its job.
  [[nodiscard]] os::Deadline overdue_at() const noexcept { return overdue_at_; }

  /// It has its grace, and then time for the rest, until it is overdue.
  void tell(Order order);
  /// Once the job's time is over: lets a supervisor go on that its job has stopped. To be called
  /// now and then.
  void let_go_on() const;
  /// How the job ended, once it has. `others` are the supervisors that run, of whose jobs none is
  /// touched when something of this one is left.
  [[nodiscard]] std::optional<JobEnd> taken(const std::vector<pid_t>& others);
  /// For a supervisor that is overdue, stopped by its job perhaps: reports from here, and ends it
  /// and its job.
  [[nodiscard]] JobEnd end_by_force(const std::vector<pid_t>& others);

 private:
  [[nodiscard]] os::Deadline overdue_after(double seconds) const;
  [[nodiscard]] JobEnd lost(std::string why, const std::vector<pid_t>& others) const;

  os::ChildProcess supervisor_;
  os::UniqueFd orders_;
  os::UniqueFd result_;
  os::UniqueFd output_;
  double grace_;
  double patience_;
  os::Deadline due_at_;
  os::Deadline overdue_at_;
  os::Deadline::Clock::time_point start_ = os::Deadline::Clock::now();
};

}  // namespace strata::cli::jobs
