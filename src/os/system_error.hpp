// throw_errno: a failed system call becomes a SystemError.
//
// Thread safety: may be called from any thread.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>

#include "strata/error.hpp"

namespace strata::os {

/// Throws SystemError with the value that errno has now. `what` says what was tried, as in "can't
/// map 64 bytes of memory".
[[noreturn]] inline void throw_errno(std::string_view what) {
  const int code = errno;  // Before the string is made, which may change it.
  throw SystemError(std::string(what), code);
}

}  // namespace strata::os
