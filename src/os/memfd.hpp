// Files in memory that have no name, for memory that processes share.
//
// Such a file is gone with its last descriptor and mapping, so nothing is left after a SIGKILL.
//
// Thread safety: every function may be called from any thread.
#pragma once

#include <cstddef>

#include "os/unique_fd.hpp"

namespace strata::os {

/// A zeroed file of `bytes`, whose size nobody can change any more: a mapping of it never faults
/// since another process has cut it. Closed on exec. `name` shows up in /proc only. Throws
/// SystemError.
[[nodiscard]] UniqueFd make_memfd(const char* name, std::size_t bytes);

/// Size of a file. Throws SystemError.
[[nodiscard]] std::size_t size_of_file(int fd);

/// For a descriptor that another process has sent: checks that it is a file in memory with a size
/// that is at least `min_bytes` and can't shrink. Returns the size. Throws InvalidArgument
/// otherwise.
std::size_t require_sealed(int fd, std::size_t min_bytes);

}  // namespace strata::os
