// What /proc says about processes.
//
// Processes come and go while one reads: whoever is gone is "nothing", never an error.
//
// Thread safety: every function may be called from any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace strata::os {

struct ProcessInfo {
  pid_t pid = 0;
  pid_t ppid = 0;
  pid_t pgid = 0;
  char state = '?';              ///< 'R', 'S', 'D', 'Z', 'T', ... as in ps.
  std::uint64_t start_time = 0;  ///< Clock ticks since boot; with the pid it names a process for
                                 ///< ever.
  std::uint64_t cpu_ticks = 0;   ///< User and kernel, in clock ticks.
  std::string comm = {};         ///< Name of the program, 15 bytes of it.
  int threads = 0;
  int exit_status = 0;  ///< Of a zombie, as waitpid() has it; 0 where that is not told.
};
/// Nothing if there is no such process. A zombie still is one.
[[nodiscard]] std::optional<ProcessInfo> read_process(pid_t pid);

/// From the text of a file /proc/PID/stat, or of a thread's, /proc/PID/task/TID/stat.
[[nodiscard]] std::optional<ProcessInfo> parse_process(const std::string& text);

/// All processes.
[[nodiscard]] std::vector<ProcessInfo> all_processes();
/// Its children, by looking at all processes. Zombies too.
[[nodiscard]] std::vector<pid_t> children_of(pid_t pid);
/// Its children, theirs, and so on; parents before children.
[[nodiscard]] std::vector<pid_t> descendants_of(pid_t pid);

/// Its arguments; empty for kernel threads, zombies and those gone.
[[nodiscard]] std::vector<std::string> command_line(pid_t pid);
/// What it waits for in the kernel, as "futex_wait_queue" or "system call 202"; empty if that is
/// not known.
[[nodiscard]] std::string wait_channel(pid_t pid);

/// The number that the process has in the innermost of its pid namespaces, which is what it calls
/// itself; 0 if that is not told.
[[nodiscard]] pid_t own_number_of(pid_t pid);

struct OpenDescriptor {
  int fd = -1;
  std::string target;  ///< As /proc names it: a path, "socket:[123]", "anon_inode:[eventfd]", ...
};
[[nodiscard]] std::vector<OpenDescriptor> open_descriptors(pid_t pid);
/// How many descriptors this process has open.
[[nodiscard]] std::size_t count_own_descriptors();

struct ProcessMemory {
  std::size_t resident = 0;          ///< Bytes in memory.
  std::size_t private_resident = 0;  ///< Those that no other process shares.
};
[[nodiscard]] std::optional<ProcessMemory> memory_of(pid_t pid);

/// The whole of a small file, as /proc and /sys have them. Nothing if it can't be read.
[[nodiscard]] std::optional<std::string> read_small_file(const std::string& path);

}  // namespace strata::os
