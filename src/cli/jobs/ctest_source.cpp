// Jobs of ctest, from its JSON listing, version 1. What a test's properties mean is what CMake's
// manual says, as far as it is about one test and not about dashboards.
#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/jobs/capture.hpp"
#include "cli/jobs/sources.hpp"
#include "os/spawn.hpp"
#include "strata/error.hpp"

namespace strata::cli::jobs {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr std::string_view kDevicesLabel = "devices=";
constexpr const char* kDevicesResource = "devices";

Words words_of(const json& value) {
  return value.is_array() ? value.get<Words>() : Words{value.get<std::string>()};
}

/// Sets devices of each group, as far as there are any.
void set_groups(Job& job, const json& groups) {
  unsigned all = 0;
  for (const json& group : groups) {
    unsigned devices = 0;
    for (const json& requirement : group.at("requirements")) {
      if (requirement.at(".type") == kDevicesResource)
        devices += requirement.at("slots").get<unsigned>();
    }
    job.device_groups.push_back(devices);
    all += devices;
  }
  job.devices = all;
}

void set_labels(Job& job, const json& value) {
  job.labels = words_of(value);
  for (const std::string_view label : job.labels) {
    if (!label.starts_with(kDevicesLabel)) continue;
    const std::string_view number = label.substr(kDevicesLabel.size());
    unsigned devices = 0;
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), devices);
    if (error != std::errc() || end != number.data() + number.size()) {
      throw InvalidArgument(
          fmt::format("test '{}': its label '{}' names no number of devices", job.name, label));
    }
    job.devices = devices;
  }
}

/// "NAME=value"
void set_variables(Job& job, const json& value) {
  for (const std::string& entry : words_of(value)) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    job.environment.push_back({entry.substr(0, equals), "set", entry.substr(equals + 1)});
  }
}

/// "NAME=operation:value"
void change_variables(Job& job, const json& value) {
  for (const std::string& entry : words_of(value)) {
    const std::size_t equals = entry.find('=');
    const std::size_t colon = entry.find(':', equals);
    if (colon == std::string::npos) continue;
    job.environment.push_back({entry.substr(0, equals),
                               entry.substr(equals + 1, colon - equals - 1),
                               entry.substr(colon + 1)});
  }
}

/// What each property does. Those that are not here say nothing of how a test is run.
const std::map<std::string, std::function<void(Job&, const json&)>>& properties() {
  static const std::map<std::string, std::function<void(Job&, const json&)>> all_properties = {
      {"COST", [](Job& job, const json& v) { job.cost = v; }},
      {"DEPENDS", [](Job& job, const json& v) { job.after = words_of(v); }},
      {"DISABLED", [](Job& job, const json& v) { job.disabled = v; }},
      {"ENVIRONMENT", set_variables},
      {"FAIL_REGULAR_EXPRESSION",
       [](Job& job, const json& v) { job.expectation.fail = words_of(v); }},
      {"FIXTURES_CLEANUP", [](Job& job, const json& v) { job.fixtures_cleaned_up = words_of(v); }},
      {"FIXTURES_REQUIRED", [](Job& job, const json& v) { job.fixtures_required = words_of(v); }},
      {"FIXTURES_SETUP", [](Job& job, const json& v) { job.fixtures_set_up = words_of(v); }},
      {"LABELS", set_labels},
      {"PASS_REGULAR_EXPRESSION",
       [](Job& job, const json& v) { job.expectation.pass = words_of(v); }},
      {"PROCESSORS", [](Job& job, const json& v) { job.slots = v; }},
      {"REQUIRED_FILES", [](Job& job, const json& v) { job.required_files = words_of(v); }},
      {"RESOURCE_GROUPS", set_groups},
      {"RESOURCE_LOCK", [](Job& job, const json& v) { job.locks = words_of(v); }},
      {"RUN_SERIAL", [](Job& job, const json& v) { job.alone = v; }},
      {"SKIP_REGULAR_EXPRESSION",
       [](Job& job, const json& v) { job.expectation.skip = words_of(v); }},
      {"SKIP_RETURN_CODE", [](Job& job, const json& v) { job.expectation.skip_code = v; }},
      {"TIMEOUT", [](Job& job, const json& v) { job.timeout = v; }},
      {"WILL_FAIL", [](Job& job, const json& v) { job.expectation.will_fail = v; }},
      {"WORKING_DIRECTORY", [](Job& job, const json& v) { job.directory = v; }},
  };
  return all_properties;
}

Job job_of(const json& test) {
  Job job;
  job.name = test.at("name");
  if (test.contains("command")) job.command = test.at("command").get<Words>();
  const json list = test.value("properties", json::array());
  for (const json& property : list) {
    const auto known = properties().find(property.at("name").get<std::string>());
    if (known != properties().end()) known->second(job, property.at("value"));
  }
  // They come after what ENVIRONMENT sets, wherever they are listed.
  for (const json& property : list) {
    if (property.at("name") == "ENVIRONMENT_MODIFICATION")
      change_variables(job, property.at("value"));
  }
  return job;
}

}  // namespace

std::vector<Job> jobs_from_ctest(const std::string& listing) {
  try {
    const json object = json::parse(listing);
    const json& tests = object.at("tests");
    std::vector<Job> jobs;
    jobs.reserve(tests.size());
    for (const json& test : tests)
      jobs.push_back(job_of(test));
    return jobs;
  } catch (const json::exception& error) {
    throw InvalidArgument(fmt::format("this is no listing of tests by ctest: {}", error.what()));
  }
}

std::vector<Job> ctest_jobs(const std::string& directory) {
  const Captured captured =
      capture({.command = {"ctest", "--show-only=json-v1", "--test-dir", directory},
               .environment = os::current_environment()});
  if (captured.exit_code != 0) {
    throw InvalidArgument(fmt::format("ctest can't list the tests of '{}': exit code {}\n{}",
                                      directory, captured.exit_code, captured.rest));
  }
  return jobs_from_ctest(captured.text);
}

}  // namespace strata::cli::jobs
