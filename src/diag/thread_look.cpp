#include "diag/thread_look.hpp"

#include <dirent.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <sstream>
#include <string_view>

#include "os/procfs.hpp"

namespace strata::diag {
namespace {

std::string task_file(pid_t pid, pid_t thread, std::string_view file) {
  return fmt::format("/proc/{}/task/{}/{}", pid, thread, file);
}

std::string without_end(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\0'))
    text.pop_back();
  return text;
}

/// The two first numbers of "on_cpu_ns waited_ns slices".
void read_times(const std::string& text, ThreadLook& look) {
  std::istringstream words(text);
  std::uint64_t ran = 0;
  std::uint64_t queued = 0;
  if (!(words >> ran >> queued >> look.switches)) return;
  look.cpu_time = std::chrono::nanoseconds(static_cast<std::int64_t>(ran));
  look.wanted_time = look.cpu_time + std::chrono::nanoseconds(static_cast<std::int64_t>(queued));
}

/// From the fields of stat, which count in ticks, where the kernel keeps no finer times.
void read_coarse_times(const os::ProcessInfo& info, ThreadLook& look) {
  const long per_second = std::max(1L, ::sysconf(_SC_CLK_TCK));
  look.cpu_time = std::chrono::nanoseconds(static_cast<std::int64_t>(info.cpu_ticks) *
                                           (1'000'000'000 / per_second));
  look.wanted_time = look.cpu_time;
}

struct CallName {
  long number;
  const char* name;
  const char* does;  ///< Null: the name says it.
  bool has_descriptor = false;
};
constexpr CallName kCalls[] = {
    {SYS_read, "read", nullptr, true},
    {SYS_write, "write", nullptr, true},
    {SYS_readv, "readv", nullptr, true},
    {SYS_writev, "writev", nullptr, true},
    {SYS_pread64, "pread64", nullptr, true},
    {SYS_pwrite64, "pwrite64", nullptr, true},
    {SYS_recvfrom, "recvfrom", nullptr, true},
    {SYS_recvmsg, "recvmsg", nullptr, true},
    {SYS_recvmmsg, "recvmmsg", nullptr, true},
    {SYS_sendto, "sendto", nullptr, true},
    {SYS_sendmsg, "sendmsg", nullptr, true},
    {SYS_accept, "accept", nullptr, true},
    {SYS_accept4, "accept4", nullptr, true},
    {SYS_connect, "connect", nullptr, true},
    {SYS_flock, "flock", nullptr, true},
    {SYS_fcntl, "fcntl", nullptr, true},
    {SYS_ioctl, "ioctl", nullptr, true},
    {SYS_fsync, "fsync", nullptr, true},
    {SYS_splice, "splice", nullptr, true},
    {SYS_sendfile, "sendfile", nullptr, true},
    {SYS_epoll_wait, "epoll_wait", nullptr, true},
    {SYS_epoll_pwait, "epoll_pwait", nullptr, true},
    {SYS_epoll_pwait2, "epoll_pwait2", nullptr, true},
    {SYS_io_uring_enter, "io_uring_enter", nullptr, true},
    {SYS_futex_waitv, "futex_waitv", "waits on several words"},
    {SYS_poll, "poll", "waits for descriptors"},
    {SYS_ppoll, "ppoll", "waits for descriptors"},
    {SYS_select, "select", "waits for descriptors"},
    {SYS_pselect6, "pselect6", "waits for descriptors"},
    {SYS_nanosleep, "nanosleep", "sleeps"},
    {SYS_clock_nanosleep, "clock_nanosleep", "sleeps"},
    {SYS_pause, "pause", "waits for a signal"},
    {SYS_rt_sigsuspend, "rt_sigsuspend", "waits for a signal"},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait", "waits for a signal"},
    {SYS_restart_syscall, "restart_syscall", "goes on with a wait that was interrupted"},
    {SYS_msgrcv, "msgrcv", "waits for a message"},
    {SYS_semop, "semop", "waits for a semaphore"},
    {SYS_semtimedop, "semtimedop", "waits for a semaphore"},
    {SYS_vfork, "vfork", "waits until its child calls exec or ends"},
    {SYS_clone, "clone", nullptr},
    {SYS_clone3, "clone3", nullptr},
    {SYS_open, "open", nullptr},
    {SYS_openat, "openat", nullptr},
    {SYS_exit_group, "exit_group", nullptr},
    {SYS_execve, "execve", nullptr},
};

const CallName* find_call(long number) {
  const auto* const found = std::ranges::find(kCalls, number, &CallName::number);
  return found == std::end(kCalls) ? nullptr : found;
}

std::string describe_futex(const SystemCall& call) {
  const int operation = static_cast<int>(call.arguments[1]) & FUTEX_CMD_MASK;
  const char* const what =
      operation == FUTEX_LOCK_PI || operation == FUTEX_LOCK_PI2 ? "locks" : "waits on";
  return fmt::format("futex: {} {:#x}", what, call.arguments[0]);
}

std::string describe_child_wait(const char* name, std::int64_t child) {
  return child > 0 ? fmt::format("{}: waits for its child {}", name, child)
                   : fmt::format("{}: waits for a child", name);
}

}  // namespace

std::optional<SystemCall> parse_system_call(const std::string& text) {
  std::istringstream words(text);
  SystemCall call;
  if (!(words >> call.number) || call.number < 0) return std::nullopt;
  words >> std::hex;
  const auto number = [&](std::uint64_t& value) {
    std::string word;
    if (!(words >> word) || !word.starts_with("0x")) return false;
    const char* const end = word.data() + word.size();
    return std::from_chars(word.data() + 2, end, value, 16).ptr == end;
  };
  for (std::uint64_t& argument : call.arguments) {
    if (!number(argument)) return std::nullopt;
  }
  if (!number(call.sp) || !number(call.pc)) return std::nullopt;
  return call;
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  const auto close = [](DIR* directory) { ::closedir(directory); };
  const std::unique_ptr<DIR, decltype(close)> directory(
      ::opendir(fmt::format("/proc/{}/task", pid).c_str()), close);
  if (directory == nullptr) return threads;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    pid_t thread = 0;
    const char* const end = name.data() + name.size();
    if (std::from_chars(name.data(), end, thread).ptr == end) threads.push_back(thread);
  }
  std::ranges::sort(threads);
  return threads;
}

char state_of_thread(pid_t pid, pid_t thread) {
  const auto stat = os::parse_process(
      os::read_small_file(task_file(pid, thread, "stat")).value_or(std::string()));
  return stat ? stat->state : 'X';
}

std::vector<ThreadLook> look_at_threads(pid_t pid) {
  std::vector<ThreadLook> looks;
  for (const pid_t thread : threads_of(pid)) {
    const auto stat = os::parse_process(
        os::read_small_file(task_file(pid, thread, "stat")).value_or(std::string()));
    if (!stat) continue;
    ThreadLook look;
    look.thread = thread;
    look.name = stat->comm;
    look.state = stat->state;
    read_coarse_times(*stat, look);
    const auto read = [&](const char* file) {
      return without_end(os::read_small_file(task_file(pid, thread, file)).value_or(""));
    };
    read_times(read("schedstat"), look);
    look.wait_channel = read("wchan");
    if (look.wait_channel == "0") look.wait_channel.clear();
    look.call = parse_system_call(read("syscall"));
    looks.push_back(std::move(look));
  }
  return looks;
}

std::string name_of_call(long number) {
  if (number == SYS_futex) return "futex";
  if (number == SYS_wait4) return "wait4";
  if (number == SYS_waitid) return "waitid";
  const CallName* const known = find_call(number);
  return known != nullptr ? known->name : fmt::format("system call {}", number);
}

std::optional<int> descriptor_of(const SystemCall& call) {
  const CallName* const known = find_call(call.number);
  if (known == nullptr || !known->has_descriptor) return std::nullopt;
  return static_cast<int>(call.arguments[0]);
}

std::string describe_call(pid_t pid, const SystemCall& call) {
  if (call.number == SYS_futex) return describe_futex(call);
  const auto first = static_cast<std::int32_t>(call.arguments[0]);
  if (call.number == SYS_wait4) return describe_child_wait("wait4", first);
  if (call.number == SYS_waitid) {
    constexpr int kOneProcess = 1;  // P_PID
    return describe_child_wait(
        "waitid", first == kOneProcess ? static_cast<std::int32_t>(call.arguments[1]) : 0);
  }
  std::string text = name_of_call(call.number);
  const CallName* const known = find_call(call.number);
  if (known != nullptr && known->does != nullptr) return text + ": " + known->does;
  if (const auto fd = descriptor_of(call)) {
    std::string target(4096, '\0');
    const ssize_t size =
        ::readlink(fmt::format("/proc/{}/fd/{}", pid, *fd).c_str(), target.data(), target.size());
    target.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    text += fmt::format(" of descriptor {}", *fd);
    if (!target.empty()) text += " (" + target + ")";
  }
  return text;
}

}  // namespace strata::diag
