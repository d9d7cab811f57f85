#include "os/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "os/system_error.hpp"

namespace strata::os {

void UniqueFd::reset(int fd) noexcept {
  const int old = std::exchange(fd_, fd);
  if (old < 0) return;
  const int saved = errno;
  // Not repeated after EINTR: Linux has closed it, and the number may be another file's already.
  ::close(old);
  errno = saved;
}

UniqueFd UniqueFd::duplicate() const {
  UniqueFd copy(::fcntl(fd_, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw_errno("can't duplicate a file descriptor");
  return copy;
}

}  // namespace strata::os
