// Jobs from a file: a JSON array of jobs, an object {"jobs": [...]}, or a job a line.
#include <fmt/format.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/jobs/file_text.hpp"
#include "cli/jobs/sources.hpp"
#include "strata/error.hpp"

namespace strata::cli::jobs {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

Words words_of(const json& value) {
  return value.is_array() ? value.get<Words>() : Words{value.get<std::string>()};
}

void set_command(Job& job, const json& value) {
  job.command = value.is_array() ? value.get<Words>() : Words{"sh", "-c", value.get<std::string>()};
  if (!job.name.empty()) return;
  for (const std::string& word : words_of(value))
    job.name += (job.name.empty() ? "" : " ") + word;
}

void set_environment(Job& job, const json& value) {
  for (const auto& [name, entry] : value.items()) {
    if (entry.is_null()) {
      job.environment.push_back({name, "unset", ""});
    } else {
      job.environment.push_back({name, "set", entry.get<std::string>()});
    }
  }
}

const std::map<std::string, std::function<void(Job&, const json&)>>& fields() {
  static const std::map<std::string, std::function<void(Job&, const json&)>> all_fields = {
      {"after", [](Job& job, const json& v) { job.after = words_of(v); }},
      {"alone", [](Job& job, const json& v) { job.alone = v; }},
      {"command", set_command},
      {"devices", [](Job& job, const json& v) { job.devices = v; }},
      {"directory", [](Job& job, const json& v) { job.directory = v; }},
      {"disabled", [](Job& job, const json& v) { job.disabled = v; }},
      {"environment", set_environment},
      {"fail_if", [](Job& job, const json& v) { job.expectation.fail = words_of(v); }},
      {"labels", [](Job& job, const json& v) { job.labels = words_of(v); }},
      {"locks", [](Job& job, const json& v) { job.locks = words_of(v); }},
      {"name", [](Job& job, const json& v) { job.name = v; }},
      {"pass_if", [](Job& job, const json& v) { job.expectation.pass = words_of(v); }},
      {"skip_code", [](Job& job, const json& v) { job.expectation.skip_code = v; }},
      {"skip_if", [](Job& job, const json& v) { job.expectation.skip = words_of(v); }},
      {"slots", [](Job& job, const json& v) { job.slots = v; }},
      {"timeout", [](Job& job, const json& v) { job.timeout = v; }},
      {"will_fail", [](Job& job, const json& v) { job.expectation.will_fail = v; }},
  };
  return all_fields;
}

Job job_of(const json& value) {
  Job job;
  if (value.is_string()) {
    set_command(job, value);
    return job;
  }
  if (!value.is_object() || !value.contains("command")) {
    throw InvalidArgument("a job is a command as text, or an object with a 'command'; this is " +
                          value.dump());
  }
  if (value.contains("name")) job.name = value.at("name");
  for (const auto& [name, field] : value.items()) {
    const auto known = fields().find(name);
    if (known == fields().end()) {
      std::string all;
      for (const auto& [other, set] : fields())
        all += (all.empty() ? "" : ", ") + other;
      throw InvalidArgument(fmt::format("job '{}': there is no field '{}'; there are: {}",
                                        value.value("name", value.at("command").dump()), name,
                                        all));
    }
    known->second(job, field);
  }
  if (job.command.empty()) throw InvalidArgument("a job's command has no words: " + value.dump());
  return job;
}

std::vector<json> values_by_line(const std::string& text) {
  std::vector<json> values;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    json value = json::parse(line, nullptr, false);
    if (value.is_discarded()) {
      if (line[begin] == '{' || line[begin] == '"' || line[begin] == '[') {
        throw InvalidArgument(fmt::format("line {} is no JSON: {}", number, line));
      }
      value = line.substr(begin);  // A command as it is.
    }
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace

std::vector<Job> jobs_from_file_text(const std::string& text) {
  try {
    json whole = json::parse(text, nullptr, false);
    if (whole.is_object() && whole.contains("jobs")) whole = json(whole.at("jobs"));
    const std::vector<json> values =
        whole.is_array() ? whole.get<std::vector<json>>() : values_by_line(text);
    std::vector<Job> jobs;
    jobs.reserve(values.size());
    for (const json& value : values)
      jobs.push_back(job_of(value));
    return jobs;
  } catch (const json::exception& error) {
    throw InvalidArgument(fmt::format("a job has a value of a wrong type: {}", error.what()));
  }
}

std::vector<Job> file_jobs(const std::string& path) {
  const std::string text = read_file(path);
  try {
    return jobs_from_file_text(text);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("jobs in '{}': {}", path, error.what()));
  }
}

}  // namespace strata::cli::jobs
