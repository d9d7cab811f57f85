#include "cli/jobs/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "strata/error.hpp"

namespace strata::cli::jobs {
namespace {

/// "path_list_append" of "a" and "b" is "a:b", "string_prepend" is "ba", and so on.
std::string changed(const EnvironmentChange& change, const std::string& old) {
  const std::string_view operation = change.operation;
  const auto joined = [&](const char* separator) {
    if (old.empty()) return change.value;
    return operation.ends_with("_append") ? old + separator + change.value
                                          : change.value + separator + old;
  };
  if (operation.starts_with("string_")) return joined("");
  if (operation.starts_with("path_list_")) return joined(":");
  if (operation.starts_with("cmake_list_")) return joined(";");
  throw InvalidArgument(fmt::format("'{}' is no way to change the environment variable {}",
                                    change.operation, change.name));
}

}  // namespace

std::vector<std::string> environment_of(const Job& job, std::vector<std::string> base) {
  const auto find = [](std::vector<std::string>& in, const std::string& name) {
    return std::ranges::find_if(
        in, [&](const std::string& entry) { return entry.starts_with(name + "="); });
  };
  const std::vector<std::string> original = base;
  for (const EnvironmentChange& change : job.environment) {
    const auto place = find(base, change.name);
    const std::string old = place == base.end() ? "" : place->substr(change.name.size() + 1);
    if (place != base.end()) base.erase(place);
    if (change.operation == "unset") continue;
    if (change.operation == "reset") {
      std::vector<std::string> before = original;
      if (const auto was = find(before, change.name); was != before.end()) base.push_back(*was);
      continue;
    }
    base.push_back(change.name + "=" +
                   (change.operation == "set" ? change.value : changed(change, old)));
  }
  return base;
}

void make_names_unique(std::vector<Job>& jobs) {
  std::map<std::string, unsigned> seen;
  std::set<std::string> taken;
  for (const Job& job : jobs)
    taken.insert(job.name);
  for (Job& job : jobs) {
    if (++seen[job.name] == 1) continue;
    std::string name;
    do {
      name = fmt::format("{} ({})", job.name, seen[job.name]);
    } while (!taken.insert(name).second && ++seen[job.name] != 0);
    job.name = name;
  }
}

}  // namespace strata::cli::jobs
