// The sub-commands of `strata`, as functions. main.cpp reads the command line; each of these does
// one command's work, writes to stdout and stderr, and returns the exit code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace strata::cli {

/// Exit code for a command line that makes no sense.
inline constexpr int kUsage = 2;

struct RunOptions {
  std::vector<std::string> command;  ///< The program and its arguments.
  std::string log_level;             ///< Empty: as the program or the environment says.
  std::string log_file;              ///< Gets the log as well; empty: none.
  bool prefix = true;
  bool timestamps = false;
};
/// Runs a program with its log gathered; returns its exit code, or 128 + n if signal n killed it.
int run(const RunOptions& options);

struct ChipCommandOptions {
  std::string program;  ///< program.json, or what was built from one.
  std::string platform = "a2a3sim";
  std::string mode;  ///< "device", "host_graph"; empty: as the environment says.
  std::vector<std::string> tensors;
  std::vector<std::string> scalars;
  std::vector<std::string> outputs;
  std::vector<std::string> expected;
  double tolerance = 0;
  std::optional<std::size_t> window;
  std::optional<std::size_t> heap;
  std::optional<double> time_limit;  ///< Seconds.
  std::optional<std::uint64_t> explore;
  std::uint64_t seed = 1;
  unsigned repeat = 1;
  std::string compiler;  ///< Empty: the usual one.
  std::string dump_to;   ///< A folder for the arguments of tasks; empty: none.
  bool dump_all = false;
  bool check = false;
};
/// Runs a chip program and prints what came of it; 1 if it failed or its results are not right.
int chip(const ChipCommandOptions& options);

struct PsOptions {
  bool json = false;
  std::optional<double> watch;  ///< Seconds between two looks; absent: look once.
};
/// Lists the trees of processes on this machine.
int ps(const PsOptions& options);

struct DoctorOptions {
  bool json = false;
};
/// Looks whether this machine has what Strata needs; 1 if something is missing.
int doctor(const DoctorOptions& options);

struct BuildOptions {
  std::string program_json;
  std::string output;     ///< Empty: in the cache alone.
  std::string sanitizer;  ///< "address", "thread", or empty.
  std::string cache;      ///< Empty: the usual one.
  std::string compiler;   ///< Empty: the usual one.
  std::string depfile;    ///< Empty: none.
  unsigned jobs = 0;      ///< 0: as many as CPUs.
  bool check = false;
  bool quiet = false;
  bool verbose = false;
};
/// Builds a chip program and prints its file's path; 1 if it can't be built.
int build(const BuildOptions& options);

struct DumpOptions {
  int pid = 0;
  bool json = false;
  std::size_t last = 20;  ///< Events of the flight recorder, of each Strata process.
  /// "own": by the processes themselves, where they can; or "outside".
  std::string stacks = "outside";
};
/// Prints what a process and all below it are doing; 1 if there is no such process.
int dump(const DumpOptions& options);

struct ExecOptions {
  std::vector<std::string> command;  ///< The program and its arguments.
  std::optional<double> timeout;     ///< Seconds; absent: none.
  double grace = 5;                  ///< Seconds between SIGTERM and SIGKILL.
  std::string report;                ///< File that gets the report as well; empty: none.
  bool json = false;                 ///< The report in that file is JSON.
  std::size_t tail = 40;             ///< Lines of the output that the report repeats.
};
/// Runs a program with a time-out, and says why it has not ended by then. Returns its exit code,
/// 128 + n if signal n killed it, 124 after the time-out, 143 after SIGTERM.
int exec(const ExecOptions& options);

struct TestOptions {
  std::vector<std::string> ctest;   ///< Build directories.
  std::vector<std::string> gtest;   ///< Programs.
  std::vector<std::string> pytest;  ///< Files, folders, node ids.
  std::vector<std::string> files;   ///< Of jobs.
  std::string gtest_by = "case";    ///< Or "suite".
  std::string pytest_by = "file";   ///< Or "test".
  std::string python = "python3";
  std::string names;  ///< Regular expressions; empty: all, or none.
  std::string without_names;
  std::string labels;
  std::string without_labels;
  bool rerun_failed = false;
  bool list = false;
  std::string devices;  ///< "0-7"; empty: there are none.
  unsigned jobs = 0;    ///< 0: as many as CPUs.
  double timeout = 1500;
  double grace = 5;
  double patience = 60;  ///< Seconds, with supervisors.
  std::optional<double> session_timeout;
  bool exit_first = false;
  unsigned retries = 0;
  std::string output = "failed";  ///< Of which jobs: "failed", "all", "none".
  std::size_t slowest = 5;
  std::string junit;  ///< Files; empty: none.
  std::string json;
  std::string state;  ///< What is remembered; empty: where it is for one build directory.
};
/// Runs test commands in parallel; 0 if all is well, 1 with failures, 124 with hangs, 128 + n if
/// signal n ended it.
int test(const TestOptions& options);
/// The process between `strata test` and a job; not for users.
int test_supervisor();

}  // namespace strata::cli
