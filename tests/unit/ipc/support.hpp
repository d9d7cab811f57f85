// What the tests of the mailbox share: its two ends, in one process or in two.
//
// Thread safety: as the ends themselves.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "ipc/mailbox.hpp"
#include "os/event_fd.hpp"

namespace strata::ipc::test {

/// A mailbox and what wakes its parent.
struct Memory {
  explicit Memory(const MailboxOptions& options = {})
      : memfd(make_mailbox(options)), event(os::EventFd::make()) {}
  os::UniqueFd memfd;
  os::EventFd event;
};

/// Both ends in this process.
struct Ends : Memory {
  explicit Ends(const MailboxOptions& options = {})
      : Memory(options), parent(memfd.get()), worker(memfd.get(), event.fd(), nullptr) {}
  MailboxParent parent;
  MailboxWorker worker;
};

inline Submission numbered(std::uint64_t dispatch) {
  return {.header = {.dispatch = dispatch, .task = dispatch << 22U}};
}

inline CompletionFrame done(std::uint64_t dispatch) {
  CompletionFrame frame;
  frame.dispatch = dispatch;
  return frame;
}

/// A child made by fork, which runs `body` and exits with what that returns. Only for programs
/// with one thread. Killed, if it still runs, and waited for at the end.
class ForkedChild {
 public:
  template <class Body>
  explicit ForkedChild(Body body) : pid_(fork()) {
    if (pid_ == 0) {
      int status = 125;
      try {
        status = body();
      } catch (...) {
      }
      _exit(status);
    }
  }
  ForkedChild(const ForkedChild&) = delete;
  ForkedChild& operator=(const ForkedChild&) = delete;
  ~ForkedChild() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      (void)wait();
    }
  }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void send(int signal) const noexcept { kill(pid_, signal); }
  /// Its wait status.
  int wait() {
    int status = -1;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  pid_t pid_;
};

}  // namespace strata::ipc::test
