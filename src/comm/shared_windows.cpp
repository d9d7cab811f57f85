#include "comm/shared_windows.hpp"

#include <array>

#include "os/memfd.hpp"

namespace strata::comm {
namespace {
std::size_t bytes_of_all(const WindowLayout& layout) noexcept {
  return layout.size() * layout.window_bytes();
}
std::size_t checked_bytes(const WindowLayout& layout, int fd) {
  (void)os::require_sealed(fd, bytes_of_all(layout));
  return bytes_of_all(layout);
}
}  // namespace

os::UniqueFd SharedWindows::make(const WindowLayout& layout) {
  return os::make_memfd("strata windows", bytes_of_all(layout));
}

SharedWindows::SharedWindows(const WindowLayout& layout, int fd, os::Mapping::Populate populate)
    : layout_(layout), mapping_(os::Mapping::shared(fd, checked_bytes(layout, fd), populate)) {}

DomainContext SharedWindows::context(std::uint32_t rank) const {
  std::array<std::byte*, kMaxRanks> windows;
  for (std::uint32_t r = 0; r < layout_.size(); ++r)
    windows[r] = window(r);
  return layout_.context(rank, {windows.data(), layout_.size()});
}

}  // namespace strata::comm
