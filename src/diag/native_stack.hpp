// The stack of every thread of another process, taken from outside: the process takes no part in it
// and can't prevent it, whatever it hangs in. Of a process that has copied the stacks of its
// threads itself (trace/stack_request.hpp), those copies; then only the rest is taken from outside.
//
// From outside each thread is stopped by itself, for as long as it takes to copy its registers and
// its stack, which is well below a millisecond, and goes on; unwinding and naming work on the
// copies afterwards (libdw, with the same rules as trace/symboliser.hpp). So the threads are not
// seen at one and the same instant.
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
#include <utility>
#include <vector>

#include "os/deadline.hpp"
#include "trace/module_symbols.hpp"
#include "trace/stack_request.hpp"
#include "trace/symboliser.hpp"

namespace strata::diag {

/// Who took a stack.
enum class StackTaker : std::uint8_t {
  outside,  ///< We, by ptrace.
  process,  ///< The process itself.
};

struct NativeStack {
  std::vector<trace::StackFrame> frames;  ///< Innermost first.
  bool more = false;                      ///< There are more frames than are kept.
  std::string note;                       ///< Why there are none, or why they may not be all.
  std::chrono::nanoseconds held{0};       ///< For how long the thread was stopped.
  std::uint64_t thread_pointer = 0;       ///< What pthread_self() is there; 0 if not known.
  StackTaker taker = StackTaker::outside;
};

struct ProcessStacks {
  std::map<pid_t, NativeStack> threads;
  std::string note;                       ///< Why there are no stacks at all; "" if there are.
  std::chrono::nanoseconds copied_in{0};  ///< How long it took from outside, before unwinding.
};

/// What is known of addresses in files, for processes that have the same ones: most of the time
/// that stacks take goes into looking that up. For one thread at a time.
class FrameNames {
 public:
  struct Key {
    std::string file;      ///< Path and build id.
    std::uint64_t offset;  ///< In it.
    trace::AddressKind kind;
    auto operator<=>(const Key&) const = default;
  };
  [[nodiscard]] const trace::StackFrame* find(const Key& key) const {
    const auto found = names_.find(key);
    return found == names_.end() ? nullptr : &found->second;
  }
  void add(Key key, const trace::StackFrame& frame) { names_.emplace(std::move(key), frame); }

 private:
  std::map<Key, trace::StackFrame> names_;
};

/// Never throws for what the process does or the kernel refuses: notes say it. A thread that does
/// not stop by the deadline has what its system call tells of it; frames that are named after it
/// have no files and lines. `own`: what the process has copied itself, or null.
[[nodiscard]] ProcessStacks stacks_of(pid_t pid, os::Deadline deadline, FrameNames& names,
                                      const trace::StackAnswer* own = nullptr);

/// Reads four bytes of a process's memory, for looking into locks.
[[nodiscard]] std::optional<std::uint32_t> read_word(pid_t pid, std::uint64_t address);

}  // namespace strata::diag
