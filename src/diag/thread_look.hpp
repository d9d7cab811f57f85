// What /proc says of the threads of a process, with no leave but to read it: name, state, what each
// waits for, and how much of a CPU it wants.
//
// Two looks tell a thread that computes or spins from one that waits. What counts is the time that
// a thread ran or stood in the queue for a CPU, so a thread that spins is seen on a machine on
// which it hardly gets to run, too. The kernel counts the latter late, so whoever takes the looks
// watches the states between them as well.
//
// Thread safety: free functions; any thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace strata::diag {

/// A system call that a thread is in.
struct SystemCall {
  long number = 0;
  std::array<std::uint64_t, 6> arguments{};
  std::uint64_t sp = 0;
  std::uint64_t pc = 0;
};

struct ThreadLook {
  pid_t thread = 0;
  std::string name;
  char state = '?';          ///< 'R', 'S', 'D', 'Z', 'T', 't' as in ps.
  std::string wait_channel;  ///< Function of the kernel it waits in; "" if that is not told.
  std::optional<SystemCall> call;
  std::chrono::nanoseconds cpu_time{0};     ///< So far.
  std::chrono::nanoseconds wanted_time{0};  ///< That, and what it has stood in the queue.
  std::uint64_t switches = 0;               ///< How often it has begun to run.
};

/// All threads, the first one first. Empty if the process is gone.
[[nodiscard]] std::vector<ThreadLook> look_at_threads(pid_t pid);
/// The state of one; 'X' if it is gone.
[[nodiscard]] char state_of_thread(pid_t pid, pid_t thread);
/// Ids only.
[[nodiscard]] std::vector<pid_t> threads_of(pid_t pid);

/// "read"; "system call 451" for a number that has no name here.
[[nodiscard]] std::string name_of_call(long number);
/// What a thread of this process does there: "read of descriptor 3 (pipe:[123])", "futex: waits on
/// 0x7f00", "wait4: waits for a child".
[[nodiscard]] std::string describe_call(pid_t pid, const SystemCall& call);
/// The descriptor that it waits for; nothing for calls that wait for something else.
[[nodiscard]] std::optional<int> descriptor_of(const SystemCall& call);

/// Parses /proc/PID/task/TID/syscall; nothing for "running" and what is no such line.
[[nodiscard]] std::optional<SystemCall> parse_system_call(const std::string& text);

}  // namespace strata::diag
