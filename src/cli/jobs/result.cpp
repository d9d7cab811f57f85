#include "cli/jobs/result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "cli/jobs/pattern.hpp"

namespace strata::cli::jobs {
namespace {

constexpr int kHangExit = 124;

/// The first of them that is found; nothing if none is.
const std::string* found_in(const std::vector<std::string>& patterns, const std::string& text) {
  for (const std::string& pattern : patterns) {
    if (Pattern(pattern).matches(text)) return &pattern;
  }
  return nullptr;
}

struct Verdict {
  Outcome outcome;
  std::string reason;
};

/// Of one that ended by itself.
Verdict verdict_of(const Expectation& expectation, const JobEnd& end) {
  const bool exited = end.status.kind == os::ExitStatus::Kind::exited;
  if (exited && expectation.skip_code == end.status.value) {
    return {Outcome::skipped, fmt::format("exit code {}", end.status.value)};
  }
  if (const std::string* const pattern = found_in(expectation.skip, end.output)) {
    return {Outcome::skipped, fmt::format("its output has '{}'", *pattern)};
  }
  // A crash is never what was expected.
  if (!exited) return {Outcome::failed, end.status.to_string()};
  bool good = end.status.clean();
  std::string reason = fmt::format("exit code {}", end.status.value);
  if (!expectation.pass.empty()) {
    good = found_in(expectation.pass, end.output) != nullptr;
    reason = "its output has none of what makes it pass";
  }
  if (const std::string* const pattern = found_in(expectation.fail, end.output); good && pattern) {
    good = false;
    reason = fmt::format("its output has '{}'", *pattern);
  }
  if (expectation.will_fail) {
    if (!good) return {Outcome::passed, "failed as expected: " + reason};
    return {Outcome::failed, "it passed, though it should fail"};
  }
  return good ? Verdict{Outcome::passed, ""} : Verdict{Outcome::failed, reason};
}

}  // namespace

std::string_view name_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::passed:
      return "passed";
    case Outcome::failed:
      return "failed";
    case Outcome::hung:
      return "hung";
    case Outcome::skipped:
      return "skipped";
    case Outcome::disabled:
      return "disabled";
    case Outcome::not_run:
      return "not run";
    case Outcome::ended:
      return "ended";
  }
  return "?";
}

bool is_good(Outcome outcome) noexcept {
  return outcome == Outcome::passed || outcome == Outcome::skipped || outcome == Outcome::disabled;
}

double JobResult::seconds() const {
  return std::accumulate(
      attempts.begin(), attempts.end(), 0.0,
      [](double sum, const Attempt& attempt) { return sum + attempt.end.seconds; });
}

std::size_t SessionResult::count(Outcome outcome) const {
  return static_cast<std::size_t>(std::ranges::count(jobs, outcome, &JobResult::outcome));
}

int SessionResult::exit_code() const {
  if (signal) return 128 + *signal;
  if (timed_out || count(Outcome::hung) > 0) return kHangExit;
  return std::ranges::all_of(jobs, is_good, &JobResult::outcome) ? 0 : 1;
}

Attempt judge(const Expectation& expectation, JobEnd end) {
  Attempt attempt;
  switch (end.cause) {
    case JobEnd::Cause::itself: {
      Verdict verdict = verdict_of(expectation, end);
      attempt.outcome = verdict.outcome;
      attempt.reason = std::move(verdict.reason);
      break;
    }
    case JobEnd::Cause::timeout:
      attempt.outcome = Outcome::hung;
      attempt.reason = fmt::format("it had not ended after {:.1f} s", end.seconds);
      break;
    case JobEnd::Cause::told:
      attempt.outcome = Outcome::ended;
      break;
    case JobEnd::Cause::signal:
      attempt.outcome = Outcome::failed;
      attempt.reason = "its supervisor was told to end it, by SIGTERM";
      break;
    case JobEnd::Cause::not_started:
    case JobEnd::Cause::lost:
      attempt.outcome = Outcome::failed;
      attempt.reason = end.error;
      break;
  }
  const bool told = end.cause == JobEnd::Cause::not_started || end.cause == JobEnd::Cause::lost;
  if (!told && !end.error.empty()) {
    attempt.reason += (attempt.reason.empty() ? "" : "; ") + end.error;
  }
  attempt.end = std::move(end);
  return attempt;
}

}  // namespace strata::cli::jobs
