// What `strata run` and `strata exec` have in common when they start a program in their place: it
// should find what it would have found without them.
//
// Thread safety: one thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "os/spawn.hpp"
#include "os/unique_fd.hpp"

namespace strata::cli {

inline constexpr int kNotFound = 127;  ///< Exit codes, as shells, env(1) and timeout(1) have them.
inline constexpr int kNotStarted = 126;

/// The file to execute, found as a shell does. Empty if there is none.
[[nodiscard]] std::string find_program(const std::string& name);

/// Whether whoever started us wants it ignored (nohup).
[[nodiscard]] bool is_ignored(int signal);
/// Whether the terminal's keys send their signals to our process group.
[[nodiscard]] bool in_foreground();

/// These signals, as far as they were not ignored, and SIGCHLD, as a descriptor. They stay blocked
/// from now on. Throws SystemError.
[[nodiscard]] os::UniqueFd signals_as_descriptor(std::span<const int> signals);

/// What whoever started us wants the program to have: all that is open and not closed on exec, but
/// for those numbers that `replaced` gives it in their place.
[[nodiscard]] std::vector<os::SpawnOptions::Descriptor> inherited_descriptors(
    std::vector<os::SpawnOptions::Descriptor> replaced);

}  // namespace strata::cli
