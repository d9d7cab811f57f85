#include "cli/leftovers.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <set>
#include <thread>

#include "os/deadline.hpp"
#include "os/procfs.hpp"
#include "os/system_error.hpp"

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

std::vector<Leftover> find_leftovers() {
  std::vector<Leftover> found;
  for (const pid_t pid : os::descendants_of(::getpid())) {
    const std::optional<os::ProcessInfo> info = os::read_process(pid);
    if (!info || info->state == 'Z' || info->state == 'X') continue;
    found.push_back({pid, name_of(pid, *info)});
  }
  return found;
}

std::vector<Leftover> end_leftovers(std::chrono::milliseconds patience,
                                    const std::function<bool()>& hurry) {
  const os::Deadline insist = os::Deadline::after(patience);
  const os::Deadline give_up = os::Deadline::after(patience + 10s);
  std::set<pid_t> asked;
  for (;;) {
    reap_orphans(0);
    std::vector<Leftover> left = find_leftovers();
    if (left.empty() || give_up.passed()) return left;
    const bool force = insist.passed() || hurry();
    for (const Leftover& process : left) {
      // It was alive a moment ago; numbers are not given out again that fast.
      if (force) {
        (void)::kill(process.pid, SIGKILL);
      } else if (asked.insert(process.pid).second) {
        (void)::kill(process.pid, SIGTERM);
        (void)::kill(process.pid, SIGCONT);  // A stopped one hears nothing.
      }
    }
    std::this_thread::sleep_for(2ms);
  }
}

}  // namespace strata::cli
