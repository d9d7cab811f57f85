// strata-bench: measures Strata beside its peers and holds the figures against their targets.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "groups.hpp"
#include "harness.hpp"
#include "report.hpp"
#include "targets.hpp"

namespace strata::bench {
namespace {

struct Options {
  std::string name;
  std::string json;
  std::string targets = STRATA_BENCH_TARGETS;
  int rounds = 5;
  double budget_ms = 40;
  bool check = false;
  bool list = false;
};

/// `name` is the beginning of a series' name, or that of one of its figures.
bool selects(std::string_view name, const Series& series) {
  return std::string_view(series.name).starts_with(name) || name.starts_with(series.name + "/") ||
         name.starts_with(series.name + "@");
}

void list(const std::vector<Series>& all, const std::vector<Target>& targets) {
  const Results nothing;
  for (const Series& series : all) {
    fmt::print("{:<26} {}\n", series.name, series.says);
    for (const Target& target : targets) {
      if (!selects(target.figure, series)) continue;
      fmt::print("{:<26}   target {}: \"{}\"\n", "", describe(target, nothing), target.says);
    }
  }
}

void write_json(const std::string& path, const Results& results,
                const std::vector<Target>& targets) {
  std::ofstream file(path);
  file << to_json(results, targets).dump(2) << '\n';
  file.close();
  if (!file) throw std::runtime_error(path + ": can't be written");
}

/// Peers that spin while they wait can't be measured fairly beside other busy programs.
void warn_if_busy() {
  double load = 0;
  if (getloadavg(&load, 1) == 1 && load > 0.7) {
    fmt::print(
        "Other programs keep this machine busy (load average {:.1f}): figures are noisy.\n\n",
        load);
  }
}

int run(const Options& options) {
  const std::vector<Target> targets = read_targets(options.targets);
  std::vector<Series> all;
  add_graph_series(all, options.budget_ms);
  add_node_series(all, options.budget_ms);
  add_comm_series(all, options.budget_ms);
  add_chip_series(all, options.budget_ms);
  std::erase_if(all, [&](const Series& series) { return !selects(options.name, series); });
  if (all.empty()) {
    fmt::print(stderr, "strata-bench: nothing is called '{}'; --list shows all\n", options.name);
    return 2;
  }
  if (options.list) {
    list(all, targets);
    return 0;
  }

  warn_if_busy();
  Results results;
  for (const Series& series : all) {
    results.add(measure_series(series, options.rounds));
    print_series(results.series().back(), results, targets);
  }
  const int missed = print_summary(results, targets);
  if (!options.json.empty()) write_json(options.json, results, targets);
  return options.check && missed > 0 ? 1 : 0;
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  strata::bench::Options options;
  CLI::App app{"Measures Strata beside its peers, and holds the figures against their targets."};
  app.add_option("name", options.name, "Only what begins with this: graph, node/start, ...");
  app.add_option("--json", options.json, "Write all figures and targets to this file");
  app.add_flag("--check", options.check, "Exit with 1 if a target is missed");
  app.add_flag("--list", options.list, "Show what there is, measure nothing");
  app.add_option("--rounds", options.rounds, "Rounds, each of which measures every competitor once")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--budget", options.budget_ms, "Milliseconds of repetitions in each round")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--targets", options.targets, "File of targets")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return strata::bench::run(options);
  } catch (const std::exception& e) {
    fmt::print(stderr, "strata-bench: {}\n", e.what());
    return 2;
  }
}
