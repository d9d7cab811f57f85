// `strata run`: a program with its log gathered, signals forwarded, and nothing left behind.
//
//   strata run ── the program ── its worker processes ...
//        ^______ pipe: stderr ______|
//
// What ends what: the program dies with us (PDEATHSIG), its workers with it; whatever else it
// leaves behind becomes our child (PR_SET_CHILD_SUBREAPER) and is ended by name.
//
// Signals. On a terminal the program stays in our process group, so that it may read from there and
// Ctrl-C and Ctrl-Z reach it by themselves; we forward what somebody sent to us alone. Elsewhere it
// has a group of its own, so that a signal sent to our whole group reaches it once, through us.
// A signal that was ignored when we began (nohup) is not forwarded.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "cli/leftovers.hpp"
#include "cli/log_pump.hpp"
#include "cli/program_start.hpp"
#include "os/child_process.hpp"
#include "os/deadline.hpp"
#include "os/procfs.hpp"
#include "os/spawn.hpp"
#include "os/system_error.hpp"
#include "os/unique_fd.hpp"
#include "strata/error.hpp"

namespace strata::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/// Workers see at once that their parent is gone; this is what the last of a tree may take on a
/// busy machine.
constexpr std::chrono::milliseconds kGrace = 1s;
/// Between SIGTERM and SIGKILL for what is left then.
constexpr std::chrono::milliseconds kPatience = 2s;

std::vector<std::string> environment_for(const RunOptions& options, const LogPump& pump) {
  std::vector<std::string> environment = os::current_environment();
  const auto set = [&](const std::string& name, const std::string& value) {
    std::erase_if(environment,
                  [&](const std::string& entry) { return entry.starts_with(name + "="); });
    environment.push_back(name + "=" + value);
  };
  set(node::kLogStreamVariable, pump.stream_name());
  if (!options.log_level.empty()) set(node::kLogLevelVariable, options.log_level);
  return environment;
}

/// One run, from when the program has been started.
class Watch {
 public:
  Watch(os::ChildProcess program, os::UniqueFd signals, LogPump& pump, bool own_group)
      : program_(std::move(program)),
        signals_(std::move(signals)),
        pump_(pump),
        own_group_(own_group) {}

  os::ExitStatus until_it_ends() {
    for (;;) {
      wait_for(program_.pidfd(), os::Deadline::never());
      if (const auto status = program_.try_wait()) return *status;
    }
  }

  /// Gives what is left a moment to end by itself, and ends the rest.
  void clean_up() {
    const os::Deadline grace = os::Deadline::after(kGrace);
    std::vector<Leftover> left;
    for (;;) {
      reap_orphans(0);
      left = find_leftovers();
      if (left.empty() || grace.passed() || interrupted_) break;
      wait_for(-1, os::earlier(grace, os::Deadline::after(20ms)));
    }
    if (left.empty()) return;
    std::string text = "the program left these processes behind, which are ended now:";
    for (const Leftover& process : left) {
      text += fmt::format("\n  {} ({})", process.pid, process.name);
    }
    pump_.message(LogLevel::warning, text);
    const std::vector<Leftover> stuck = end_leftovers(kPatience, [this] {
      take_signals();
      return interrupted_;
    });
    for (const Leftover& process : stuck) {
      pump_.message(LogLevel::error,
                    fmt::format("the kernel does not give back process {} ({}): it is in {}",
                                process.pid, process.name, os::wait_channel(process.pid)));
    }
  }

  /// Until all lines are where they belong, or somebody wants us to end now.
  void drain_log() {
    pump_.stop_when_empty();
    while (!interrupted_ && !wait_for(pump_.finished_fd(), os::Deadline::never())) {
    }
  }

 private:
  /// True once `fd` is readable; false at the deadline or after a signal.
  bool wait_for(int fd, os::Deadline deadline) {
    std::array<pollfd, 2> waits = {{{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                    {.fd = fd, .events = POLLIN, .revents = 0}}};
    if (::poll(waits.data(), waits.size(), deadline.poll_timeout_ms()) < 0 && errno != EINTR) {
      os::throw_errno("wait for the program");
    }
    take_signals();
    return waits[1].revents != 0;
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) {
        reap_orphans(program_.status() ? 0 : program_.pid());
      } else if (!program_.status()) {
        // What the terminal sent went to the whole group, and the program is in it.
        const bool has_it = !own_group_ && info.ssi_code == SI_KERNEL;
        if (!has_it) (void)program_.send(signal);
      } else if (signal != SIGUSR1 && signal != SIGUSR2) {
        interrupted_ = true;
      }
    }
  }

  os::ChildProcess program_;
  os::UniqueFd signals_;
  LogPump& pump_;
  const bool own_group_;
  bool interrupted_ = false;  ///< A signal came after the program had ended.
};

/// Whether somebody will want to read that it died of this.
bool worth_telling(int signal) {
  return signal != SIGINT && signal != SIGTERM && signal != SIGHUP && signal != SIGPIPE;
}

}  // namespace

int run(const RunOptions& options) {
  const std::string& name = options.command.front();
  const std::string file = find_program(name);
  if (file.empty()) {
    std::fprintf(stderr, "strata run: there is no program '%s' in PATH\n", name.c_str());
    return kNotFound;
  }
  if (!options.log_level.empty()) {
    ::setenv(node::kLogLevelVariable, options.log_level.c_str(), 1);  // For our own messages.
  }
  const bool own_group = is_ignored(SIGINT) || is_ignored(SIGHUP) || !in_foreground();
  LogPump pump({.program = file.substr(file.rfind('/') + 1),
                .log_file = options.log_file,
                .prefix = options.prefix,
                .timestamps = options.timestamps});
  os::UniqueFd signals = signals_as_descriptor(kForwarded);
  adopt_orphans();

  os::ChildProcess program;
  try {
    program = os::spawn({.path = file,
                         .argv = options.command,
                         .envp = environment_for(options, pump),
                         .descriptors = inherited_descriptors({{pump.write_end(), STDERR_FILENO}}),
                         .own_process_group = own_group});
  } catch (const SystemError& error) {
    std::fprintf(stderr, "strata run: %s\n", error.what());
    return error.code() == ENOENT ? kNotFound : kNotStarted;
  }
  pump.close_write_end();
  pump.start();

  Watch watch(std::move(program), std::move(signals), pump, own_group);
  const os::ExitStatus status = watch.until_it_ends();
  if (status.kind == os::ExitStatus::Kind::signalled && worth_telling(status.value)) {
    pump.message(LogLevel::error, fmt::format("{} was {}", name, status.to_string()));
  }
  watch.clean_up();
  watch.drain_log();
  switch (status.kind) {
    case os::ExitStatus::Kind::exited:
      return status.value;
    case os::ExitStatus::Kind::signalled:
      return 128 + status.value;
    case os::ExitStatus::Kind::unknown:
      break;
  }
  pump.message(LogLevel::error, fmt::format("{} {}", name, status.to_string()));
  return kNotStarted;
}

}  // namespace strata::cli
