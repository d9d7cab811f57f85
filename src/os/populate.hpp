// populate: makes pages of a mapping present, for writing, in one system call.
//
// Thread safety: a system call.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace strata::os {

/// False, with errno, if not all could be; EINVAL is a kernel that can't (before Linux 5.14), where
/// pages come at their first use. `begin` is where a page begins.
[[nodiscard]] inline bool populate(void* begin, std::size_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
  constexpr int kAdvice = MADV_POPULATE_WRITE;
#else
  constexpr int kAdvice = 23;  // The C library is older than the kernel may be.
#endif
  return madvise(begin, bytes, kAdvice) == 0;
}

}  // namespace strata::os
