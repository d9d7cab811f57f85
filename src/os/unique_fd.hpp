// UniqueFd: owner of a file descriptor, closed when the object is gone.
//
// Thread safety: a value; one thread at a time.
#pragma once

#include <utility>

namespace strata::os {

class UniqueFd {
 public:
  UniqueFd() = default;
  /// Takes over `fd`; a negative one means none.
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  /// The descriptor, or -1.
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Gives the descriptor up without closing it.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  /// Closes what it owns, and takes over `fd`. Keeps errno.
  void reset(int fd = -1) noexcept;
  /// Another descriptor of the same open file, closed on exec. Throws SystemError.
  [[nodiscard]] UniqueFd duplicate() const;

 private:
  int fd_ = -1;
};

}  // namespace strata::os
