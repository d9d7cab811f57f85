// Digest: 128-bit hashes of bytes, for content addresses and for finding damage. Not for secrets.
//
// Thread safety: plain values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::chip {

struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend auto operator<=>(const Digest&, const Digest&) = default;
  /// 32 digits.
  [[nodiscard]] std::string hex() const;
  [[nodiscard]] static std::optional<Digest> from_hex(std::string_view text) noexcept;
};

[[nodiscard]] Digest digest_of(std::string_view bytes) noexcept;

/// A text to be hashed, out of parts that can't run into each other.
class KeyText {
 public:
  KeyText& add(std::string_view part);
  template <class Range>
  KeyText& add_all(const Range& parts) {
    add(std::to_string(parts.size()));
    for (const auto& part : parts)
      add(part);
    return *this;
  }
  [[nodiscard]] Digest digest() const noexcept { return digest_of(text_); }

 private:
  std::string text_;
};

}  // namespace strata::chip
