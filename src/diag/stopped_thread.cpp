#include "diag/stopped_thread.hpp"

#include <elf.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

namespace strata::diag {
namespace {

void pause_for(std::chrono::nanoseconds time) {
  timespec pause{.tv_sec = 0, .tv_nsec = time.count()};
  ::nanosleep(&pause, nullptr);
}

}  // namespace

bool StoppedThread::Failure::gone() const noexcept { return error == ESRCH; }
bool StoppedThread::Failure::refused() const noexcept {
  return error == EPERM || error == EACCES || error == ENOSYS;
}

StoppedThread::StoppedThread(pid_t thread, os::Deadline deadline) : thread_(thread) {
  if (::ptrace(PTRACE_SEIZE, thread_, nullptr, nullptr) != 0) {
    failure_.error = errno;
    return;
  }
  // A thread that SIGSTOP has stopped is trapped by the seizing already; asking again does no harm.
  if (::ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr) != 0) {
    failure_.error = errno;
    return;
  }
  if (!wait_for_stop(deadline)) return;
  read_registers();
}

bool StoppedThread::wait_for_stop(os::Deadline deadline) {
  using namespace std::chrono_literals;
  std::chrono::nanoseconds nap = 20us;
  for (;;) {
    siginfo_t event{};
    // WNOWAIT: should it have died, its status is for whoever else waits for it. WEXITED: only so
    // is that seen.
    const int got = ::waitid(P_PID, static_cast<id_t>(thread_), &event,
                             WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL | __WNOTHREAD);
    if (got != 0 && errno != EINTR) {
      failure_.error = ESRCH;
      return false;
    }
    if (got == 0 && event.si_pid == thread_) {
      if (event.si_code != CLD_TRAPPED && event.si_code != CLD_STOPPED) {
        failure_.error = ESRCH;
        return false;
      }
      stopped_ = true;
      stopped_at_ = os::monotonic_now_ns();
      // Without an event in the upper bits it is a signal on its way to the thread.
      if (event.si_status >> 8 == 0) pending_signal_ = event.si_status;
      return true;
    }
    if (deadline.passed()) return false;
    pause_for(nap);
    nap = std::min<std::chrono::nanoseconds>(2 * nap, 1ms);
  }
}

void StoppedThread::read_registers() {
#if defined(__x86_64__)
  user_regs_struct given{};
  iovec room{.iov_base = &given, .iov_len = sizeof given};
  if (::ptrace(PTRACE_GETREGSET, thread_, NT_PRSTATUS, &room) != 0) {
    failure_.error = errno;
    return;
  }
  if (room.iov_len != sizeof given) {  // A 32-bit program.
    failure_.error = ENOEXEC;
    return;
  }
  registers_ = Registers{
      {given.rax, given.rdx, given.rcx, given.rbx, given.rsi, given.rdi, given.rbp, given.rsp,
       given.r8, given.r9, given.r10, given.r11, given.r12, given.r13, given.r14, given.r15},
      given.rip,
      given.fs_base};
#else
  failure_.error = ENOEXEC;
#endif
}

std::chrono::nanoseconds StoppedThread::release() noexcept {
  if (!stopped_) return std::chrono::nanoseconds(0);
  stopped_ = false;
  (void)::ptrace(PTRACE_DETACH, thread_, nullptr, static_cast<long>(pending_signal_));
  return std::chrono::nanoseconds(os::monotonic_now_ns() - stopped_at_);
}

}  // namespace strata::diag
