// Shrinker: makes a failing program smaller while it still fails.
//
// Programs are tried in child processes, so that one which crashes or hangs can be shrunk like any
// other. Call it only while this process has no threads besides the caller.
//
// Thread safety: none.
#pragma once

#include <chrono>
#include <functional>

#include "program.hpp"

namespace strata::property {

/// Drops steps, arguments and options while `fails` says that what is left still fails, until
/// nothing more can go or the time is up.
[[nodiscard]] Program shrink(const Program& program,
                             const std::function<bool(const Program&)>& fails,
                             std::chrono::seconds time);

/// Runs the program up to `attempts` times in a child process: true if one of them had a problem,
/// crashed, or did not end within `limit`.
[[nodiscard]] bool fails_in_child(const Program& program, int attempts, std::chrono::seconds limit);

}  // namespace strata::property
