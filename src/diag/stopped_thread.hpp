// StoppedThread: a thread of another process, held still by ptrace for as long as the object lives.
//
//   SEIZE, INTERRUPT, wait ── registers(), its memory ── DETACH
//
// A seized thread is not disturbed in what it is at: no signal is sent, system calls without a
// time-out go on as if nothing had been. Those that the kernel does not restart after a stop
// (epoll_wait and the others of signal(7)) return EINTR, as they do for every debugger.
//
// Thread safety: an object is for the thread that made it; the kernel lets no other ask.
//
// Invariants
//   (1) No thread is left stopped that was not stopped before: the destructor lets it go, and where
//       this thread or process dies, the kernel does (PTRACE_O_EXITKILL is never set). A thread
//       that could not be stopped in time is let go when the calling thread ends: stop threads from
//       a thread that ends soon.
//   (2) A thread that SIGSTOP has stopped stays so.
//   (3) A signal that the thread was about to take when we stopped it reaches it.
//   (4) Nobody's exit status is taken: a thread that dies here is its parent's to wait for.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "os/deadline.hpp"

namespace strata::diag {

/// The registers from which a stack can be unwound, by the numbers that DWARF gives them.
struct Registers {
  static constexpr unsigned kCount = 16;
  std::uint64_t general[kCount] = {};
  std::uint64_t pc = 0;
  std::uint64_t thread_pointer = 0;  ///< What pthread_self() is there.
  [[nodiscard]] std::uint64_t sp() const noexcept { return general[7]; }  // x86-64
};

class StoppedThread {
 public:
  struct Failure {
    int error = 0;  ///< errno value; 0: it did not stop by the deadline.
    [[nodiscard]] bool gone() const noexcept;
    [[nodiscard]] bool refused() const noexcept;
  };

  /// Stops the thread. On failure has_registers() is false, and failure() says why.
  StoppedThread(pid_t thread, os::Deadline deadline);
  ~StoppedThread() { release(); }
  StoppedThread(const StoppedThread&) = delete;
  StoppedThread& operator=(const StoppedThread&) = delete;

  [[nodiscard]] const std::optional<Registers>& registers() const noexcept { return registers_; }
  [[nodiscard]] const Failure& failure() const noexcept { return failure_; }

  /// Lets it go. Returns for how long it has been held.
  std::chrono::nanoseconds release() noexcept;

 private:
  bool wait_for_stop(os::Deadline deadline);
  void read_registers();

  pid_t thread_;
  bool stopped_ = false;
  int pending_signal_ = 0;  ///< Was about to be delivered.
  std::int64_t stopped_at_ = 0;
  std::optional<Registers> registers_;
  Failure failure_;
};

}  // namespace strata::diag
