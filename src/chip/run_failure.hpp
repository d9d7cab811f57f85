// What ChipRuntime::run throws for what a run of the engine ended with.
//
// Thread safety: pure functions.
#pragma once

#include <exception>
#include <string_view>

namespace strata::chip {

/// The error as the caller of the run gets it: of failed tasks the first ChipError, with the other
/// failures listed behind its text; what an orchestration threw as an Error of Strata's, since its
/// own types go with its program.
[[nodiscard]] std::exception_ptr run_failure(const std::exception_ptr& error,
                                             std::string_view program);

}  // namespace strata::chip
