// Jobs of pytest: a plugin of ours, handed to pytest from memory, tells which tests there are and
// how many devices each wants (the marker `devices(n)`, which it makes known, too). It also gives a
// run in which all tests were skipped an exit code of its own.
//
// Thread safety: as capture(). The jobs can be run for as long as the object lives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/jobs/job.hpp"
#include "diag/python_hook.hpp"

namespace strata::cli::jobs {

enum class PytestBy : std::uint8_t { file, test };

struct PytestOptions {
  std::vector<std::string> paths;  ///< What pytest is given: files, folders, node ids.
  std::string python = "python3";
  PytestBy by = PytestBy::file;
};

class PytestSource {
 public:
  explicit PytestSource(PytestOptions options);
  [[nodiscard]] std::vector<Job> jobs() const;
  /// From what the plugin tells: a JSON object a line.
  [[nodiscard]] std::vector<Job> jobs_from(const std::string& listing) const;

 private:
  [[nodiscard]] std::vector<std::string> command() const;

  PytestOptions options_;
  diag::PythonHook plugin_;
};

}  // namespace strata::cli::jobs
