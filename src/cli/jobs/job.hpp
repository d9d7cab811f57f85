// Job: one test command, with what it needs and what counts as success. Whatever a source of jobs
// says (ctest, GoogleTest, pytest, a file) comes down to this.
//
// Thread safety: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata::cli::jobs {

/// What of its end and its output makes a job pass. The regular expressions are searched for in all
/// that it wrote.
struct Expectation {
  std::vector<std::string> pass =
      {};  ///< If there are any, one of them decides, not the exit code.
  std::vector<std::string> fail = {};
  std::vector<std::string> skip = {};
  std::optional<int> skip_code = {};
  bool will_fail = false;  ///< A failure that is no crash passes, and a success fails.
};

/// As ctest has them in ENVIRONMENT_MODIFICATION; `operation` "set" sets.
struct EnvironmentChange {
  std::string name;
  std::string operation;
  std::string value;
};

struct Job {
  std::string name;
  std::vector<std::string> command;  ///< "{devices}" in it becomes the ids: "0,3".
  std::string directory;             ///< Empty: ours.
  std::vector<EnvironmentChange> environment;
  std::vector<std::string> labels;
  std::optional<unsigned> devices;      ///< Absent: it says nothing.
  std::vector<unsigned> device_groups;  ///< ctest's RESOURCE_GROUPS: devices of each.
  std::optional<double> timeout;        ///< Seconds; absent: the usual one.
  double cost = 0;                      ///< The higher, the earlier.
  unsigned slots = 1;                   ///< Of --jobs.
  bool alone = false;                   ///< Nothing else runs meanwhile.
  bool disabled = false;
  std::vector<std::string> locks;  ///< No two jobs that name the same one run at the same time.
  std::vector<std::string> after;  ///< Names of jobs that must have ended, if they are run at all.
  std::vector<std::string> fixtures_required;
  std::vector<std::string> fixtures_set_up;
  std::vector<std::string> fixtures_cleaned_up;
  std::vector<std::string> required_files;
  Expectation expectation;
};

/// The environment of a job: `base` with its changes.
[[nodiscard]] std::vector<std::string> environment_of(const Job& job,
                                                      std::vector<std::string> base);

/// Gives jobs of one name a number each, since results go by names.
void make_names_unique(std::vector<Job>& jobs);

}  // namespace strata::cli::jobs
