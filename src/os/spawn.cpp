#include "os/spawn.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/fault_point.hpp"
#include "os/mapping.hpp"
#include "os/system_error.hpp"

// Code of the child between clone and exec: it runs on memory that a sleeping thread of the parent
// owns, so it must leave no trace in the books of a sanitizer, which it would share.
#if defined(__clang__) && __has_attribute(disable_sanitizer_instrumentation)
// clang 14 goes by the first for the thread sanitizer and by the second for the address sanitizer,
// which would leave its marks on the child's stack for whoever gets that memory next.
#define STRATA_CHILD_CODE \
  __attribute__((disable_sanitizer_instrumentation, no_sanitize("address", "undefined"), noinline))
#elif defined(__GNUC__) && !defined(__clang__)
#define STRATA_CHILD_CODE \
  __attribute__((no_sanitize("address", "thread", "undefined"), noinline, no_stack_protector))
#else
#define STRATA_CHILD_CODE __attribute__((no_sanitize("address", "thread", "undefined"), noinline))
#endif

namespace strata::os {
namespace {

/// Where the child is; the names are in step_text().
enum class Step : int {
  none,
  group,
  cgroup,
  parent_death,
  signals,
  move_program,
  move_descriptor,
  close_descriptors,
  exec,
};

const char* step_text(Step step) noexcept {
  switch (step) {
    case Step::none:
      return "clone";
    case Step::group:
      return "make a process group";
    case Step::cgroup:
      return "join the cgroup";
    case Step::parent_death:
      return "ask for a signal at the parent's death";
    case Step::signals:
      return "reset the signals";
    case Step::move_program:
      return "move the program's descriptor";
    case Step::move_descriptor:
      return "move a descriptor to its place";
    case Step::close_descriptors:
      return "close the other descriptors";
    case Step::exec:
      return "exec";
  }
  return "?";
}

/// The kernel's own form of a signal's action; the C library's differs.
struct KernelAction {
  void* handler;
  unsigned long flags;
  void* restorer;
  std::uint64_t mask;
};

/// What the child needs, all of it made before. The parent's thread sleeps while the child reads
/// it, and reads `step` and `error`, which the child writes, after that.
struct Plan {
  int program_fd;
  const char* path;
  char* const* argv;
  char* const* envp;
  SpawnOptions::Descriptor* descriptors;  ///< In order of `to`; the child changes `from`.
  SpawnOptions::Descriptor* descriptors_end;
  int first_free;  ///< Above every `to`.
  bool own_process_group;
  int cgroup_to_join;  ///< Where the kernel could not put it there at birth; otherwise -1.
  bool die_with_parent;
  pid_t parent;
  Step step;
  int error;
};

#if defined(__x86_64__)

/// A system call as it is: no errno, which the child shares with the parent's thread, and nothing
/// that a sanitizer or a library could have put before it. Negative errno value on failure.
STRATA_CHILD_CODE long raw_call(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                                long e = 0) noexcept {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  long result = number;
  __asm__ volatile("syscall"
                   : "+a"(result)
                   : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                   : "rcx", "r11", "memory");
  return result;
}

/// clone() or clone3() as it is: the thread sanitizer puts one of its own before the C library's,
/// takes the child for a fork, and ends the program at its next thread. The child calls
/// `entry(argument)` on the new stack, and must not return. Negative errno value on failure.
STRATA_CHILD_CODE long raw_clone(long number, long a, long b, long c, int (*entry)(void*),
                                 void* argument) noexcept {
  register long r10 __asm__("r10") = 0;
  register long r8 __asm__("r8") = 0;
  // In registers by name: the child has no other place from which it could read them.
  register int (*r12)(void*) __asm__("r12") = entry;
  register void* r13 __asm__("r13") = argument;
  long result = number;
  __asm__ volatile(
      "syscall\n\t"
      "testq %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xorl %%ebp, %%ebp\n\t"  // The outermost frame.
      "movq %%r13, %%rdi\n\t"
      "callq *%%r12\n\t"
      "hlt\n"
      "1:"
      : "+a"(result)
      : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r12), "r"(r13)
      : "rcx", "r11", "memory", "cc");
  return result;
}

long clone_child(int (*entry)(void*), const Mapping& stack, long flags, void* argument,
                 int* pidfd) noexcept {
  return raw_clone(SYS_clone, flags | SIGCHLD, reinterpret_cast<long>(stack.data() + stack.size()),
                   reinterpret_cast<long>(pidfd), entry, argument);
}

/// The same for a child that is born in a cgroup. One that joins by itself waits in the kernel
/// until every CPU has passed a quiet state: some milliseconds.
long clone_child_into(int cgroup, int (*entry)(void*), const Mapping& stack, long flags,
                      void* argument, int* pidfd) noexcept {
  clone_args args{};
  args.flags = static_cast<std::uint64_t>(flags) | CLONE_INTO_CGROUP;
  args.pidfd = reinterpret_cast<std::uint64_t>(pidfd);
  args.exit_signal = SIGCHLD;
  args.stack = reinterpret_cast<std::uint64_t>(stack.data());
  args.stack_size = stack.size();
  args.cgroup = static_cast<std::uint64_t>(cgroup);
  return raw_clone(SYS_clone3, reinterpret_cast<long>(&args), sizeof args, 0, entry, argument);
}

#else

// The same through the C library: good enough where nobody runs the sanitizers. errno is written,
// which the parent's thread does not look at.
long raw_call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) noexcept {
  const long result = ::syscall(number, a, b, c, d, e);
  return result < 0 ? -errno : result;
}

long clone_child(int (*entry)(void*), const Mapping& stack, long flags, void* argument,
                 int* pidfd) noexcept {
  const int result = ::clone(entry, stack.data() + stack.size(), static_cast<int>(flags) | SIGCHLD,
                             argument, pidfd);
  return result < 0 ? -errno : result;
}

/// The C library has no clone3: the child joins by itself.
long clone_child_into(int, int (*)(void*), const Mapping&, long, void*, int*) noexcept {
  return -ENOSYS;
}

#endif

STRATA_CHILD_CODE long address(const void* pointer) noexcept {
  return reinterpret_cast<long>(pointer);
}

/// Moves a descriptor above every place that is to be filled. Negative errno value on failure.
STRATA_CHILD_CODE long move_away(int fd, const Plan& plan) noexcept {
  return raw_call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, plan.first_free);
}

/// Puts each descriptor at its place. What lies at a place that is to be filled is moved away
/// first, so that no order of moves matters.
STRATA_CHILD_CODE long place_descriptors(Plan& plan) noexcept {
  if (plan.program_fd >= 0 && plan.program_fd < plan.first_free) {
    plan.step = Step::move_program;
    const long moved = move_away(plan.program_fd, plan);
    if (moved < 0) return moved;
    plan.program_fd = static_cast<int>(moved);
  }
  plan.step = Step::move_descriptor;
  SpawnOptions::Descriptor* const begin = plan.descriptors;
  SpawnOptions::Descriptor* const end = plan.descriptors_end;
  for (SpawnOptions::Descriptor* it = begin; it != end; ++it) {
    if (it->from >= plan.first_free) continue;
    const long moved = move_away(it->from, plan);
    if (moved < 0) return moved;
    it->from = static_cast<int>(moved);
  }
  for (SpawnOptions::Descriptor* it = begin; it != end; ++it) {
    // Never the same number, for which dup3 would fail: `from` is above all places.
    const long result = raw_call(SYS_dup3, it->from, it->to, 0);
    if (result < 0) return result;
  }
  plan.step = Step::close_descriptors;
  int next = 0;  // The lowest number that may have to be closed.
  for (const SpawnOptions::Descriptor* it = begin; it != end; ++it) {
    if (it->to > next) {
      const long result = raw_call(SYS_close_range, next, it->to - 1, 0);
      if (result < 0) return result;
    }
    next = it->to + 1;
  }
  // The rest at exec only: the program's own descriptor is among them.
  constexpr long kCloseOnExec = 1L << 2;  // CLOSE_RANGE_CLOEXEC
  return raw_call(SYS_close_range, next, 0xffffffffL, kCloseOnExec);
}

/// All signals to their default actions. The parent's handlers must be gone before any signal is
/// let through, since they would run on the parent's memory; exec alone would keep what is ignored.
STRATA_CHILD_CODE long reset_signals() noexcept {
  KernelAction action;
  action.handler = nullptr;  // SIG_DFL
  action.flags = 0;
  action.restorer = nullptr;
  action.mask = 0;
  for (int signal = 1; signal <= 64; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP) continue;
    const long result =
        raw_call(SYS_rt_sigaction, signal, address(&action), 0, sizeof(action.mask));
    if (result < 0) return result;
  }
  const std::uint64_t none = 0;
  return raw_call(SYS_rt_sigprocmask, SIG_SETMASK, address(&none), 0, sizeof none);
}

/// Everything up to exec. Returns only if a step failed.
STRATA_CHILD_CODE long prepare_and_exec(Plan& plan) noexcept {
  long result = 0;
  if (plan.own_process_group) {
    plan.step = Step::group;
    result = raw_call(SYS_setpgid, 0, 0);
    if (result < 0) return result;
  }
  if (plan.cgroup_to_join >= 0) {
    plan.step = Step::cgroup;
    const char name[] = {'c', 'g', 'r', 'o', 'u', 'p', '.', 'p', 'r', 'o', 'c', 's', '\0'};
    const long procs =
        raw_call(SYS_openat, plan.cgroup_to_join, address(name), O_WRONLY | O_CLOEXEC);
    if (procs < 0) return procs;
    const char self = '0';
    result = raw_call(SYS_write, procs, address(&self), 1);
    if (result < 0) return result;
  }
  if (plan.die_with_parent) {
    plan.step = Step::parent_death;
    result = raw_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
    if (result < 0) return result;
    // A parent that died before that sends nothing any more; then the child is another's.
    if (raw_call(SYS_getppid) != plan.parent) raw_call(SYS_exit_group, 128 + SIGKILL);
  }
  result = place_descriptors(plan);
  if (result < 0) return result;
  plan.step = Step::signals;
  result = reset_signals();
  if (result < 0) return result;
  plan.step = Step::exec;
  if (plan.program_fd >= 0) {
    const char nothing = '\0';
    return raw_call(SYS_execveat, plan.program_fd, address(&nothing), address(plan.argv),
                    address(plan.envp), AT_EMPTY_PATH);
  }
  return raw_call(SYS_execve, address(plan.path), address(plan.argv), address(plan.envp));
}

STRATA_CHILD_CODE int child_main(void* argument) noexcept {
  Plan& plan = *static_cast<Plan*>(argument);
  plan.error = static_cast<int>(-prepare_and_exec(plan));
  raw_call(SYS_exit_group, 127);
  return 127;
}

/// Blocks every signal for the calling thread, also those that the C library keeps to itself.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() noexcept {
    const std::uint64_t all = ~std::uint64_t{0};
    raw_call(SYS_rt_sigprocmask, SIG_SETMASK, address(&all), address(&before_), sizeof before_);
  }
  ~AllSignalsBlocked() {
    raw_call(SYS_rt_sigprocmask, SIG_SETMASK, address(&before_), 0, sizeof before_);
  }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  std::uint64_t before_ = 0;
};

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  // exec wants them writable and does not write.
  for (const std::string& string : strings)
    result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

std::string name_of(const SpawnOptions& options) {
  if (!options.path.empty()) return "'" + options.path + "'";
  if (!options.argv.empty()) return "'" + options.argv.front() + "'";
  return "a program";
}

/// The descriptors in order of their places. Throws InvalidArgument.
std::vector<SpawnOptions::Descriptor> in_order(const SpawnOptions& options) {
  auto result = options.descriptors;
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.to < b.to; });
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (result[i].from < 0 || result[i].to < 0) {
      throw InvalidArgument("can't start " + name_of(options) + ": descriptor " +
                            std::to_string(result[i].from) + " can't become descriptor " +
                            std::to_string(result[i].to));
    }
    if (i > 0 && result[i].to == result[i - 1].to) {
      throw InvalidArgument("can't start " + name_of(options) + ": two descriptors would become " +
                            std::to_string(result[i].to));
    }
  }
  return result;
}

}  // namespace

ChildProcess spawn(const SpawnOptions& options) {
  if (options.program_fd < 0 && options.path.empty()) {
    throw InvalidArgument("can't start a program: neither descriptor nor path of it is given");
  }
  auto descriptors = in_order(options);
  const std::vector<char*> argv = pointers_to(options.argv);
  const std::vector<char*> envp = pointers_to(options.envp);
  Plan plan{
      .program_fd = options.program_fd,
      .path = options.path.c_str(),
      .argv = argv.data(),
      .envp = envp.data(),
      .descriptors = descriptors.data(),
      .descriptors_end = descriptors.data() + descriptors.size(),
      .first_free = descriptors.empty() ? 0 : descriptors.back().to + 1,
      .own_process_group = options.own_process_group,
      .cgroup_to_join = -1,
      .die_with_parent = options.die_with_parent,
      .parent = static_cast<pid_t>(raw_call(SYS_getpid)),  // As the kernel sees it after a fork.
      .step = Step::none,
      .error = base::fault_error("os.spawn"),
  };
  // The child needs some hundred bytes; the rest is for builds that are not optimised.
  constexpr std::size_t kStack = 32 * 1024;
  const Mapping stack = Mapping::anonymous(kStack);

  int pidfd = -1;
  pid_t pid = -1;
  if (plan.error == 0) {
    const AllSignalsBlocked blocked;
    constexpr long kFlags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD;
    const int cgroup = options.cgroup_fd;
    long result = -(cgroup < 0 ? ENOSYS : base::fault_error("os.clone_into_cgroup"));
    if (result == 0) result = clone_child_into(cgroup, child_main, stack, kFlags, &plan, &pidfd);
    // No such call here, or a filter of system calls that does not let it through.
    if (result == -ENOSYS || result == -EPERM) {
      plan.cgroup_to_join = cgroup;
      result = clone_child(child_main, stack, kFlags, &plan, &pidfd);
    } else if (result < 0) {
      plan.step = Step::cgroup;
    }
    if (result < 0) {
      plan.error = static_cast<int>(-result);
    } else {
      pid = static_cast<pid_t>(result);
    }
  }
  ChildProcess child(pid, UniqueFd(pidfd));
  if (plan.error != 0) {
    if (pid >= 0) (void)child.wait(Deadline::never());
    throw SystemError("can't start " + name_of(options) + ": can't " + step_text(plan.step),
                      plan.error);
  }
  return child;
}

std::vector<std::string> current_environment() {
  std::vector<std::string> result;
  for (char** variable = ::environ; variable != nullptr && *variable != nullptr; ++variable)
    result.emplace_back(*variable);
  return result;
}

}  // namespace strata::os
