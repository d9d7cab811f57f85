// The Python stacks of a CPython process: from faulthandler, where python_hook.hpp's module runs in
// it, or from py-spy, where that is installed.
//
// Thread safety: any thread; one at a time for the same process.
//
// Invariants
//   (1) A signal is sent only to a process that catches it and holds the file that the hook made
//   for
//       that very process: a process between fork and exec, or one that does not catch the signal,
//       would die of it. It goes through a pidfd, to no other process that got the number.
//   (2) A process that SIGSTOP has stopped is not asked: it could not answer.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "os/deadline.hpp"

namespace strata::diag {

struct PythonStacks {
  bool is_python = false;
  std::string text;  ///< As faulthandler or py-spy print it; "" where that was not to be had.
  std::string note;  ///< Why.
};

struct PythonFrame {
  std::string file;
  int line = 0;
  std::string function;
};
/// The stacks in a text of faulthandler's by the pthread_self() of their threads, innermost frame
/// first.
[[nodiscard]] std::map<std::uint64_t, std::vector<PythonFrame>> python_frames(
    const std::string& text);

[[nodiscard]] PythonStacks python_stacks_of(pid_t pid, os::Deadline deadline);

}  // namespace strata::diag
