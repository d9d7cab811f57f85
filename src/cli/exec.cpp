// `strata exec`: timeout(1) that explains. Runs a program; if it has not ended by the time-out,
// says what each process that came of it was doing, ends them all, and leaves nothing behind.
//
//   strata exec ── the program ── ...          output: pipe ── OutputRelay ── our stdout, stderr
//       ^── whoever lost its parent (PR_SET_CHILD_SUBREAPER)
//
// Order at the end of the time: the report is taken while all still runs; then the pipes are
// emptied, so that the tail in the report is the last that was written; then SIGTERM, grace,
// SIGKILL, all are waited for, and what they wrote meanwhile is passed on.
//
// An output that is a terminal stays the program's own: it would behave differently on a pipe, and
// its last lines stand on the screen anyway.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "cli/leftovers.hpp"
#include "cli/output_relay.hpp"
#include "cli/program_start.hpp"
#include "cli/program_watch.hpp"
#include "diag/python_hook.hpp"
#include "diag/report_text.hpp"
#include "diag/tree_report.hpp"
#include "os/child_process.hpp"
#include "os/deadline.hpp"
#include "os/spawn.hpp"

namespace strata::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr int kTimedOut = 124;  ///< As timeout(1) has it.
constexpr int kTerminated = 128 + SIGTERM;

/// What may take a moment to end after the program has.
constexpr std::chrono::milliseconds kGraceAfterEnd = 1s;
/// For as long as this nobody takes our output, and then what is left of it is given up; only once
/// the program was ended by force.
constexpr std::chrono::milliseconds kPatienceWithReaders = 10s;
/// Of the report, so that a machine that is short of everything still gets one.
constexpr std::chrono::milliseconds kReportLimit = 4s;

/// stdout and stderr of the program on their way to ours.
class Outputs {
 public:
  Outputs() {
    struct stat out {};
    struct stat err {};
    const bool has_out = ::fstat(STDOUT_FILENO, &out) == 0;
    const bool has_err = ::fstat(STDERR_FILENO, &err) == 0;
    if (has_out && ::isatty(STDOUT_FILENO) == 0) add(STDOUT_FILENO);
    if (!has_err || ::isatty(STDERR_FILENO) == 1) return;
    // Through one pipe if they go to one place, so that they stay in order.
    const bool same = has_out && out.st_dev == err.st_dev && out.st_ino == err.st_ino;
    if (same && !relays_.empty()) {
      descriptors_.push_back({relays_.front()->write_end(), STDERR_FILENO});
      names_.front() = "stdout and stderr";
      for_stderr_ = relays_.front().get();
    } else {
      add(STDERR_FILENO);
    }
  }

  /// For the program.
  [[nodiscard]] const std::vector<os::SpawnOptions::Descriptor>& descriptors() const {
    return descriptors_;
  }
  void start() {
    for (const auto& relay : relays_) {
      relay->close_write_end();
      relay->start();
    }
  }
  void drain() {
    for (const auto& relay : relays_)
      relay->drain();
  }
  /// The last lines of each, by name.
  [[nodiscard]] std::map<std::string, std::string> tails(std::size_t lines) const {
    std::map<std::string, std::string> tails;
    for (std::size_t i = 0; i < relays_.size(); ++i)
      tails[names_[i]] = relays_[i]->tail(lines);
    return tails;
  }
  /// To our stderr, behind what the program wrote there.
  void say(const std::string& text) {
    if (for_stderr_ != nullptr) {
      for_stderr_->insert(text);
    } else {
      std::fwrite(text.data(), 1, text.size(), stderr);
      std::fflush(stderr);
    }
  }
  /// False if what is left was given up.
  bool finish(std::chrono::milliseconds patience) {
    bool all = true;
    for (const auto& relay : relays_)
      all = relay->finish(patience) && all;
    return all;
  }

 private:
  void add(int fd) {
    relays_.push_back(std::make_unique<OutputRelay>(fd));
    names_.emplace_back(fd == STDOUT_FILENO ? "stdout" : "stderr");
    descriptors_.push_back({relays_.back()->write_end(), fd});
    if (fd == STDERR_FILENO) for_stderr_ = relays_.back().get();
  }

  std::vector<std::unique_ptr<OutputRelay>> relays_;
  std::vector<std::string> names_;
  std::vector<os::SpawnOptions::Descriptor> descriptors_;
  OutputRelay* for_stderr_ = nullptr;
};

std::string words_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    text += (text.empty() ? "" : " ") + word;
  return diag::printable(text);
}

/// One execution, from when the program has been started.
class Execution {
 public:
  Execution(const ExecOptions& options, ProgramWatch watch, Outputs& outputs)
      : options_(options), watch_(std::move(watch)), outputs_(outputs) {}

  int run() {
    const os::Deadline deadline =
        options_.timeout ? os::Deadline::after(std::chrono::duration<double>(*options_.timeout))
                         : os::Deadline::never();
    for (;;) {
      watch_.wait_for(watch_.pidfd(), deadline);
      if (const auto status = watch_.ended()) return after_its_end(*status);
      if (watch_.told_to_end()) {
        return explain_and_end("strata exec got SIGTERM", "signal", kTerminated);
      }
      if (deadline.passed()) {
        return explain_and_end("it had not ended at the time-out", "timeout", kTimedOut);
      }
    }
  }

 private:
  int after_its_end(const os::ExitStatus& status) {
    const std::vector<Leftover> left = watch_.leftovers_after(kGraceAfterEnd);
    if (!left.empty()) {
      outputs_.say("strata exec: the program left these processes behind, which are ended now:\n" +
                   list_of(left));
      end_all();
    }
    while (!outputs_.finish(100ms)) {  // As long as it takes, unless somebody wants us to end.
      watch_.wait_for(-1, os::Deadline::after(0ms));
      if (watch_.hurried()) break;
    }
    return exit_code_of(status);
  }

  int explain_and_end(const std::string& reason, const char* cause, int code) {
    const double after =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    diag::CollectOptions collect;
    collect.limit = kReportLimit;
    const diag::TreeReport report = diag::collect_below(::getpid(), collect);
    outputs_.drain();
    const auto tails = outputs_.tails(options_.tail);
    const std::string text =
        fmt::format("strata exec: {}: {} (pid {}), after {:.1f} s\n\n", reason,
                    words_of(options_.command), watch_.pid(), after) +
        diag::to_text(report) + tail_text(tails) +
        "\nstrata exec: end of the report; all of these processes are ended now\n";
    outputs_.say(text);
    if (!options_.report.empty()) {
      write_report(options_.json ? json_text(report, tails, cause, after) : text);
    }
    watch_.begin_to_end();
    end_all();
    if (!outputs_.finish(kPatienceWithReaders)) {
      std::fprintf(stderr, "strata exec: nobody takes the output; the rest of it is lost\n");
    }
    return code;
  }

  static std::string tail_text(const std::map<std::string, std::string>& tails) {
    std::string text;
    for (const auto& [name, tail] : tails) {
      text += fmt::format("\n---- last lines of {} ----{}\n", name, tail.empty() ? " (none)" : "");
      text += tail;
      if (!tail.empty() && tail.back() != '\n') text += "\n";
    }
    return text;
  }

  [[nodiscard]] std::string json_text(const diag::TreeReport& report,
                                      const std::map<std::string, std::string>& tails,
                                      const char* cause, double after) const {
    nlohmann::json json = diag::to_json(report);
    json["cause"] = cause;
    json["command"] = options_.command;
    json["pid"] = watch_.pid();
    json["after_s"] = after;
    json["output"] = tails;
    return diag::dump(json);
  }

  void write_report(const std::string& text) {
    const auto close = [](std::FILE* file) { std::fclose(file); };
    const std::unique_ptr<std::FILE, decltype(close)> file(
        std::fopen(options_.report.c_str(), "we"), close);
    const bool written = file &&
                         std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                         std::fflush(file.get()) == 0;
    if (!written) {
      outputs_.say(fmt::format("strata exec: can't write the report to '{}': {}\n", options_.report,
                               std::strerror(errno)));
    }
  }

  void end_all() {
    const auto grace = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::duration<double>(options_.grace));
    for (const Leftover& process : watch_.end_all(grace))
      outputs_.say("strata exec: " + stuck_text(process) + "\n");
  }

  const ExecOptions& options_;
  ProgramWatch watch_;
  Outputs& outputs_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

int exec(const ExecOptions& options) {
  const Group group = usual_group();
  const diag::PythonHook hook;
  std::vector<std::string> environment = os::current_environment();
  hook.add_to(environment);
  Outputs outputs;
  os::UniqueFd signals = signals_as_descriptor(kSignals);
  adopt_orphans();
  try {
    os::ChildProcess program = start_program(options.command, std::move(environment),
                                             inherited_descriptors(outputs.descriptors()), group);
    outputs.start();
    return Execution(options, {std::move(program), std::move(signals), group, SIGTERM}, outputs)
        .run();
  } catch (const NotStarted& why) {
    std::fprintf(stderr, "strata exec: %s\n", why.what());
    return why.code();
  }
}

}  // namespace strata::cli
