// What the tests of `strata exec` and `strata dump` share: running the stuck program under either,
// and reading the report.
#pragma once

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "os/procfs.hpp"
#include "strata_command.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {

inline std::string diag_program(const std::string& name) {
  return std::string(STRATA_TEST_PROGRAMS) + "/" + name;
}

/// `strata exec` of a command, with its report as JSON; null if there was none.
struct Executed {
  Program::Result result;
  nlohmann::json report;
  std::vector<int> pids;  ///< Of the report.
};
inline Executed execute(std::vector<std::string> options, const std::vector<std::string>& command,
                        const Program::Options& how = {}) {
  const TempDir folder;
  const std::string path = folder.path() / "report.json";
  std::vector<std::string> words = {"exec", "--report", path, "--json"};
  words.insert(words.end(), options.begin(), options.end());
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  Executed executed{strata_command(words, how), nullptr, {}};
  std::ifstream file(path);
  if (!file) return executed;
  std::stringstream text;
  text << file.rdbuf();
  executed.report = nlohmann::json::parse(text.str());
  for (const auto& process : executed.report.at("processes"))
    executed.pids.push_back(process.at("pid"));
  return executed;
}

/// `strata dump` of a process, as JSON; null, and a failure of the test, if there was none.
inline nlohmann::json dump_of(pid_t pid, std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"dump", std::to_string(pid), "--json"});
  const Program::Result result = strata_command(options);
  EXPECT_EQ(result.code(), 0) << result.err;
  return result.code() == 0 ? nlohmann::json::parse(result.out) : nlohmann::json();
}

/// The process of a report at a path of its Strata tree; null if there is none.
inline nlohmann::json at_path(const nlohmann::json& report, const std::string& path) {
  for (const auto& process : report.at("processes")) {
    if (process.at("strata").is_object() && process.at("strata").at("path") == path) return process;
  }
  return nullptr;
}

/// The stuck program, with its steps, and the variant of it that is meant.
inline std::vector<std::string> stuck(std::vector<std::string> steps,
                                      const std::string& variant = "stuck_program") {
  steps.insert(steps.begin(), diag_program(variant));
  return steps;
}

/// Names of the functions on the stacks of a process.
inline std::vector<std::string> functions_of(const nlohmann::json& process) {
  std::vector<std::string> names;
  for (const auto& thread : process.at("threads")) {
    for (const auto& frame : thread.at("frames"))
      names.push_back(frame.at("function"));
  }
  return names;
}

/// Of all processes of a report.
inline std::vector<std::string> all_functions(const nlohmann::json& report) {
  std::vector<std::string> names;
  for (const auto& process : report.at("processes")) {
    for (const std::string& name : functions_of(process))
      names.push_back(name);
  }
  return names;
}

inline std::string verdict_of(const nlohmann::json& report) {
  std::string text;
  for (const auto& line : report.at("verdict"))
    text += line.get<std::string>() + "\n";
  return text;
}

inline bool is_gone(int pid) {
  const auto info = os::read_process(pid);
  return !info || info->state == 'Z' || info->state == 'X';
}

}  // namespace strata::test
