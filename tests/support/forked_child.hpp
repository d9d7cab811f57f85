// ForkedChild: a second process, made by fork, for tests of what two processes do to each other.
//
// Thread safety: none. Make it while the program has one thread, and make no thread in the child.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace strata::test {

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

}  // namespace strata::test
