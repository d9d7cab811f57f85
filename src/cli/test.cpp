// `strata test`: from the command line to jobs, and from their results to files and an exit code.
// What happens in between is in cli/jobs/.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "cli/commands.hpp"
#include "cli/jobs/console.hpp"
#include "cli/jobs/file_text.hpp"
#include "cli/jobs/pytest_source.hpp"
#include "cli/jobs/report_files.hpp"
#include "cli/jobs/selection.hpp"
#include "cli/jobs/session.hpp"
#include "cli/jobs/sources.hpp"
#include "cli/jobs/supervisor.hpp"
#include "cli/leftovers.hpp"
#include "cli/program_start.hpp"
#include "os/cpu.hpp"
#include "strata/error.hpp"

namespace strata::cli {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

/// All jobs, as the sources list them.
struct Found {
  std::vector<jobs::Job> jobs;
  std::unique_ptr<jobs::PytestSource> pytest;  ///< Its jobs need it.
};

Found find_jobs(const TestOptions& options) {
  Found found;
  const auto add = [&](std::vector<jobs::Job> more) {
    std::ranges::move(more, std::back_inserter(found.jobs));
  };
  for (const std::string& directory : options.ctest)
    add(jobs::ctest_jobs(directory));
  const auto by = options.gtest_by == "suite" ? jobs::GtestBy::suite : jobs::GtestBy::test;
  for (const std::string& program : options.gtest)
    add(jobs::gtest_jobs(program, by));
  if (!options.pytest.empty()) {
    found.pytest = std::make_unique<jobs::PytestSource>(jobs::PytestOptions{
        .paths = options.pytest,
        .python = options.python,
        .by = options.pytest_by == "test" ? jobs::PytestBy::test : jobs::PytestBy::file});
    add(found.pytest->jobs());
  }
  for (const std::string& path : options.files)
    add(jobs::file_jobs(path));
  jobs::make_names_unique(found.jobs);
  return found;
}

/// Of jobs that a build directory has, beside them, as ctest has its own. Empty: nothing is kept.
std::string memory_path(const TestOptions& options) {
  if (!options.state.empty()) return options.state;
  const bool one = options.ctest.size() == 1 && options.gtest.empty() && options.pytest.empty() &&
                   options.files.empty();
  return one ? options.ctest.front() + "/Testing/strata-test.json" : "";
}

jobs::SessionOptions session_options(const TestOptions& options) {
  using Options = jobs::SessionOptions;
  Options session;
  session.slots = options.jobs != 0 ? options.jobs : static_cast<unsigned>(os::allowed_cpus());
  if (!options.devices.empty()) session.devices = jobs::DevicePool(options.devices);
  session.timeout = options.timeout;
  session.grace = options.grace;
  session.patience = options.patience;
  session.session_timeout = options.session_timeout;
  session.retries = options.retries;
  if (options.exit_first) session.after_failure = Options::AfterFailure::stop;
  if (options.output == "all") session.kept = Options::Outputs::all;
  return session;
}

jobs::ConsoleOptions console_options(const TestOptions& options) {
  using Groups = jobs::ConsoleOptions::Groups;
  jobs::ConsoleOptions console = jobs::Console::usual_options(STDOUT_FILENO);
  console.groups = options.output == "all"    ? Groups::all
                   : options.output == "none" ? Groups::none
                                              : Groups::not_good;
  console.slowest = options.slowest;
  return console;
}

/// False if one of them can't be written, which is said.
bool write_results(const TestOptions& options, const std::vector<jobs::Job>& list,
                   const jobs::SessionResult& result, jobs::Memory memory) {
  bool all = true;
  const auto write = [&](const std::string& path, const auto& make) {
    if (path.empty()) return;
    try {
      make(path);
    } catch (const Error& error) {
      std::fprintf(stderr, "strata test: %s\n", error.what());
      all = false;
    }
  };
  write(options.junit,
        [&](const std::string& path) { jobs::write_file(path, jobs::junit_text(list, result)); });
  write(options.json,
        [&](const std::string& path) { jobs::write_file(path, jobs::json_text(list, result)); });
  memory.add(list, result);
  write(memory_path(options), [&](const std::string& path) { memory.write(path); });
  return all;
}

int usage(const std::string& text) {
  std::fprintf(stderr, "strata test: %s\n", text.c_str());
  return kUsage;
}

/// What is to be run, of what there is.
struct Chosen {
  std::vector<jobs::Job> jobs;
  std::string nothing;  ///< Why there are none.
};

Chosen choose(const TestOptions& options, const std::vector<jobs::Job>& all,
              const std::optional<jobs::Memory>& memory) {
  if (all.empty()) return {{}, "the sources have no jobs"};
  std::vector<jobs::Job> chosen = jobs::select(all, {.names = options.names,
                                                     .without_names = options.without_names,
                                                     .labels = options.labels,
                                                     .without_labels = options.without_labels});
  if (chosen.empty()) {
    return {{}, fmt::format("none of the {} jobs matches -R, -E, -L and --LE", all.size())};
  }
  if (!options.rerun_failed) return {std::move(chosen), ""};
  chosen = jobs::select_named(chosen, memory->failed);
  return {std::move(chosen), "none of these jobs failed the last time"};
}

}  // namespace

int test(const TestOptions& options) {
  if (options.ctest.empty() && options.gtest.empty() && options.pytest.empty() &&
      options.files.empty()) {
    return usage("say what to run: --ctest, --gtest, --pytest or --file");
  }
  const std::string remembered = memory_path(options);
  if (options.rerun_failed && remembered.empty()) {
    return usage("--rerun-failed needs --state FILE, where it was said the last time, too");
  }
  adopt_orphans();
  jobs::outlive_file_size_limit();
  std::optional<jobs::Memory> memory;
  Found found;
  Chosen chosen;
  jobs::SessionOptions session;
  try {
    session = session_options(options);
    if (!remembered.empty()) memory = jobs::Memory::read(remembered);
    if (options.rerun_failed && !memory) {
      return usage(fmt::format("--rerun-failed: nothing is remembered in '{}'", remembered));
    }
    found = find_jobs(options);
    chosen = choose(options, found.jobs, memory);
  } catch (const std::exception& error) {
    return usage(error.what());
  }
  if (chosen.jobs.empty()) return usage(chosen.nothing);
  if (options.list) {
    for (const jobs::Job& job : chosen.jobs)
      std::printf("%s\n", job.name.c_str());
    return 0;
  }
  if (memory) jobs::set_costs(chosen.jobs, *memory);
  jobs::Console console(console_options(options), chosen.jobs.size());
  const jobs::SessionResult result =
      jobs::Session(chosen.jobs, session, console, signals_as_descriptor(kSignals)).run();
  console.summary(chosen.jobs, result);
  const bool written = write_results(options, chosen.jobs, result, memory.value_or(jobs::Memory{}));
  const int code = result.exit_code();
  return code == 0 && !written ? 1 : code;
}

int test_supervisor() { return jobs::run_supervisor(); }

}  // namespace strata::cli
