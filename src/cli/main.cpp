// The `strata` command: reads the command line and calls the sub-command.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "chip/chip_runtime.hpp"
#include "cli/commands.hpp"
#include "cli/number_checks.hpp"
#include "graph/heap.hpp"
#include "graph/task_window.hpp"
#include "strata/version.hpp"

namespace strata::cli {
namespace {

/// Seconds that a run or a program can be given: a nanosecond to thirty years.
constexpr double kShortest = 1e-9;
constexpr double kLongest = 1e9;
/// Of one thing: --explore, --repeat, --retries.
constexpr std::uint64_t kMostRuns = 1'000'000'000;
/// Of `strata test` at once.
constexpr std::uint64_t kMostJobs = 100'000;

class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string name) const override {
    return "Usage: " + name + " [OPTIONS] -- PROGRAM [ARGUMENTS...]\n";
  }
};

void describe_run(CLI::App& app, RunOptions& options) {
  app.description("Runs a program with its log gathered, and leaves nothing behind");
  app.footer(
      "The stderr of the program and of its workers comes out line by line, with the name of the\n"
      "process in front; stdin and stdout are the program's own. Signals are forwarded. When the\n"
      "program ends, what it leaves behind is named and ended. If this command is killed, so is\n"
      "the program.\n"
      "\n"
      "Exit code: the program's; 128 + n if signal n killed it; 126 or 127 if it can't be "
      "started.\n"
      "\n"
      "Examples:\n"
      "  strata run -- ./train --steps 100\n"
      "  strata run --log-level debug --log-file train.log -- ./train\n"
      "  strata run --timestamps -- python3 train.py");
  app.formatter(std::make_shared<RunFormatter>());
  app.add_option("--log-level", options.log_level, "What Strata itself says")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}));
  app.add_option("--log-file", options.log_file, "Write the log to this file as well")
      ->type_name("FILE");
  app.add_flag_callback(
      "--no-prefix", [&options] { options.prefix = false; },
      "Leave out which process wrote a line");
  app.add_flag("--timestamps", options.timestamps, "Put the time of day in front of each line");
  app.prefix_command();  // From the program's name on, options are the program's.
}

void describe_chip(CLI::App& app, ChipCommandOptions& options) {
  app.description("Runs a chip program on one chip, checks it, or explores its schedules");
  app.footer(
      "A tensor is NAME=FILE.npy (numpy.save), NAME=random:SEED:TYPE or NAME=zeros:TYPE, where "
      "TYPE\n"
      "is a shape as [4,8], with the type of elements in front where the program takes any:\n"
      "float32[4,8]. An output that is not given gets the shape of the file to compare it with. A\n"
      "scalar is NAME=VALUE or NAME=VALUE:TYPE; without a type, integers are int64 and others\n"
      "float32.\n"
      "\n"
      "Exit code: 0 if all went well; 1 if the run failed, results differ, or a kernel touched "
      "what\n"
      "it had not declared; 2 for a command line that makes no sense.\n"
      "\n"
      "Examples:\n"
      "  strata chip program.json --tensor a=random:1:[1000] --tensor b=random:2:[1000] \\\n"
      "      --tensor sum=zeros:[1000] --scalar tile=256 --output sum=sum.npy\n"
      "  strata chip program.json --tensor a=a.npy --expect sum=golden.npy --tolerance 1e-5\n"
      "  strata chip program.json --tensor a=a.npy --expect sum=golden.npy --check\n"
      "  strata chip program.json --tensor a=a.npy --expect sum=golden.npy --explore 200\n"
      "  strata chip built.chip -p a5sim:clusters=4 -m host_graph --tensor a=a.npy --repeat 20");
  const auto list = [&](const char* flags, std::vector<std::string>& to, const char* what,
                        const char* type) {
    app.add_option(flags, to, what)->type_name(type)->expected(1)->take_all();
  };
  app.add_option("PROGRAM", options.program, "program.json, or the file that was built from one")
      ->type_name("")
      ->required();
  app.add_option("-p,--platform", options.platform, "The chip: a2a3sim, a5sim, cpu, with settings")
      ->type_name("PLATFORM");
  app.add_option("-m,--mode", options.mode, "Where the orchestration runs: device or host_graph")
      ->type_name("MODE")
      ->check(CLI::IsMember({"device", "host_graph"}).description(""));
  list("--tensor", options.tensors, "A tensor argument", "NAME=VALUE");
  list("--scalar", options.scalars, "A scalar argument", "NAME=VALUE");
  list("--output", options.outputs, "Write a tensor as it is after the run", "NAME=FILE");
  list("--expect", options.expected, "Compare a tensor with a file after the run", "NAME=FILE");
  app.add_option("--tolerance", options.tolerance,
                 "What expected values may differ by, relative above 1")
      ->type_name("X")
      ->check(finite_number(0, std::numeric_limits<double>::max()));
  app.add_option("--window", options.window, "Tasks in flight")
      ->type_name("TASKS")
      ->check(whole_number(1, graph::TaskWindow::kMaxCapacity));
  app.add_option("--heap", options.heap, "Memory for tensors that the runtime allocates")
      ->type_name("BYTES")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(whole_number(graph::Heap::kAlignment, chip::kMaxHeap));
  app.add_option("--time-limit", options.time_limit, "End the run after so many seconds")
      ->type_name("SECONDS")
      ->check(finite_number(kShortest, kLongest));
  app.add_flag("--check", options.check,
               "Test each load and store of the kernels against what their task declares");
  app.add_option("--explore", options.explore, "Run under so many schedules and compare results")
      ->type_name("N")
      ->check(whole_number(1, kMostRuns));
  app.add_option("--seed", options.seed, "The first schedule to explore")
      ->type_name("S")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max() - kMostRuns))
      ->needs("--explore");
  app.add_option("--repeat", options.repeat, "Run so many times on the same chip")
      ->type_name("N")
      ->check(whole_number(1, kMostRuns))
      ->excludes("--explore");
  auto* const dump =
      app.add_option("--dump", options.dump_to,
                     "Write what marked tasks read and have written to files in this folder")
          ->type_name("FOLDER");
  app.add_flag("--dump-all", options.dump_all, "The same for all tasks, marked or not")
      ->needs(dump);
  app.add_option("--compiler", options.compiler, "The C++ compiler, to build program.json")
      ->type_name("COMMAND");
}

void describe_ps(CLI::App& app, PsOptions& options) {
  app.description("Lists the trees of Strata processes on this machine");
  app.footer(
      "Tells of each process that you may look at what it is, its state, and what it does since\n"
      "when; also of those that hang or are stopped.\n"
      "\n"
      "Examples:\n"
      "  strata ps\n"
      "  strata ps --watch 0.5\n"
      "  strata ps --json | jq '.trees[].path'");
  app.add_flag("--json", options.json, "Print one JSON object; with --watch, one a line");
  app.add_option("--watch", options.watch, "Look again every so many seconds")
      ->expected(0, 1)
      ->default_str("1")
      ->type_name("[SECONDS]")
      ->check(finite_number(0.01, 86400));
}

void describe_doctor(CLI::App& app, DoctorOptions& options) {
  app.description("Looks whether this machine has what Strata needs");
  app.footer(
      "Tries kernel features, starting of processes, limits, CPUs, memory and programs. Says of\n"
      "each whether it is there, and what to do if not.\n"
      "\n"
      "Exit code: 0 if Strata can run, 1 if something is missing that it needs.\n"
      "\n"
      "Examples:\n"
      "  strata doctor\n"
      "  strata doctor --json | jq '.checks[] | select(.status != \"ok\")'");
  app.add_flag("--json", options.json, "Print one JSON object");
}

void describe_build(CLI::App& app, BuildOptions& options) {
  app.description("Builds a chip program: an orchestration and its kernels");
  app.footer(
      "Compiles each source with this machine's C++ compiler (--compiler, else STRATA_CXX, CXX or\n"
      "c++), links them to one file, and prints its path. What was compiled before is found in "
      "the\n"
      "cache (--cache, else STRATA_CACHE, or strata/ in XDG_CACHE_HOME or ~/.cache).\n"
      "docs/reference/chip-programs.md has the form of program.json.\n"
      "\n"
      "Exit code: 0 if the program is there, 1 if not; the reason is on stderr.\n"
      "\n"
      "Examples:\n"
      "  strata build program.json\n"
      "  strata build program.json -o vector_add.strata\n"
      "  strata build program.json --check --verbose\n"
      "  strata build program.json --sanitizer address -j 2");
  app.add_option("PROGRAM_JSON", options.program_json, "What the program is made of")
      ->type_name("")
      ->required();
  app.add_option("-o,--output", options.output, "Put a copy of the program there")
      ->type_name("FILE");
  app.add_option("--sanitizer", options.sanitizer, "Build with a sanitizer: address or thread")
      ->type_name("KIND")
      ->check(CLI::IsMember({"address", "thread"}).description(""));
  app.add_flag("--check", options.check, "Build for checking mode: each access can be tested")
      ->excludes("--sanitizer");
  app.add_option("-j,--jobs", options.jobs, "Compilers at once; as many as CPUs if not given")
      ->type_name("N")
      ->check(whole_number(1, 1024));
  app.add_option("--cache", options.cache, "The folder of what was built before")->type_name("DIR");
  app.add_option("--compiler", options.compiler, "The C++ compiler")->type_name("COMMAND");
  app.add_option("--depfile", options.depfile,
                 "Write a rule for make of what the program depends on")
      ->type_name("FILE");
  app.add_flag("-q,--quiet", options.quiet, "Say nothing but errors");
  app.add_flag("-v,--verbose", options.verbose, "Say more of the result")->excludes("--quiet");
}

void describe_dump(CLI::App& app, DumpOptions& options) {
  app.description("Says what a process and all below it are doing, with every thread's stack");
  app.footer(
      "First what stands in the way, in plain words; then each process: its state, what each of\n"
      "its threads waits for and where, and, of Strata's, the task in hand and the last events.\n"
      "The processes take no part in it, so it works whatever they hang in. Each thread is "
      "stopped\n"
      "for well below a millisecond. With --stacks own the worker processes of Strata take the\n"
      "stacks of their own threads, by a signal to each; the others' are taken as ever.\n"
      "\n"
      "Exit code: 1 if there is no such process.\n"
      "\n"
      "Examples:\n"
      "  strata dump 4711\n"
      "  strata dump 4711 --last 100\n"
      "  strata dump 4711 --json | jq -r '.verdict[]'");
  app.add_option("pid", options.pid, "The process at the top")
      ->required()
      ->type_name("PID")
      ->check(CLI::PositiveNumber.description(""));
  app.add_flag("--json", options.json, "Print one JSON object");
  app.add_option("--last", options.last,
                 "Events of each Strata process, living or dead, that are told (20)")
      ->type_name("N");
  app.add_option("--stacks", options.stacks,
                 "Who takes them: outside, this command, by ptrace (if not given); or own, each "
                 "worker process of Strata itself")
      ->type_name("WHO")
      ->check(CLI::IsMember({"outside", "own"}).description(""));
}

void describe_exec(CLI::App& app, ExecOptions& options) {
  app.description("Runs a program with a time-out, and says why it has not ended by then");
  app.footer(
      "The output of the program passes through as it is. At the time-out, or at SIGTERM, a "
      "report\n"
      "as that of `strata dump` goes to stderr, with the last lines that the program wrote. Then\n"
      "all that it has started is ended, wherever it hides.\n"
      "\n"
      "Exit code: the program's; 128 + n if signal n killed it; 124 after the time-out, 143 after\n"
      "SIGTERM; 126 or 127 if it can't be started.\n"
      "\n"
      "Examples:\n"
      "  strata exec --timeout 60 -- ./test\n"
      "  strata exec --timeout 300 --report hang.txt -- python3 -m pytest tests");
  app.formatter(std::make_shared<RunFormatter>());
  const auto not_negative = finite_number(0, kLongest);
  app.add_option("--timeout", options.timeout, "Report and end it after so many seconds")
      ->type_name("SECONDS")
      ->check(not_negative);
  app.add_option("--grace", options.grace, "Seconds between SIGTERM and SIGKILL (5)")
      ->type_name("SECONDS")
      ->check(not_negative);
  app.add_option("--report", options.report, "Write the report to this file as well")
      ->type_name("FILE");
  app.add_flag("--json", options.json, "The report in that file is a JSON object");
  app.add_option("--tail", options.tail, "Lines of output that the report repeats (40)")
      ->type_name("LINES");
  app.prefix_command();  // From the program's name on, options are the program's.
}

void describe_test_sources(CLI::App& app, TestOptions& options) {
  const auto list = [&](const char* flags, std::vector<std::string>& to, const char* what,
                        const char* type) {
    app.add_option(flags, to, what)->type_name(type)->expected(1)->take_all()->group("Jobs");
  };
  const auto filter = [&](const char* flags, std::string& to, const char* what) {
    app.add_option(flags, to, what)->type_name("REGEX")->group("Selection");
  };
  list("--ctest", options.ctest, "The tests of a CMake build directory", "DIR");
  list("--gtest", options.gtest, "The tests of a GoogleTest program", "PROGRAM");
  list("--pytest", options.pytest, "The tests of a file, a folder or a node id", "PATH");
  list("--file", options.files, "Commands in a file: JSON, or one a line", "FILE");
  app.add_option("--gtest-by", options.gtest_by, "A job is a case or a suite (case)")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"case", "suite"}).description(""))
      ->group("Jobs");
  app.add_option("--pytest-by", options.pytest_by, "A job is a file or a test (file)")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"file", "test"}).description(""))
      ->group("Jobs");
  app.add_option("--python", options.python, "What runs pytest (python3)")
      ->type_name("PROGRAM")
      ->group("Jobs");
  filter("-R,--tests-regex", options.names, "Only jobs whose name matches");
  filter("-E,--exclude-regex", options.without_names, "No jobs whose name matches");
  filter("-L,--label-regex", options.labels, "Only jobs with a label that matches");
  filter("--LE,--label-exclude", options.without_labels, "No jobs with a label that matches");
  app.add_flag("--rerun-failed", options.rerun_failed, "Only jobs that failed the last time")
      ->group("Selection");
  app.add_flag("--list", options.list, "Print the names of the jobs and run none")
      ->group("Selection");
}

void describe_test(CLI::App& app, TestOptions& options) {
  app.description("Runs test commands in parallel, and explains those that hang");
  app.footer(
      "Each job has a time-out, devices of its own ({devices} in its command, STRATA_DEVICES), "
      "and\n"
      "a supervisor that leaves nothing of it behind. What it writes is printed whole, if it did "
      "not\n"
      "pass; of one that hangs, also what each of its processes was doing.\n"
      "\n"
      "Exit code: 0 if all is well; 1 with failures; 124 with hangs; 128 + n if signal n ended it; "
      "2\n"
      "for a command line that makes no sense, and if there are no jobs.\n"
      "\n"
      "Examples:\n"
      "  strata test --ctest build -j 8 --timeout 60\n"
      "  strata test --pytest tests --devices 0-7 --session-timeout 1800 --junit results.xml\n"
      "  strata test --gtest build/unit_tests -R 'Queue' --retries 2\n"
      "  strata test --ctest build --rerun-failed");
  describe_test_sources(app, options);
  const auto seconds = finite_number(kShortest, kLongest);
  app.add_option("--devices", options.devices, "Ids of the devices that jobs share: 0-7")
      ->type_name("IDS");
  app.add_option("-j,--jobs", options.jobs, "Jobs at once (as many as CPUs)")
      ->type_name("N")
      ->check(whole_number(1, kMostJobs));
  app.add_option("--timeout", options.timeout, "Of each job that has none of its own (1500)")
      ->type_name("SECONDS")
      ->check(seconds);
  app.add_option("--session-timeout", options.session_timeout, "Of all jobs together")
      ->type_name("SECONDS")
      ->check(seconds);
  app.add_option("--grace", options.grace, "Seconds between SIGTERM and SIGKILL (5)")
      ->type_name("SECONDS")
      ->check(finite_number(0, kLongest));
  app.add_option("--patience", options.patience,
                 "Seconds for a job's supervisor, beyond these, to explain and end it (60)")
      ->type_name("SECONDS")
      ->check(finite_number(0, kLongest));
  app.add_flag("-x,--exitfirst", options.exit_first, "End all after the first failure");
  app.add_option("--retries", options.retries, "Try failed jobs again, up to so many times")
      ->type_name("N")
      ->check(whole_number(0, kMostRuns));
  app.add_option("--output", options.output, "Print the output of failed jobs, all, or none")
      ->type_name("WHICH")
      ->check(CLI::IsMember({"failed", "all", "none"}).description(""));
  app.add_option("--slowest", options.slowest, "Jobs that are named for their time (5)")
      ->type_name("N")
      ->check(whole_number(0, kMostRuns));
  app.add_option("--junit", options.junit, "Write the results as JUnit's XML")->type_name("FILE");
  app.add_option("--json", options.json, "Write the results as JSON")->type_name("FILE");
  app.add_option("--state", options.state, "Where to remember what failed, and times")
      ->type_name("FILE");
}

int main_with(int argc, char** argv) {
  CLI::App app("Runs and looks at Strata programs and their worker processes.", "strata");
  app.set_version_flag("--version", "strata " + std::string(version()));
  app.require_subcommand(1);
  app.footer("'strata COMMAND --help' tells more of each.");

  RunOptions run_options;
  PsOptions ps_options;
  DoctorOptions doctor_options;
  CLI::App* const run_app = app.add_subcommand("run");
  describe_run(*run_app, run_options);
  CLI::App* const ps_app = app.add_subcommand("ps");
  describe_ps(*ps_app, ps_options);
  CLI::App* const doctor_app = app.add_subcommand("doctor");
  describe_doctor(*doctor_app, doctor_options);
  DumpOptions dump_options;
  CLI::App* const dump_app = app.add_subcommand("dump");
  describe_dump(*dump_app, dump_options);
  ExecOptions exec_options;
  CLI::App* const exec_app = app.add_subcommand("exec");
  describe_exec(*exec_app, exec_options);

  TestOptions test_options;
  CLI::App* const test_app = app.add_subcommand("test");
  describe_test(*test_app, test_options);
  // What `strata test` runs itself as; in no list.
  CLI::App* const supervisor_app = app.add_subcommand("test-supervisor")->group("");
  BuildOptions build_options;
  CLI::App* const build_app = app.add_subcommand("build");
  describe_build(*build_app, build_options);
  ChipCommandOptions chip_options;
  CLI::App* const chip_app = app.add_subcommand("chip");
  describe_chip(*chip_app, chip_options);

  // What stands behind the first "--" is another program's command line, and none of ours.
  std::vector<std::string> own(argv + 1, argv + argc);
  const auto dashes = std::find(own.begin(), own.end(), "--");
  const bool separated = dashes != own.end();
  std::vector<std::string> command;
  if (separated) command.assign(std::next(dashes), own.end());
  own.erase(dashes, own.end());
  std::reverse(own.begin(), own.end());  // CLI11 takes them from the end.
  try {
    app.parse(own);
    if (run_app->parsed() || exec_app->parsed()) {
      CLI::App* const parsed = run_app->parsed() ? run_app : exec_app;
      const std::vector<std::string> rest = parsed->remaining();
      if (!separated) {
        command = rest;
      } else if (!rest.empty()) {
        throw CLI::ExtrasError(parsed->get_name(), rest);
      }
      if (command.empty()) throw CLI::RequiredError("The program to run");
      run_options.command = exec_options.command = command;
    } else if (separated) {
      throw CLI::ExtrasError("strata", command);
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (run_app->parsed()) return run(run_options);
  if (chip_app->parsed()) return chip(chip_options);
  if (ps_app->parsed()) return ps(ps_options);
  if (build_app->parsed()) return build(build_options);
  if (dump_app->parsed()) return dump(dump_options);
  if (exec_app->parsed()) return exec(exec_options);
  if (test_app->parsed()) return test(test_options);
  if (supervisor_app->parsed()) return test_supervisor();
  return doctor(doctor_options);
}

}  // namespace
}  // namespace strata::cli

int main(int argc, char** argv) {
  try {
    return strata::cli::main_with(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "strata: %s\n", error.what());
    return 1;
  }
}
