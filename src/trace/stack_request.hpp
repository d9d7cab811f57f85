// StackRequest: asks another process for the stacks of its threads, which it copies by itself; see
// stack_board.hpp.
//
// The process is not waited for: ask several, do something else, and then look who has answered.
//
// Thread safety: a value; const members from any thread.
//
// Invariants
//   (1) Whatever the process does to the memory, a reader neither crashes nor waits.
//   (2) An answer has no more bytes of stacks than the memory.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trace/request_door.hpp"
#include "trace/stack_layout.hpp"

namespace strata::trace {

/// A thread as it was when it was interrupted.
struct CopiedThread {
  pid_t thread = 0;
  StackStage stage = StackStage::free;
  long call = 0;  ///< Which, for in_call.
  // For `whole` only:
  std::array<std::uint64_t, 16> general{};  ///< By the numbers that DWARF gives them.
  std::uint64_t pc = 0;
  std::uint64_t thread_pointer = 0;
  std::uint64_t begin = 0;  ///< Address of the first byte of `stack`.
  std::string stack;
};

struct StackAnswer {
  std::vector<CopiedThread> threads;
  std::size_t threads_in_all = 0;  ///< With those for which it had no slot.
  int signal = 0;  ///< 0: the program has taken the signal for itself; then there are no threads.
  std::chrono::nanoseconds took{0};
};

class StackRequest {
 public:
  /// Nothing if it takes no requests, or may not be looked at. Never throws.
  [[nodiscard]] static std::optional<StackRequest> ask(pid_t pid) noexcept;
  /// What it has said since it was asked; nothing while it has not.
  [[nodiscard]] std::optional<StackAnswer> answer() const;

 private:
  explicit StackRequest(DoorRequest request) noexcept : request_(std::move(request)) {}

  DoorRequest request_;
};

}  // namespace strata::trace
