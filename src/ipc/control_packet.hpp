// The packets of the control channel, as bytes.
//
// A packet is a header and, for a short message, its text; the text of a long one lies in a sealed
// memfd, which comes first among the descriptors.
//
// Thread safety: free functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata::ipc {

struct ControlHeader {
  static constexpr std::uint32_t kMagic = 0x6c746353;  // "Sctl"
  static constexpr std::uint16_t kVersion = 1;
  enum Kind : std::uint8_t { inline_text, memfd_text };
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint8_t kind = inline_text;
  std::uint8_t descriptors = 0;  ///< Of the message, without the text's memfd.
  std::uint64_t length = 0;      ///< Bytes of the text.
};
static_assert(sizeof(ControlHeader) == 16);

}  // namespace strata::ipc
