// The stack of every thread of another process, taken from outside: the process takes no part in it
// and can't prevent it, whatever it hangs in.
//
// Each thread is stopped by itself, for as long as it takes to copy its registers and its stack,
// which is well below a millisecond, and goes on; unwinding and naming work on the copies
// afterwards (libdw, with the same rules as trace/symboliser.hpp). So the threads are not seen at
// one and the same instant.
//
// Thread safety: may be called from any thread. Works in a thread of its own that ends before the
// call does, since the kernel lets go whatever a tracing thread leaves behind when it ends.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "os/deadline.hpp"
#include "trace/symboliser.hpp"

namespace strata::diag {

struct NativeStack {
  std::vector<trace::StackFrame> frames;  ///< Innermost first.
  bool more = false;                      ///< There are more frames than are kept.
  std::string note;                       ///< Why there are none, or why they may not be all.
  std::chrono::nanoseconds held{0};       ///< For how long the thread was stopped.
  std::uint64_t thread_pointer = 0;       ///< What pthread_self() is there; 0 if not known.
};

struct ProcessStacks {
  std::map<pid_t, NativeStack> threads;
  std::string note;  ///< Why there are no stacks at all; "" if there are.
};

/// Never throws for what the process does or the kernel refuses: notes say it. A thread that does
/// not stop by the deadline has what its system call tells of it; frames that are named after it
/// have no files and lines.
[[nodiscard]] ProcessStacks stacks_of(pid_t pid, os::Deadline deadline);

/// Reads four bytes of a process's memory, for looking into locks.
[[nodiscard]] std::optional<std::uint32_t> read_word(pid_t pid, std::uint64_t address);

}  // namespace strata::diag
