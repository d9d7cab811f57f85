#include "os/epoll.hpp"

#include <cerrno>
#include <string>

#include "base/fault_point.hpp"
#include "os/system_error.hpp"

namespace strata::os {

Epoll::Epoll() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!fd_) throw_errno("can't make an epoll set");
}

void Epoll::add(int fd, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  if (const int error = base::fault_error("os.epoll.add"); error != 0) {
    errno = error;
  } else if (::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0) {
    return;
  }
  throw_errno("can't watch file descriptor " + std::to_string(fd));
}

void Epoll::modify(int fd, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  if (::epoll_ctl(fd_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
    throw_errno("can't watch file descriptor " + std::to_string(fd) + " for other events");
  }
}

void Epoll::remove(int fd) noexcept {
  const int saved = errno;
  ::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
  errno = saved;
}

std::span<epoll_event> Epoll::wait(std::span<epoll_event> room, Deadline deadline) {
  for (;;) {
    const int count = ::epoll_wait(fd_.get(), room.data(), static_cast<int>(room.size()),
                                   deadline.poll_timeout_ms());
    if (count > 0) return room.first(static_cast<std::size_t>(count));
    // Longer waits than epoll knows end early, and signals interrupt.
    if (count == 0 && deadline.passed()) return {};
    if (count < 0 && errno != EINTR) throw_errno("can't wait for file descriptors");
  }
}

}  // namespace strata::os
