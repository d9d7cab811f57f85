// What ChipRuntime::run throws for what a run of the engine ended with.
//
// Thread safety: pure functions.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "strata/ids.hpp"

namespace strata::chip {

/// What the user calls a buffer of the engine.
struct NamedBuffer {
  BufferId buffer = {};
  std::string name = {};  ///< "argument 'x'".
};

/// The error as the caller of the run gets it: of failed tasks the first ChipError, with the other
/// failures listed behind its text; what an orchestration threw as an Error of Strata's, since its
/// own types go with its program. Texts have the names in the place of the engine's numbers.
[[nodiscard]] std::exception_ptr run_failure(const std::exception_ptr& error,
                                             std::string_view program,
                                             std::span<const NamedBuffer> names = {});

}  // namespace strata::chip
