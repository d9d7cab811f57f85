#include "trace/safe_memory.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace strata::trace {

bool read_memory(std::uint64_t address, void* to, std::size_t bytes) noexcept {
  const iovec local{to, bytes};
  // An address is a number here, never followed.
  const iovec remote{reinterpret_cast<void*>(address), bytes};  // NOLINT(performance-no-int-to-ptr)
  const auto wanted = static_cast<long>(bytes);
  if (syscall(SYS_process_vm_readv, syscall(SYS_getpid), &local, 1, &remote, 1, 0) == wanted) {
    return true;
  }
  // Containers forbid that call here and there; this file is the other way to the same.
  const long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const long got = syscall(SYS_pread64, fd, to, bytes, address);
  syscall(SYS_close, fd);
  return got == wanted;
}

}  // namespace strata::trace
