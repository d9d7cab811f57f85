#include "os/memfd.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/fault_point.hpp"
#include "os/system_error.hpp"

namespace strata::os {

UniqueFd make_memfd(const char* name, std::size_t bytes) {
  const auto fail = [&](const char* what) {
    const int code = errno;
    const std::string message =
        std::string(what) + " (" + name + ", " + std::to_string(bytes) + " bytes)";
    throw SystemError(message, code);
  };
  UniqueFd fd;
  if (const int error = base::fault_error("os.memfd"); error != 0) {
    errno = error;
  } else {
    fd.reset(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  }
  if (!fd) fail("can't make a file in memory");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) fail("can't size a file in memory");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail("can't seal a file in memory");
  }
  return fd;
}

std::size_t size_of_file(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw_errno("can't ask for the size of a file");
  return static_cast<std::size_t>(info.st_size);
}

std::size_t require_sealed(int fd, std::size_t min_bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) throw InvalidArgument("the descriptor received is not of a file in memory");
  if ((seals & F_SEAL_SHRINK) == 0) {
    throw InvalidArgument("the file in memory received can be cut by its sender");
  }
  const std::size_t size = size_of_file(fd);
  if (size < min_bytes) {
    throw InvalidArgument("the file in memory received has " + std::to_string(size) +
                          " bytes where " + std::to_string(min_bytes) + " are needed");
  }
  return size;
}

}  // namespace strata::os
