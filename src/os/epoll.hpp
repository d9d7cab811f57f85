// Epoll: waiting for many descriptors at once, level-triggered unless asked otherwise.
//
// Thread safety: add, modify, remove and wait may be called from any thread at the same time.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>

#include "os/deadline.hpp"
#include "os/unique_fd.hpp"

namespace strata::os {

class Epoll {
 public:
  /// Throws SystemError.
  Epoll();

  /// Watches `fd` for `events` (EPOLLIN, ...). `tag` comes back in epoll_event::data.u64. Throws
  /// SystemError.
  void add(int fd, std::uint32_t events, std::uint64_t tag);
  /// Changes what `fd` is watched for. Throws SystemError.
  void modify(int fd, std::uint32_t events, std::uint64_t tag);
  /// Watches `fd` no longer; to be called before it is closed. Nothing if it was not watched.
  void remove(int fd) noexcept;

  /// Waits until something is ready or the deadline has passed. Returns the part of `room` that is
  /// filled in; empty at the deadline. Throws SystemError.
  [[nodiscard]] std::span<epoll_event> wait(std::span<epoll_event> room, Deadline deadline);

  /// The epoll descriptor itself, readable while something is ready.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace strata::os
