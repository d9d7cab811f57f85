#include "cli/jobs/pytest_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "cli/jobs/capture.hpp"
#include "os/spawn.hpp"
#include "strata/error.hpp"

namespace strata::cli::jobs {
namespace {

using nlohmann::json;

constexpr int kListFd = 3;  ///< Where the plugin writes to; pytest captures the others.
constexpr int kAllSkipped = 77;
constexpr int kNoTests = 5;  ///< pytest's own exit code.

constexpr char kPluginName[] = "strata_test_plugin";
constexpr char kPlugin[] = R"py(# What `strata test` adds to pytest.
import json
import os

LIST = os.environ.pop("STRATA_TEST_LIST", None)
outcomes = set()


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "devices(n): needs n devices, whose ids are in STRATA_DEVICES (strata test)"
    )


def wanted(item):
    marker = item.get_closest_marker("devices")
    if marker is None:
        return None
    return marker.args[0] if marker.args else marker.kwargs["n"]


def pytest_collection_finish(session):
    if LIST is None:
        return
    with os.fdopen(int(LIST), "w", encoding="utf-8") as to:
        for item in session.items:
            path = str(getattr(item, "path", None) or item.fspath)
            to.write(json.dumps({"id": item.nodeid, "path": path, "devices": wanted(item)}) + "\n")


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        outcomes.add("passed" if hasattr(report, "wasxfail") else report.outcome)


def pytest_sessionfinish(session, exitstatus):
    if LIST is None and exitstatus == 0 and outcomes == {"skipped"}:
        session.exitstatus = 77
)py";

}  // namespace

PytestSource::PytestSource(PytestOptions options)
    : options_(std::move(options)), plugin_(std::string(kPluginName) + ".py", kPlugin) {}

std::vector<std::string> PytestSource::command() const {
  return {options_.python, "-m", "pytest", "-p", kPluginName};
}

std::vector<Job> PytestSource::jobs() const {
  std::vector<std::string> words = command();
  words.insert(words.end(), {"--collect-only", "-q"});
  words.insert(words.end(), options_.paths.begin(), options_.paths.end());
  std::vector<std::string> environment = os::current_environment();
  plugin_.add_to(environment);
  environment.push_back(fmt::format("STRATA_TEST_LIST={}", kListFd));
  const Captured captured = capture({.command = words, .environment = environment, .fd = kListFd});
  if (captured.exit_code != 0 && captured.exit_code != kNoTests) {
    throw InvalidArgument(
        fmt::format("pytest can't list its tests: '{} -m pytest' ended with exit code {}\n{}",
                    options_.python, captured.exit_code, captured.rest));
  }
  return jobs_from(captured.text);
}

std::vector<Job> PytestSource::jobs_from(const std::string& listing) const {
  std::vector<Job> jobs;
  std::map<std::string, std::size_t> by_name;
  std::istringstream lines(listing);
  std::string line;
  while (std::getline(lines, line)) {
    const json test = json::parse(line);
    const std::string id = test.at("id");
    const std::size_t colons = id.find("::");
    const bool by_file = options_.by == PytestBy::file;
    const std::string name = by_file ? id.substr(0, colons) : id;
    const auto [place, is_new] = by_name.emplace(name, jobs.size());
    if (is_new) {
      Job job;
      job.name = name;
      job.command = command();
      // The id is relative to pytest's root, and we may be elsewhere.
      job.command.push_back(test.at("path").get<std::string>() +
                            (by_file || colons == std::string::npos ? "" : id.substr(colons)));
      job.environment = {{"PYTHONPATH", "path_list_prepend", plugin_.path()}};
      job.expectation.skip_code = kAllSkipped;
      jobs.push_back(std::move(job));
    }
    // A file wants as many as the test in it that wants the most.
    std::optional<unsigned>& devices = jobs[place->second].devices;
    if (!test.at("devices").is_null())
      devices = std::max(devices.value_or(0), test.at("devices").get<unsigned>());
  }
  return jobs;
}

}  // namespace strata::cli::jobs
