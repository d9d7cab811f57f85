#include "os/event_fd.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "os/system_error.hpp"

namespace strata::os {

EventFd EventFd::make() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) throw_errno("can't make an event descriptor");
  return EventFd(std::move(fd));
}

void EventFd::signal(int fd) noexcept {
  const int saved = errno;
  const std::uint64_t one = 1;
  // It can fail with EAGAIN only, when the count is full: then it is raised already.
  [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
  errno = saved;
}

bool EventFd::drain() const noexcept {
  const int saved = errno;
  std::uint64_t count = 0;
  const bool raised = ::read(fd_.get(), &count, sizeof count) == sizeof count;
  errno = saved;
  return raised;
}

}  // namespace strata::os
