// StateRequest: asks another process what its runtime is at; see request_door.hpp.
//
// The process is not waited for: ask several, do something else, and then look who has answered.
//
// Thread safety: a value; const members from any thread.
//
// Invariants
//   (1) Whatever the process does to the memory, a reader neither crashes nor waits.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "trace/request_door.hpp"

namespace strata::trace {

class StateRequest {
 public:
  /// Nothing if it takes no requests, or may not be looked at. Never throws.
  [[nodiscard]] static std::optional<StateRequest> ask(pid_t pid) noexcept;
  /// What it has said since it was asked, as JSON text; nothing while it has not.
  [[nodiscard]] std::optional<std::string> answer() const;

 private:
  explicit StateRequest(DoorRequest request) noexcept : request_(std::move(request)) {}

  DoorRequest request_;
};

}  // namespace strata::trace
