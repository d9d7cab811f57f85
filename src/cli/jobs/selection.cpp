#include "cli/jobs/selection.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/jobs/file_text.hpp"
#include "cli/jobs/pattern.hpp"
#include "diag/report_text.hpp"
#include "strata/error.hpp"

namespace strata::cli::jobs {
namespace {

/// More than any time in seconds.
constexpr double kCostOfFailure = 1e9;

/// The jobs that are chosen, and all that these need, and what cleans up after that.
std::vector<Job> with_fixtures(const std::vector<Job>& jobs, std::vector<bool> chosen) {
  const auto overlap = [](const std::vector<std::string>& words,
                          const std::set<std::string>& with) {
    return std::ranges::any_of(words, [&](const std::string& word) { return with.contains(word); });
  };
  std::set<std::string> required;
  for (bool more = true; more;) {
    more = false;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (chosen[i]) {
        for (const std::string& fixture : jobs[i].fixtures_required)
          more = required.insert(fixture).second || more;
      } else if (overlap(jobs[i].fixtures_set_up, required) ||
                 overlap(jobs[i].fixtures_cleaned_up, required)) {
        chosen[i] = more = true;
      }
    }
  }
  std::vector<Job> selected;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (chosen[i]) selected.push_back(jobs[i]);
  }
  return selected;
}

}  // namespace

std::vector<Job> select(const std::vector<Job>& jobs, const Filters& filters) {
  const auto pattern = [](const std::string& text) {
    return text.empty() ? std::nullopt : std::optional<Pattern>(text);
  };
  const auto names = pattern(filters.names);
  const auto without_names = pattern(filters.without_names);
  const auto labels = pattern(filters.labels);
  const auto without_labels = pattern(filters.without_labels);
  const auto any_label = [](const Job& job, const Pattern& of) {
    return std::ranges::any_of(job.labels, [&](const auto& label) { return of.matches(label); });
  };
  std::vector<bool> chosen;
  chosen.reserve(jobs.size());
  for (const Job& job : jobs) {
    chosen.push_back((!names || names->matches(job.name)) &&
                     !(without_names && without_names->matches(job.name)) &&
                     (!labels || any_label(job, *labels)) &&
                     !(without_labels && any_label(job, *without_labels)));
  }
  return with_fixtures(jobs, std::move(chosen));
}

std::vector<Job> select_named(const std::vector<Job>& jobs, const std::set<std::string>& names) {
  std::vector<bool> chosen;
  chosen.reserve(jobs.size());
  for (const Job& job : jobs)
    chosen.push_back(names.contains(job.name));
  return with_fixtures(jobs, std::move(chosen));
}

std::optional<Memory> Memory::read(const std::string& path) {
  try {
    const nlohmann::json json = nlohmann::json::parse(read_file(path));
    return Memory{.failed = json.at("failed"), .seconds = json.at("seconds")};
  } catch (const SystemError&) {
    return std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

void Memory::write(const std::string& path) const {
  write_file(path, diag::dump({{"failed", failed}, {"seconds", seconds}}));
}

void Memory::add(const std::vector<Job>& jobs, const SessionResult& result) {
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const JobResult& of = result.jobs[i];
    if (is_good(of.outcome)) {
      failed.erase(jobs[i].name);
    } else {
      failed.insert(jobs[i].name);
    }
    if (!of.attempts.empty()) seconds[jobs[i].name] = of.attempts.back().end.seconds;
  }
}

void set_costs(std::vector<Job>& jobs, const Memory& memory) {
  for (Job& job : jobs) {
    if (memory.failed.contains(job.name)) {
      job.cost = kCostOfFailure;
    } else if (const auto took = memory.seconds.find(job.name);
               job.cost == 0 && took != memory.seconds.end()) {
      job.cost = took->second;
    }
  }
}

}  // namespace strata::cli::jobs
