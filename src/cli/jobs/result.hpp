// What came of jobs: of each attempt, of each job, of all.
//
// Thread safety: values.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/jobs/job.hpp"
#include "os/child_process.hpp"

namespace strata::cli::jobs {

enum class Outcome : std::uint8_t {
  passed,
  failed,
  hung,      ///< It had not ended at a time-out.
  skipped,   ///< It said itself that it can't be run here.
  disabled,  ///< It is not to be run.
  not_run,   ///< It was not started, though it should have been.
  ended,     ///< It was ended since all were to end.
};
[[nodiscard]] std::string_view name_of(Outcome outcome) noexcept;
/// Whether all is well although not every such job was run.
[[nodiscard]] bool is_good(Outcome outcome) noexcept;

/// How a job's processes ended, as its supervisor tells.
struct JobEnd {
  enum class Cause : std::uint8_t {
    itself,
    timeout,
    told,         ///< By us.
    signal,       ///< Somebody sent SIGTERM to its supervisor.
    not_started,  ///< `error` says why.
    lost,         ///< Its supervisor is gone: `error` says how.
  };
  Cause cause = Cause::itself;
  os::ExitStatus status;
  std::string error;  ///< What went wrong around it.
  double seconds = 0;
  double cpu_seconds = 0;
  long resident_kib = 0;  ///< The most that one of its processes had.
  pid_t pid = 0;
  std::vector<pid_t> descendants;  ///< At the time-out, without `pid`.
  std::string report;              ///< What they all did then.
  std::string report_json;
  std::vector<std::string> left;   ///< What it had left behind, which was ended.
  std::vector<std::string> stuck;  ///< What the kernel does not give back.
  std::string output;
};

struct Attempt {
  Outcome outcome = Outcome::not_run;
  std::string reason;  ///< "exit code 3"; empty where there is nothing to say.
  std::vector<int> devices;
  double started_at = 0;  ///< Seconds since the session began.
  JobEnd end;
};

struct JobResult {
  Outcome outcome = Outcome::not_run;
  std::string reason;
  std::vector<Attempt> attempts;  ///< None of a job that was not started.

  [[nodiscard]] double seconds() const;
  /// It passed, but not at once.
  [[nodiscard]] bool flaky() const { return outcome == Outcome::passed && attempts.size() > 1; }
};

struct SessionResult {
  std::vector<JobResult> jobs;  ///< One for each job, in their order.
  double seconds = 0;
  std::string began;          ///< "2026-11-30T22:29:37"
  std::optional<int> signal;  ///< That ended it.
  bool timed_out = false;     ///< Its own time-out ended it.

  [[nodiscard]] std::size_t count(Outcome outcome) const;
  /// 0, 1 with failures, 124 with hangs, 128 + n if signal n ended it.
  [[nodiscard]] int exit_code() const;
};

/// What the end of a job comes to. Throws InvalidArgument for a regular expression that is none.
[[nodiscard]] Attempt judge(const Expectation& expectation, JobEnd end);

}  // namespace strata::cli::jobs
