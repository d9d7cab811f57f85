// PlainText: text into memory that is there, with nothing but stores: for handlers of signals.
//
// Thread safety: as a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata::chip {

/// What finds no room is left out.
class PlainText {
 public:
  PlainText(char* to, std::size_t room) noexcept : to_(to), room_(room) {}
  PlainText& operator<<(std::string_view text) noexcept {
    for (const char c : text) {
      if (size_ < room_) to_[size_++] = c;
    }
    return *this;
  }
  PlainText& operator<<(std::uint64_t number) noexcept { return digits(number, 10); }
  PlainText& hexadecimal(std::uint64_t number) noexcept {
    return (*this << "0x").digits(number, 16);
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  PlainText& digits(std::uint64_t number, unsigned base) noexcept {
    char text[24];
    std::size_t at = sizeof text;
    do {
      text[--at] = "0123456789abcdef"[number % base];
      number /= base;
    } while (number != 0);
    return *this << std::string_view(text + at, sizeof text - at);
  }
  char* to_;
  std::size_t room_;
  std::size_t size_ = 0;
};

}  // namespace strata::chip
