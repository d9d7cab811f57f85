// What an exception has to say, for the parent process.
//
// Thread safety: any thread.
#pragma once

#include <exception>
#include <string>

#include "strata/worker_error.hpp"

namespace strata::node {

/// Fills cause and type with those of `exception`, whole; nested exceptions are told too. One that
/// has a WorkerFault of a process further down (WorkerError, or a RunFailed whose first failure is
/// one) gives that fault instead.
[[nodiscard]] WorkerFault fault_of(const std::exception_ptr& exception, WorkerFault fault);

}  // namespace strata::node
