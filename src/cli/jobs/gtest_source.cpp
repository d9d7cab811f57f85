// Jobs of a GoogleTest program, from what it lists:
//
//   Suite.
//     Case
//     Case/0  # GetParam() = 4
#include <fmt/format.h>

#include "cli/jobs/capture.hpp"
#include "cli/jobs/sources.hpp"
#include "os/spawn.hpp"
#include "strata/error.hpp"

namespace strata::cli::jobs {
namespace {

constexpr std::string_view kDisabled = "DISABLED_";

/// Whether a suite or a case is disabled: "DISABLED_X", "Instance/DISABLED_X".
bool is_disabled(std::string_view name) {
  const std::size_t slash = name.find('/');
  return name.starts_with(kDisabled) ||
         (slash != std::string_view::npos && name.substr(slash + 1).starts_with(kDisabled));
}

std::string_view without_comment(std::string_view line) {
  line = line.substr(0, line.find("  # "));
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r'))
    line.remove_suffix(1);
  return line;
}

Job job_of(const std::string& program, const std::string& filter, bool disabled, GtestBy by) {
  Job job;
  job.name = program.substr(program.rfind('/') + 1) + "." + filter;
  if (by == GtestBy::suite) job.name.resize(job.name.size() - 2);  // ".*"
  job.command = {program, "--gtest_filter=" + filter};
  job.disabled = disabled;
  // Of several cases one that was skipped says nothing of the others.
  if (by == GtestBy::test) job.expectation.skip = {"\\[  SKIPPED \\]"};
  return job;
}

}  // namespace

std::vector<Job> jobs_from_gtest(const std::string& program, std::string_view listing, GtestBy by) {
  std::vector<Job> jobs;
  std::string suite;
  bool suite_disabled = false;
  while (!listing.empty()) {
    const std::size_t end = listing.find('\n');
    const std::string_view line = without_comment(listing.substr(0, end));
    listing.remove_prefix(end == std::string_view::npos ? listing.size() : end + 1);
    if (line.empty()) continue;
    if (line.front() != ' ') {
      if (line.back() != '.') continue;  // What a main() of its own says.
      suite = line;
      suite_disabled = is_disabled(line);
      if (by == GtestBy::suite) jobs.push_back(job_of(program, suite + "*", suite_disabled, by));
    } else if (by == GtestBy::test && !suite.empty()) {
      const std::string_view name = line.substr(line.find_first_not_of(' '));
      jobs.push_back(
          job_of(program, suite + std::string(name), suite_disabled || is_disabled(name), by));
    }
  }
  return jobs;
}

std::vector<Job> gtest_jobs(const std::string& program, GtestBy by) {
  // A name without a slash is a file here, as it is for other sources, and not one in PATH.
  const std::string path = program.find('/') == std::string::npos ? "./" + program : program;
  const Captured captured =
      capture({.command = {path, "--gtest_list_tests"}, .environment = os::current_environment()});
  if (captured.exit_code != 0) {
    throw InvalidArgument(fmt::format("'{}' can't list its tests: exit code {}\n{}{}", program,
                                      captured.exit_code, captured.text, captured.rest));
  }
  return jobs_from_gtest(path, captured.text, by);
}

}  // namespace strata::cli::jobs
