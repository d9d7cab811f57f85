#include "chip/program/program_hash.hpp"

#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming): the library's own switch.
#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>

namespace strata::chip {

std::string Digest::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::optional<Digest> Digest::from_hex(std::string_view text) noexcept {
  Digest digest;
  if (text.size() != 32) return std::nullopt;
  for (const char c : text) {
    // from_chars would take a sign or upper case, too: one digest has one text.
    if ((c < '0' || c > '9') && (c < 'a' || c > 'f')) return std::nullopt;
  }
  (void)std::from_chars(text.data(), text.data() + 16, digest.high, 16);
  (void)std::from_chars(text.data() + 16, text.data() + 32, digest.low, 16);
  return digest;
}

Digest digest_of(std::string_view bytes) noexcept {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.high = hash.high64, .low = hash.low64};
}

KeyText& KeyText::add(std::string_view part) {
  text_ += std::to_string(part.size());
  text_ += ':';
  text_ += part;
  return *this;
}

}  // namespace strata::chip
