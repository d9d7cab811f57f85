// Which of the jobs are run: filters as ctest has them, and what is known of the last time.
//
// Thread safety: values.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/jobs/job.hpp"
#include "cli/jobs/result.hpp"

namespace strata::cli::jobs {

/// Regular expressions; one that is empty selects all and excludes none.
struct Filters {
  std::string names = {};
  std::string without_names = {};
  std::string labels = {};  ///< Of at least one label.
  std::string without_labels = {};
};

/// The jobs that are to be run, in their order, and those that set up or clean up what they need.
[[nodiscard]] std::vector<Job> select(const std::vector<Job>& jobs, const Filters& filters);
/// The same by name.
[[nodiscard]] std::vector<Job> select_named(const std::vector<Job>& jobs,
                                            const std::set<std::string>& names);

/// What is remembered from one session to the next, in a file.
struct Memory {
  std::set<std::string> failed;           ///< The jobs that were not good when last run.
  std::map<std::string, double> seconds;  ///< How long each took.

  /// Nothing if there is no such file, or it is none of ours.
  [[nodiscard]] static std::optional<Memory> read(const std::string& path);
  void write(const std::string& path) const;
  void add(const std::vector<Job>& jobs, const SessionResult& result);
};

/// Jobs that took long come first, and before them those that failed.
void set_costs(std::vector<Job>& jobs, const Memory& memory);

}  // namespace strata::cli::jobs
