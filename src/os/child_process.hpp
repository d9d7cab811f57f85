// ChildProcess: owner of a child, held by a pidfd, so it never means another process that got the
// same number.
//
// Thread safety: send(), pid() and pidfd() may be called from any thread; waiting from one at a
// time.
//
// Invariants
//   (1) The host program may reap our children (waitpid(-1), SIGCHLD ignored): that a child has
//       ended is never an error, and its status is then asked of the pidfd (Linux 6.15 or later) or
//       is unknown.
//   (2) Once a status was returned, the same is returned again.
//   (3) The destructor neither waits nor kills: a child that was not waited for becomes a zombie
//       until this process ends. Owners that want better say so.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "os/deadline.hpp"
#include "os/unique_fd.hpp"

namespace strata::os {

/// How a process ended.
struct ExitStatus {
  enum class Kind : std::uint8_t { exited, signalled, unknown };
  Kind kind = Kind::unknown;
  int value = 0;  ///< The exit code, or the signal's number.

  /// exit(0).
  [[nodiscard]] bool clean() const noexcept { return kind == Kind::exited && value == 0; }
  /// "exited with status 7", "killed by signal 11 (segmentation fault)", or "ended, status unknown
  /// (reaped by the host program)".
  [[nodiscard]] std::string to_string() const;
  /// From the number that waitpid() gives.
  [[nodiscard]] static ExitStatus from_wait_status(int status) noexcept;
  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

/// "SIGSEGV"; "signal 99" for one that has no name.
[[nodiscard]] std::string signal_name(int signal);
/// "segmentation fault"; the name where there is no text.
[[nodiscard]] std::string signal_text(int signal);

class ChildProcess {
 public:
  ChildProcess() = default;
  /// Takes over a child of this process.
  ChildProcess(pid_t pid, UniqueFd pidfd) noexcept;
  ChildProcess(ChildProcess&&) = default;
  ChildProcess& operator=(ChildProcess&&) = default;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() = default;

  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(pidfd_); }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Readable once the process has ended.
  [[nodiscard]] int pidfd() const noexcept { return pidfd_.get(); }

  /// Waits for the child if it has ended, else returns nothing.
  [[nodiscard]] std::optional<ExitStatus> try_wait();
  /// Waits until it has ended or the deadline has passed.
  [[nodiscard]] std::optional<ExitStatus> wait(Deadline deadline);
  /// What a wait has returned.
  [[nodiscard]] const std::optional<ExitStatus>& status() const noexcept { return status_; }

  /// Sends a signal. False if the process has ended. Throws SystemError if it may not.
  bool send(int signal) const;

 private:
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  std::optional<ExitStatus> status_;
};

}  // namespace strata::os
