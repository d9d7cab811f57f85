#include "cli/leftovers.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <optional>
#include <set>
#include <thread>

#include "os/deadline.hpp"
#include "os/procfs.hpp"
#include "os/system_error.hpp"
#include "os/unique_fd.hpp"

namespace strata::cli {
namespace {

using namespace std::chrono_literals;

std::string name_of(pid_t pid, const os::ProcessInfo& info) {
  std::string text;
  for (const std::string& argument : os::command_line(pid)) {
    text += (text.empty() ? "" : " ") + argument;
  }
  return text.empty() ? info.comm : text;
}

/// Sends signals to the process that was found, and to no other that has got its number since.
void send(const Leftover& process, std::initializer_list<int> signals) {
  const os::UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0U)));
  if (!pidfd) return;
  // Read while the pidfd holds on to whoever has the number now.
  const std::optional<os::ProcessInfo> info = os::read_process(process.pid);
  if (!info || info->start_time != process.start_time) return;
  for (const int signal : signals)
    (void)::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0U);
}

void reap_all_but(const std::vector<pid_t>& except) {
  for (const pid_t pid : os::children_of(::getpid())) {
    if (std::ranges::find(except, pid) == except.end()) (void)::waitpid(pid, nullptr, WNOHANG);
  }
}

}  // namespace

void adopt_orphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1UL, 0UL, 0UL, 0UL) != 0) {
    os::throw_errno("become the parent of orphans");
  }
}

void reap_orphans(pid_t except) {
  for (;;) {
    siginfo_t ended{};
    // WNOWAIT: looks first, since the status of `except` is another's to take.
    if (::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (ended.si_pid == 0 || ended.si_pid == except) return;
    (void)::waitpid(ended.si_pid, nullptr, WNOHANG);
  }
}

std::vector<Leftover> find_leftovers(const std::vector<pid_t>& except) {
  std::vector<Leftover> found;
  std::set<pid_t> left_alone(except.begin(), except.end());
  for (const pid_t pid : os::descendants_of(::getpid())) {  // Parents come first.
    const std::optional<os::ProcessInfo> info = os::read_process(pid);
    if (!info) continue;
    if (left_alone.contains(pid) || left_alone.contains(info->ppid)) {
      left_alone.insert(pid);
      continue;
    }
    if (info->state == 'Z' || info->state == 'X') continue;
    found.push_back({pid, name_of(pid, *info), info->start_time});
  }
  return found;
}

std::vector<Leftover> end_leftovers(std::chrono::milliseconds patience,
                                    const std::function<bool()>& hurry,
                                    const std::vector<pid_t>& except) {
  const os::Deadline insist = os::Deadline::after(patience);
  const os::Deadline give_up = os::Deadline::after(patience + 10s);
  std::set<pid_t> asked;
  for (;;) {
    if (except.empty()) {
      reap_orphans(0);
    } else {
      reap_all_but(except);
    }
    std::vector<Leftover> left = find_leftovers(except);
    if (left.empty() || give_up.passed()) return left;
    const bool force = insist.passed() || hurry();
    for (const Leftover& process : left) {
      if (force) {
        send(process, {SIGKILL});
      } else if (asked.insert(process.pid).second) {
        send(process, {SIGTERM, SIGCONT});  // A stopped one hears nothing.
      }
    }
    std::this_thread::sleep_for(2ms);
  }
}

}  // namespace strata::cli
