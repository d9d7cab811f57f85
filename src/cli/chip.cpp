// `strata chip`: runs a chip program from the command line: once or often, checked, or under many
// schedules; and compares what it computes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/duration_text.hpp"
#include "chip/check/check.hpp"
#include "chip/explore.hpp"
#include "chip/npy.hpp"
#include "cli/build_signals.hpp"
#include "cli/chip_arguments.hpp"
#include "cli/chip_session.hpp"
#include "cli/commands.hpp"
#include "strata/chip_error.hpp"
#include "strata/chip_program.hpp"
#include "strata/platform.hpp"

namespace strata::cli {
namespace {

void say(const std::string& text) { std::printf("%s\n", text.c_str()); }
void complain(const std::string& text) { std::fprintf(stderr, "strata chip: %s\n", text.c_str()); }

/// The program's file, built if it is not yet.
std::filesystem::path program_file(const ChipCommandOptions& options) {
  std::filesystem::path path = options.program;
  if (path.extension() != ".json") return path;
  const BuildSignals signals;
  return build_chip_program(ChipProgramSource::load(path),
                            {.compiler = options.compiler, .check = options.check});
}

ChipRunOptions run_options(const ChipCommandOptions& options) {
  ChipRunOptions run;
  if (options.mode == "device") run.mode = OrchestrationMode::device;
  if (options.mode == "host_graph") run.mode = OrchestrationMode::host_graph;
  run.window = options.window;
  run.heap = options.heap;
  if (options.time_limit) {
    run.time_limit = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(*options.time_limit));
  }
  run.check = options.check;
  // The chip's process is another one, with a current folder that may be another.
  if (!options.dump_to.empty()) run.dump_to = std::filesystem::absolute(options.dump_to).string();
  run.dump_all = options.dump_all;
  return run;
}

/// Something that the user wants to know of the results is not as it should be.
struct Verdict {
  bool good = true;
  void bad(const std::string& text) {
    good = false;
    complain(text);
  }
};

void compare_expected(const ChipArguments& arguments, double tolerance, Verdict& verdict) {
  for (const auto& [i, expected] : arguments.expected) {
    const chip::HostTensor& found = arguments.run.tensors[i];
    const chip::TensorDifference difference = chip::compare_values(expected, found, tolerance);
    if (difference.elements == 0) {
      say(fmt::format("tensor '{}' is as expected", found.name));
      continue;
    }
    verdict.bad(fmt::format(
        "tensor '{}' is not as expected: {} of {} elements differ, the first at [{}]: {} instead "
        "of {}",
        found.name, difference.elements, found.elements(), fmt::join(difference.index, ", "),
        difference.found, difference.expected));
  }
}

/// What came from memory that no task had written.
void look_for_poison(const chip::HostArguments& arguments, Verdict& verdict) {
  for (const chip::HostTensor& tensor : arguments.tensors) {
    // Integers and bytes may be that by chance.
    const bool telling = size_of(tensor.dtype) > 1;
    if (tensor.access == Access::in || !telling) continue;
    const std::uint64_t found =
        chip::count_poison(tensor.bytes.data(), tensor.dtype, tensor.elements());
    if (found == 0) continue;
    verdict.bad(fmt::format(
        "{} of {} elements of tensor '{}' are poison: they come from fresh memory that no task has "
        "written",
        found, tensor.elements(), tensor.name));
  }
}

void write_outputs(const ChipArguments& arguments) {
  for (const auto& [i, file] : arguments.outputs)
    chip::write_npy(file, arguments.run.tensors[i]);
}

/// One line of the table of runs.
std::string row(const std::string& what, const ChipRunFacts& facts) {
  return fmt::format("  {:<12} {:>12} {:>8} tasks {:>8} edges {:>12} bytes of heap", what,
                     base::duration_text(facts.time), facts.tasks, facts.edges, facts.heap_peak);
}

void print_table(std::vector<ChipRunFacts> runs) {
  if (runs.size() == 1) {
    say(row("run", runs.front()));
    return;
  }
  say(row("first run", runs.front()));
  std::sort(runs.begin(), runs.end(),
            [](const ChipRunFacts& a, const ChipRunFacts& b) { return a.time < b.time; });
  say(row("fastest", runs.front()));
  say(row("median", runs[runs.size() / 2]));
  say(row("slowest", runs.back()));
}

void run_plainly(const ChipCommandOptions& options, ChipSession& session, ChipArguments& arguments,
                 Verdict& verdict) {
  const ChipRunOptions run = run_options(options);
  const chip::HostArguments fresh = arguments.run;
  std::vector<ChipRunFacts> runs;
  runs.reserve(options.repeat);
  for (unsigned i = 0; i < options.repeat; ++i) {
    arguments.run = fresh;
    runs.push_back(session.run(arguments.run, run));
  }
  print_table(std::move(runs));
  compare_expected(arguments, options.tolerance, verdict);
  if (options.check) look_for_poison(arguments.run, verdict);
}

/// One run under a schedule; what it throws says no more than `failure_text`, and under which seed
/// it was if that is the order of submission: there is nothing to compare with then.
void run_schedule(const ChipCommandOptions& options, ChipSession& session,
                  chip::HostArguments& arguments, std::uint64_t seed) {
  ChipRunOptions run = run_options(options);
  run.explore_seed = seed;
  std::string failure;
  try {
    (void)session.run(arguments, run);
    return;
  } catch (const std::exception& error) {
    failure = failure_text(error);
  }
  if (seed != chip::kSubmissionOrder) throw Error(failure);
  throw Error(fmt::format(
      "with seed {}, the order of submission, the run failed, so there is nothing to compare other "
      "schedules with: {}\n  repeat it with: strata chip {} ... --explore 1 --seed {}",
      seed, failure, options.program, seed));
}

void run_schedules(const ChipCommandOptions& options, ChipSession& session,
                   ChipArguments& arguments, Verdict& verdict) {
  const chip::ExploreOptions explore{.runs = *options.explore, .first_seed = options.seed};
  chip::HostArguments reference = arguments.run;
  const chip::ExploreResult result =
      chip::explore(arguments.run, explore, [&](chip::HostArguments& fresh, std::uint64_t seed) {
        run_schedule(options, session, fresh, seed);
        if (seed == chip::kSubmissionOrder) reference = fresh;
      });
  arguments.run = std::move(reference);
  if (result.difference) {
    verdict.bad(fmt::format("{}\n  repeat it with: strata chip {} ... --explore 1 --seed {}",
                            result.difference->to_string(), options.program,
                            result.difference->seed));
  } else {
    say(fmt::format("{} schedules (seeds {} to {}): all results are the same", result.runs,
                    options.seed, options.seed + result.runs - 1));
  }
  compare_expected(arguments, options.tolerance, verdict);
}

int run_program(const ChipCommandOptions& options, const std::filesystem::path& file,
                const ChipProgramInfo& program, ChipArguments& arguments) {
  const Platform platform = Platform::parse(options.platform);
  say(fmt::format("{} on {}", program.name, platform.to_string()));
  ChipSession session(file, options.platform, arguments.run);
  Verdict verdict;
  if (options.explore) {
    run_schedules(options, session, arguments, verdict);
  } else {
    run_plainly(options, session, arguments, verdict);
  }
  session.close();
  write_outputs(arguments);
  if (options.check && verdict.good) {
    say("no kernel touched what it had not declared");
    if (!program.unseen.empty()) {
      say(fmt::format("not looked into, since they were not compiled for it: {}",
                      fmt::join(program.unseen, ", ")));
    }
  }
  return verdict.good ? 0 : 1;
}

}  // namespace

int chip(const ChipCommandOptions& options) {
  std::filesystem::path file;
  ChipProgramInfo program;
  ChipArguments arguments;
  try {
    (void)Platform::parse(options.platform);
    file = program_file(options);
    program = ChipProgramInfo::read(file);
    if (options.check && !program.check) {
      throw InvalidArgument("--check: '" + options.program +
                            "' was not built for it; give its program.json, or build it with "
                            "'strata build --check'");
    }
    arguments = read_chip_arguments({.tensors = options.tensors,
                                     .scalars = options.scalars,
                                     .outputs = options.outputs,
                                     .expected = options.expected,
                                     .poison_outputs = options.check},
                                    program);
  } catch (const ChipError& error) {
    complain(error.what());
    return error.code() == ErrorCode::compile_failed ? 1 : kUsage;
  } catch (const Error& error) {
    complain(error.what());
    return kUsage;
  }
  try {
    return run_program(options, file, program, arguments);
  } catch (const std::exception& error) {
    complain(failure_text(error));
    return 1;
  }
}

}  // namespace strata::cli
