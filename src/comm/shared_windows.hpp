// SharedWindows: the windows of all ranks of a domain in one file in memory, mapped as a whole.
//
// One process makes the file and hands its descriptor on; each process that has ranks in it maps
// it. The file is zeroed, which is the state in which a domain begins.
//
// Thread safety: constant once made.
#pragma once

#include "comm/window_layout.hpp"
#include "os/mapping.hpp"
#include "os/unique_fd.hpp"

namespace strata::comm {

class SharedWindows {
 public:
  /// The file for a domain of that layout. Throws SystemError.
  [[nodiscard]] static os::UniqueFd make(const WindowLayout& layout);

  /// Maps it. Throws InvalidArgument if the file is too small. Only pages of windows that this
  /// process touches much are worth populating.
  SharedWindows(const WindowLayout& layout, int fd,
                os::Mapping::Populate populate = os::Mapping::Populate::no);

  [[nodiscard]] std::byte* window(std::uint32_t rank) const noexcept {
    return mapping_.data() + rank * layout_.window_bytes();
  }
  /// What rank `rank` sees, in this process.
  [[nodiscard]] DomainContext context(std::uint32_t rank) const;

 private:
  WindowLayout layout_;
  os::Mapping mapping_;
};

}  // namespace strata::comm
