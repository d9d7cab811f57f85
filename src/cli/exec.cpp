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
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
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

#include "base/duration_text.hpp"
#include "cli/commands.hpp"
#include "cli/leftovers.hpp"
#include "cli/output_relay.hpp"
#include "cli/program_start.hpp"
#include "diag/python_hook.hpp"
#include "diag/report_text.hpp"
#include "diag/tree_report.hpp"
#include "os/child_process.hpp"
#include "os/deadline.hpp"
#include "os/procfs.hpp"
#include "os/spawn.hpp"
#include "os/system_error.hpp"
#include "strata/error.hpp"

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

std::string list_of(const std::vector<Leftover>& processes) {
  std::string text;
  for (const Leftover& process : processes)
    text += fmt::format("  {} ({})\n", process.pid, diag::printable(process.name));
  return text;
}

/// One execution, from when the program has been started.
class Execution {
 public:
  Execution(const ExecOptions& options, os::ChildProcess program, os::UniqueFd signals,
            Outputs& outputs, bool own_group)
      : options_(options),
        program_(std::move(program)),
        signals_(std::move(signals)),
        outputs_(outputs),
        own_group_(own_group) {}

  int run() {
    const os::Deadline deadline =
        options_.timeout ? os::Deadline::after(std::chrono::duration<double>(*options_.timeout))
                         : os::Deadline::never();
    for (;;) {
      wait_for(program_.pidfd(), deadline);
      if (program_.try_wait()) return after_its_end();
      if (terminated_) {
        return explain_and_end("strata exec got SIGTERM", "signal", kTerminated);
      }
      if (deadline.passed()) {
        return explain_and_end("it had not ended at the time-out", "timeout", kTimedOut);
      }
    }
  }

 private:
  int after_its_end() {
    clean_up();
    while (!outputs_.finish(100ms)) {  // As long as it takes, unless somebody wants us to end.
      take_signals();
      if (terminated_ || interrupted_) break;
    }
    const os::ExitStatus status = *program_.status();
    return status.kind == os::ExitStatus::Kind::exited      ? status.value
           : status.kind == os::ExitStatus::Kind::signalled ? 128 + status.value
                                                            : kNotStarted;
  }

  /// Gives what the program left behind a moment to end by itself, and ends the rest.
  void clean_up() {
    const os::Deadline grace = os::Deadline::after(kGraceAfterEnd);
    std::vector<Leftover> left;
    for (;;) {
      reap_orphans(0);
      left = find_leftovers();
      if (left.empty() || grace.passed() || terminated_ || interrupted_) break;
      wait_for(-1, os::earlier(grace, os::Deadline::after(20ms)));
    }
    if (left.empty()) return;
    outputs_.say("strata exec: the program left these processes behind, which are ended now:\n" +
                 list_of(left));
    end_all();
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
                    words_of(options_.command), program_.pid(), after) +
        diag::to_text(report) + tail_text(tails) +
        "\nstrata exec: end of the report; all of these processes are ended now\n";
    outputs_.say(text);
    if (!options_.report.empty()) {
      write_report(options_.json ? json_text(report, tails, cause, after) : text);
    }
    interrupted_ = terminated_ = false;  // One more of them means "hurry".
    ending_ = true;
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
    json["pid"] = program_.pid();
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
    const std::vector<Leftover> stuck = end_leftovers(grace, [this] {
      take_signals();
      return terminated_ || interrupted_;
    });
    for (const Leftover& process : stuck) {
      outputs_.say(
          fmt::format("strata exec: the kernel does not give back process {} ({}): it is in {}\n",
                      process.pid, diag::printable(process.name), os::wait_channel(process.pid)));
    }
  }

  void wait_for(int fd, os::Deadline deadline) {
    std::array<pollfd, 2> waits = {{{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                    {.fd = fd, .events = POLLIN, .revents = 0}}};
    if (::poll(waits.data(), waits.size(), deadline.poll_timeout_ms()) < 0 && errno != EINTR) {
      os::throw_errno("wait for the program");
    }
    take_signals();
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) {
        reap_orphans(program_.status() ? 0 : program_.pid());
      } else if (signal == SIGTERM) {
        terminated_ = true;
      } else if (!ending_ && !program_.status()) {
        // What the terminal sent went to the whole group, and the program is in it.
        const bool has_it = !own_group_ && info.ssi_code == SI_KERNEL;
        if (!has_it) (void)program_.send(signal);
      } else if (signal != SIGUSR1 && signal != SIGUSR2) {
        interrupted_ = true;
      }
    }
  }

  const ExecOptions& options_;
  os::ChildProcess program_;
  os::UniqueFd signals_;
  Outputs& outputs_;
  const bool own_group_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool terminated_ = false;   ///< SIGTERM came: report and end all; or, later, hurry.
  bool interrupted_ = false;  ///< Another signal came while we were about to end: hurry.
  bool ending_ = false;       ///< All is being ended: signals are for us, and not passed on.
};

}  // namespace

int exec(const ExecOptions& options) {
  const std::string& name = options.command.front();
  const std::string file = find_program(name);
  if (file.empty()) {
    std::fprintf(stderr, "strata exec: there is no program '%s' in PATH\n", name.c_str());
    return kNotFound;
  }
  const bool own_group = is_ignored(SIGINT) || is_ignored(SIGHUP) || !in_foreground();
  const diag::PythonHook hook;
  std::vector<std::string> environment = os::current_environment();
  hook.add_to(environment);
  Outputs outputs;
  os::UniqueFd signals = signals_as_descriptor(kSignals);
  adopt_orphans();

  os::ChildProcess program;
  try {
    program = os::spawn({.path = file,
                         .argv = options.command,
                         .envp = environment,
                         .descriptors = inherited_descriptors(outputs.descriptors()),
                         .own_process_group = own_group});
  } catch (const SystemError& error) {
    std::fprintf(stderr, "strata exec: %s\n", error.what());
    return error.code() == ENOENT ? kNotFound : kNotStarted;
  }
  outputs.start();
  return Execution(options, std::move(program), std::move(signals), outputs, own_group).run();
}

}  // namespace strata::cli
