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
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "cli/leftovers.hpp"
#include "cli/log_pump.hpp"
#include "cli/program_start.hpp"
#include "cli/program_watch.hpp"
#include "os/child_process.hpp"
#include "os/deadline.hpp"
#include "os/spawn.hpp"
#include "os/unique_fd.hpp"

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

/// Names and ends what the program has left.
void clean_up(ProgramWatch& watch, LogPump& pump) {
  const std::vector<Leftover> left = watch.leftovers_after(kGrace);
  if (left.empty()) return;
  std::string list = list_of(left);
  list.pop_back();  // The line feed.
  pump.message(LogLevel::warning,
               "the program left these processes behind, which are ended now:\n" + list);
  for (const Leftover& process : watch.end_all(kPatience))
    pump.message(LogLevel::error, stuck_text(process));
}

/// Whether somebody will want to read that it died of this.
bool worth_telling(int signal) {
  return signal != SIGINT && signal != SIGTERM && signal != SIGHUP && signal != SIGPIPE;
}

}  // namespace

int run(const RunOptions& options) {
  const std::string& name = options.command.front();
  if (!options.log_level.empty()) {
    ::setenv(node::kLogLevelVariable, options.log_level.c_str(), 1);  // For our own messages.
  }
  const Group group = usual_group();
  LogPump pump({.program = name.substr(name.rfind('/') + 1),
                .log_file = options.log_file,
                .prefix = options.prefix,
                .timestamps = options.timestamps});
  os::UniqueFd signals = signals_as_descriptor(kForwarded);
  adopt_orphans();

  os::ChildProcess program;
  try {
    program = start_program(options.command, environment_for(options, pump),
                            inherited_descriptors({{pump.write_end(), STDERR_FILENO}}), group);
  } catch (const NotStarted& why) {
    std::fprintf(stderr, "strata run: %s\n", why.what());
    return why.code();
  }
  pump.close_write_end();
  pump.start();

  ProgramWatch watch(std::move(program), std::move(signals), group, 0);
  std::optional<os::ExitStatus> status;
  while (!(status = watch.ended()))
    watch.wait_for(watch.pidfd(), os::Deadline::never());
  if (status->kind == os::ExitStatus::Kind::signalled && worth_telling(status->value)) {
    pump.message(LogLevel::error, fmt::format("{} was {}", name, status->to_string()));
  }
  clean_up(watch, pump);
  // Until all lines are where they belong, or somebody wants us to end now.
  pump.stop_when_empty();
  while (!watch.hurried() && !watch.wait_for(pump.finished_fd(), os::Deadline::never())) {
  }
  if (status->kind == os::ExitStatus::Kind::unknown) {
    pump.message(LogLevel::error, fmt::format("{} {}", name, status->to_string()));
  }
  return exit_code_of(*status);
}

}  // namespace strata::cli
