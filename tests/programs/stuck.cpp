// Tasks that do not end, whatever one tells them. Part of libstrata_test_tasks.so.
//
// Those that hold a lock hold the real one, and say that they have begun only once they do:
//   hold_malloc  stands inside fork(), which has taken the locks of all of malloc's arenas and of
//                the list of stdio's files. It is kept there by a seccomp filter for this one
//                thread, whose listener never answers: the clone call in fork() waits for ever.
//   hold_loader  stands inside dlopen(), in a constructor that never returns.
//   hold_stdio   has locked stdout and stderr.
// (Under the address sanitizer malloc is not glibc's, and fork() does not lock it.)
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "beside.hpp"
#include "strata/worker_task.hpp"
#include "task_begun.hpp"

namespace {

using strata_test::begun;
using strata_test::flag_of;
using strata_test::note;

[[noreturn]] void sleep_on() {
  while (true) {
    timespec day{.tv_sec = 86'400, .tv_nsec = 0};
    ::nanosleep(&day, nullptr);
  }
}

[[noreturn]] void spin_on() {
  volatile std::uint64_t turns = 0;
  while (true)
    turns = turns + 1;
}

/// Makes every call of fork() in this thread wait for ever; the descriptor tells when one does.
int trap_fork() {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  std::array<sock_filter, 6> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fork, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  sock_fprog filter{.len = program.size(), .filter = program.data()};
  return static_cast<int>(
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter));
}

}  // namespace

STRATA_WORKER_FUNCTION(sleep_for_ever) {
  begun(task);
  sleep_on();
}

STRATA_WORKER_FUNCTION(spin) {
  begun(task);
  spin_on();
}

STRATA_WORKER_FUNCTION(spin_everywhere) {
  for (int i = 0; i < 4; ++i)
    std::thread(spin_on).detach();
  begun(task);
  spin_on();
}

STRATA_WORKER_FUNCTION(ignore_everything) {
  for (int signal = 1; signal < NSIG; ++signal)
    ::signal(signal, SIG_IGN);  // What can't be ignored stays as it is.
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  begun(task);
  sleep_on();
}

STRATA_WORKER_FUNCTION(hold_malloc) {
  std::int32_t* const flag = flag_of(task);
  static std::int32_t listener = 0;  // 0: not yet.
  std::thread([flag] {
    while (std::atomic_ref<std::int32_t>(listener).load() == 0)
      ::poll(nullptr, 0, 1);
    pollfd stuck{.fd = listener, .events = POLLIN, .revents = 0};
    ::poll(&stuck, 1, -1);
    if (flag != nullptr) note(flag, ::getpid());
    sleep_on();
  }).detach();
  const int fd = trap_fork();
  if (fd <= 0) throw std::runtime_error("no seccomp filter with a listener: " + std::to_string(fd));
  std::atomic_ref<std::int32_t>(listener).store(fd);
  const pid_t child = ::fork();  // Never returns.
  if (child == 0) std::_Exit(0);
  throw std::runtime_error("fork was not held up");
}

STRATA_WORKER_FUNCTION(hold_loader) {
  // The constructor finds the flag through the environment.
  const std::string at = std::to_string(reinterpret_cast<std::uintptr_t>(flag_of(task)));
  ::setenv("STRATA_TEST_FLAG_AT", at.c_str(), 1);
  ::dlopen(strata_test::beside("libstrata_test_constructor_hangs.so").c_str(), RTLD_NOW);
  throw std::runtime_error("the constructor returned");
}

STRATA_WORKER_FUNCTION(hold_stdio) {
  ::flockfile(stdout);
  ::flockfile(stderr);
  begun(task);
  sleep_on();
}
