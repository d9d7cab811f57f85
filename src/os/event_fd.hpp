// EventFd: a flag that one thread or process raises and another, which waits in epoll, sees.
//
// Thread safety: signal() and drain() may be called from any thread and from signal handlers;
// descriptors of the same event may be in several processes.
#pragma once

#include <utility>

#include "os/unique_fd.hpp"

namespace strata::os {

class EventFd {
 public:
  /// A new one, not raised, non-blocking, closed on exec. Throws SystemError.
  [[nodiscard]] static EventFd make();
  /// Takes over a descriptor that was inherited or received.
  explicit EventFd(UniqueFd fd) noexcept : fd_(std::move(fd)) {}

  /// Readable while raised.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// Raises it. Keeps errno.
  void signal() const noexcept { signal(fd_.get()); }
  /// The same by descriptor.
  static void signal(int fd) noexcept;
  /// Lowers it. True if it was raised. Keeps errno.
  bool drain() const noexcept;

 private:
  UniqueFd fd_;
};

}  // namespace strata::os
