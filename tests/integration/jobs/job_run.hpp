// `strata test` of jobs in a file, with its results as JSON.
#pragma once

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "diag_run.hpp"
#include "strata_command.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {

/// "{stuck}" stands for the stuck program.
class JobFolder {
 public:
  explicit JobFolder(const std::vector<nlohmann::json>& jobs = {}) {
    std::ofstream file(jobs_path());
    for (const nlohmann::json& job : jobs)
      file << with_program(job.dump()) << "\n";
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path() / name; }
  [[nodiscard]] std::string jobs_path() const { return path("jobs"); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(path(name)).rdbuf();
    return text.str();
  }
  /// `strata test` with these options and the jobs of the file.
  [[nodiscard]] std::vector<std::string> command(const std::vector<std::string>& options) const {
    std::vector<std::string> words = {"test",    "--file",      jobs_path(), "--json", path("json"),
                                      "--junit", path("junit"), "--grace",   "0.3"};
    words.insert(words.end(), options.begin(), options.end());
    return strata_with(words);
  }

 private:
  static std::string with_program(std::string text) {
    const std::string place = "{stuck}";
    for (std::size_t at = 0; (at = text.find(place)) != std::string::npos;)
      text.replace(at, place.size(), diag_program("stuck_program"));
    return text;
  }
  TempDir folder_;
};

/// What came of it: of each job by its name.
struct Tested {
  Program::Result result;
  nlohmann::json json;
  std::string junit;

  [[nodiscard]] const nlohmann::json& job(const std::string& name) const {
    for (const auto& of : json.at("jobs")) {
      if (of.at("name") == name) return of;
    }
    ADD_FAILURE() << "there is no job '" << name << "' in " << json.dump(2);
    return json;
  }
  [[nodiscard]] const nlohmann::json& attempt(const std::string& name) const {
    return job(name).at("attempts").back();
  }
  [[nodiscard]] std::string outcome(const std::string& name) const {
    return job(name).at("outcome");
  }
};

inline Tested results_in(const JobFolder& folder, Program::Result result) {
  Tested tested{std::move(result), nullptr, folder.read("junit")};
  const std::string json = folder.read("json");
  if (!json.empty()) tested.json = nlohmann::json::parse(json);
  return tested;
}

inline Tested run_jobs(const std::vector<nlohmann::json>& jobs,
                       const std::vector<std::string>& options = {},
                       const Program::Options& how = {}) {
  const JobFolder folder(jobs);
  return results_in(folder, Program(folder.command(options), how).finish());
}

inline nlohmann::json job(const std::string& name, const std::string& command) {
  return {{"name", name}, {"command", command}};
}

}  // namespace strata::test
