#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <strata/kernel.hpp>

namespace {

volatile int zero = 0;
int* volatile nowhere = nullptr;

}  // namespace

STRATA_KERNEL(crash_segv) { *nowhere = 1; }

STRATA_KERNEL(crash_fpe) { kernel.data<std::int64_t>(0)[0] = 7 / zero; }

STRATA_KERNEL(exits) { std::exit(static_cast<int>(kernel.scalar<std::int64_t>(0))); }

STRATA_KERNEL(leaves) { _exit(7); }

STRATA_KERNEL(crash_bus) {
  // A mapping of two pages whose file has one.
  const int fd = memfd_create("short", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, 4096) != 0) return;
  auto* const at =
      static_cast<volatile char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  kernel.data<std::int64_t>(0)[0] = at[4096];
}
