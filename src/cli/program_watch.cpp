#include "cli/program_watch.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "cli/program_start.hpp"
#include "diag/report_text.hpp"
#include "os/procfs.hpp"
#include "os/system_error.hpp"
#include "strata/error.hpp"

namespace strata::cli {

using namespace std::chrono_literals;

Group usual_group() {
  return is_ignored(SIGINT) || is_ignored(SIGHUP) || !in_foreground() ? Group::its_own
                                                                      : Group::ours;
}

os::ChildProcess start_program(const std::vector<std::string>& command,
                               std::vector<std::string> environment,
                               std::vector<os::SpawnOptions::Descriptor> descriptors, Group group) {
  const std::string& name = command.front();
  const std::string file = find_program(name);
  if (file.empty()) throw NotStarted(kNotFound, "there is no program '" + name + "' in PATH");
  try {
    return os::spawn({.path = file,
                      .argv = command,
                      .envp = std::move(environment),
                      .descriptors = std::move(descriptors),
                      .own_process_group = group == Group::its_own});
  } catch (const SystemError& error) {
    throw NotStarted(error.code() == ENOENT ? kNotFound : kNotStarted, error.what());
  }
}

bool ProgramWatch::wait_for(std::span<const int> fds, os::Deadline deadline) {
  std::vector<pollfd> waits;
  waits.reserve(fds.size() + 1);
  waits.push_back({.fd = signals_.get(), .events = POLLIN, .revents = 0});
  for (const int fd : fds)
    waits.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  if (::poll(waits.data(), waits.size(), deadline.poll_timeout_ms()) < 0) {
    if (errno != EINTR) os::throw_errno("wait for the program");
    return false;
  }
  take_signals();
  return waits[1].revents != 0;
}

void ProgramWatch::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      reap_orphans(program_.status() ? 0 : program_.pid());
    } else if (signal == kept_) {
      told_to_end_ = true;
    } else if (!ending_ && !program_.status()) {
      // What the terminal sent went to the whole group, and the program is in it.
      const bool has_it = group_ == Group::ours && info.ssi_code == SI_KERNEL;
      if (!has_it) (void)program_.send(signal);
    } else if (signal != SIGUSR1 && signal != SIGUSR2) {
      hurried_ = true;
    }
  }
}

void ProgramWatch::begin_to_end() noexcept {
  told_to_end_ = hurried_ = false;
  ending_ = true;
}

std::vector<Leftover> ProgramWatch::leftovers_after(std::chrono::milliseconds grace) {
  const os::Deadline deadline = os::Deadline::after(grace);
  for (;;) {
    reap_orphans(0);
    std::vector<Leftover> left = find_leftovers();
    if (left.empty() || deadline.passed() || hurried()) return left;
    wait_for(-1, os::earlier(deadline, os::Deadline::after(20ms)));
  }
}

std::vector<Leftover> ProgramWatch::end_all(std::chrono::milliseconds patience,
                                            const std::function<bool()>& watched) {
  return end_leftovers(patience, [&] {
    take_signals();
    if (watched && watched()) hurry();
    return hurried();
  });
}

std::string list_of(const std::vector<Leftover>& processes) {
  std::string text;
  for (const Leftover& process : processes)
    text += fmt::format("  {} ({})\n", process.pid, diag::printable(process.name));
  return text;
}

std::string stuck_text(const Leftover& process) {
  return fmt::format("the kernel does not give back process {} ({}): it is in {}", process.pid,
                     diag::printable(process.name), os::wait_channel(process.pid));
}

int exit_code_of(const os::ExitStatus& status) {
  switch (status.kind) {
    case os::ExitStatus::Kind::exited:
      return status.value;
    case os::ExitStatus::Kind::signalled:
      return 128 + status.value;
    case os::ExitStatus::Kind::unknown:
      break;
  }
  return kNotStarted;
}

}  // namespace strata::cli
