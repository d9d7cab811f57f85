// Texts that are too long for a packet, in files in memory that nobody can change any more.
//
// Thread safety: free functions without state.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "os/unique_fd.hpp"

namespace strata::ipc {

/// A file in memory with that text, sealed against every change. Throws SystemError.
[[nodiscard]] os::UniqueFd make_sealed_text(std::string_view text);

/// What could be read, or why not.
struct SealedText {
  std::optional<std::string> text;
  std::string problem = {};  ///< If there is no text.
};
/// Reads a text that another process made. Total: a descriptor of something else, a file that can
/// still be changed, and one of more than `limit` bytes give a problem.
[[nodiscard]] SealedText read_sealed_text(int fd, std::size_t limit);

}  // namespace strata::ipc
