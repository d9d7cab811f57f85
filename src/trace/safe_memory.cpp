#include "trace/safe_memory.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace strata::trace {
namespace {

/// Containers forbid the system call here and there; this file is the other way to the same.
long read_from_file(std::uint64_t address, void* to, std::size_t bytes) noexcept {
  const long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const long got = syscall(SYS_pread64, fd, to, bytes, address);
  syscall(SYS_close, fd);
  return got;
}

}  // namespace

std::size_t read_memory_up_to(std::uint64_t address, void* to, std::size_t bytes) noexcept {
  // The call reads an element as a whole or not at all, so each is a page.
  constexpr std::uint64_t kPage = 4096;
  std::array<iovec, 64> pages;
  std::size_t done = 0;
  while (done < bytes) {
    std::size_t count = 0;
    std::size_t asked = 0;
    for (; count < pages.size() && done + asked < bytes; ++count) {
      const std::uint64_t at = address + done + asked;
      const std::size_t size = std::min<std::size_t>(kPage - at % kPage, bytes - done - asked);
      // An address is a number here, never followed.
      pages[count] = {reinterpret_cast<void*>(at), size};  // NOLINT(performance-no-int-to-ptr)
      asked += size;
    }
    char* const into = static_cast<char*>(to) + done;
    const iovec local{into, asked};
    long got =
        syscall(SYS_process_vm_readv, syscall(SYS_getpid), &local, 1, pages.data(), count, 0);
    if (got <= 0) got = read_from_file(address + done, into, asked);
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

bool read_memory(std::uint64_t address, void* to, std::size_t bytes) noexcept {
  return read_memory_up_to(address, to, bytes) == bytes;
}

}  // namespace strata::trace
