#include "os/child_process.hpp"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/fault_point.hpp"
#include "os/system_error.hpp"

namespace strata::os {
namespace {

// The C library's headers may be older than the kernel.
constexpr auto kWaitByPidfd = static_cast<idtype_t>(3);  // P_PIDFD, Linux 5.4

/// What PIDFD_GET_INFO fills in, in its first published form (Linux 6.13).
struct PidfdInfo {
  std::uint64_t mask;
  std::uint64_t cgroup;
  std::uint32_t ids[11];
  std::int32_t exit_code;  // Linux 6.15
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr unsigned long kPidfdGetInfo = _IOWR(0xFF, 11, PidfdInfo);
constexpr std::uint64_t kPidfdInfoExit = 1U << 3;

/// The status of a child that somebody else has waited for.
ExitStatus status_from_pidfd(int pidfd) noexcept {
  // Whoever waits for a process makes it vanish to us an instant before the kernel files its
  // status, so "not yet" is asked again for a moment.
  for (int tries = 0; tries < 100; ++tries) {
    PidfdInfo info{};
    info.mask = kPidfdInfoExit;
    if (::ioctl(pidfd, kPidfdGetInfo, &info) != 0) break;  // An older kernel.
    if ((info.mask & kPidfdInfoExit) != 0) return ExitStatus::from_wait_status(info.exit_code);
    const timespec moment{.tv_sec = 0, .tv_nsec = 100'000};
    ::nanosleep(&moment, nullptr);
  }
  return {};
}

/// Whether the process has ended, which a pidfd tells to anybody.
bool has_ended(int pidfd) noexcept {
  pollfd state{.fd = pidfd, .events = POLLIN, .revents = 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & POLLIN) != 0;
}

int wait_by_pidfd(int pidfd, siginfo_t* info) noexcept {
  if (const int error = base::fault_error("os.child.wait"); error != 0) {
    errno = error;
    return -1;
  }
  for (;;) {
    // __WALL: whatever signal the child sends when it ends.
    const int result =
        ::waitid(kWaitByPidfd, static_cast<id_t>(pidfd), info, WEXITED | WNOHANG | __WALL);
    if (result == 0 || errno != EINTR) return result;
  }
}

}  // namespace

std::string signal_name(int signal) {
  if (const char* name = ::sigabbrev_np(signal); name != nullptr) return std::string("SIG") + name;
  return "signal " + std::to_string(signal);
}

std::string signal_text(int signal) {
  const char* text = ::sigdescr_np(signal);
  if (text == nullptr) return signal_name(signal);
  // Lower case where it begins with a word, as it stands in the middle of a sentence.
  std::string result(text);
  if (result.size() > 1 && result[0] >= 'A' && result[0] <= 'Z' && result[1] >= 'a' &&
      result[1] <= 'z') {
    result[0] = static_cast<char>(result[0] - 'A' + 'a');
  }
  return result;
}

std::string ExitStatus::to_string() const {
  switch (kind) {
    case Kind::exited:
      return "exited with status " + std::to_string(value);
    case Kind::signalled:
      return "killed by signal " + std::to_string(value) + " (" + signal_text(value) + ")";
    case Kind::unknown:
      break;
  }
  return "ended, status unknown (reaped by the host program)";
}

ExitStatus ExitStatus::from_wait_status(int status) noexcept {
  if (WIFEXITED(status)) return {.kind = Kind::exited, .value = WEXITSTATUS(status)};
  if (WIFSIGNALED(status)) return {.kind = Kind::signalled, .value = WTERMSIG(status)};
  return {};
}

ChildProcess::ChildProcess(pid_t pid, UniqueFd pidfd) noexcept
    : pid_(pid), pidfd_(std::move(pidfd)) {}

std::optional<ExitStatus> ChildProcess::try_wait() {
  if (status_ || !pidfd_) return status_;
  siginfo_t info{};
  if (wait_by_pidfd(pidfd_.get(), &info) == 0) {
    if (info.si_pid == 0) return std::nullopt;
    status_ = ExitStatus{
        .kind = info.si_code == CLD_EXITED ? ExitStatus::Kind::exited : ExitStatus::Kind::signalled,
        .value = info.si_status};
  } else if (errno == ECHILD && has_ended(pidfd_.get())) {
    status_ = status_from_pidfd(pidfd_.get());
  }
  // Otherwise it is not ours to wait for and still runs (seen from a fork of this process), or a
  // test injects an error: a process which the kernel won't give back.
  return status_;
}

std::optional<ExitStatus> ChildProcess::wait(Deadline deadline) {
  for (;;) {
    if (auto status = try_wait(); status || !pidfd_ || deadline.passed()) return status;
    pollfd waiting{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, deadline.poll_timeout_ms()) < 0 && errno != EINTR) {
      throw_errno("can't wait for process " + std::to_string(pid_));
    }
    if ((waiting.revents & POLLIN) != 0) {
      if (auto status = try_wait(); status) return status;
      // It has ended and can't be waited for: only while threads of it still end, or while a test
      // injects that. No descriptor tells when that changes.
      const timespec moment{.tv_sec = 0, .tv_nsec = 1'000'000};
      ::nanosleep(&moment, nullptr);
    }
  }
}

bool ChildProcess::send(int signal) const {
  if (!pidfd_) return false;
  if (::syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0) == 0) return true;
  if (errno == ESRCH) return false;
  throw_errno("can't send " + signal_name(signal) + " to process " + std::to_string(pid_));
}

}  // namespace strata::os
