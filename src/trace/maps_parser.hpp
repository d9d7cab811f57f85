// Reads the lines of /proc/PID/maps one by one, as a signal handler can: no allocation, no library
// calls, and any bytes are survived.
//
// Thread safety: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace strata::trace {

/// One line: "begin-end rwxp offset dev:dev inode    path".
struct MapsLine {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t file_offset = 0;
  std::uint64_t inode = 0;
  bool readable = false;
  bool executable = false;
  std::string_view path;  ///< Into the text.
};

class MapsParser {
 public:
  explicit MapsParser(std::string_view text) noexcept : rest_(text) {}

  /// The next line that can be understood; nothing at the end.
  [[nodiscard]] std::optional<MapsLine> next() noexcept {
    while (!rest_.empty()) {
      const std::size_t end = rest_.find('\n');
      // What was cut at the end of the room has no line feed and may be half a number.
      if (end == std::string_view::npos) break;
      std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(end + 1);
      if (const auto parsed = parse(line)) return parsed;
    }
    rest_ = {};
    return std::nullopt;
  }

 private:
  static std::optional<std::uint64_t> number(std::string_view& line, unsigned base,
                                             char end) noexcept {
    std::uint64_t value = 0;
    std::size_t i = 0;
    for (; i < line.size() && line[i] != end; ++i) {
      const char c = line[i];
      unsigned digit = 99;
      if (c >= '0' && c <= '9') digit = static_cast<unsigned>(c - '0');
      if (c >= 'a' && c <= 'f') digit = static_cast<unsigned>(c - 'a') + 10;
      if (digit >= base || i >= 20) return std::nullopt;
      value = value * base + digit;
    }
    if (i == 0) return std::nullopt;
    line.remove_prefix(i < line.size() ? i + 1 : i);
    return value;
  }

  static std::optional<MapsLine> parse(std::string_view line) noexcept {
    MapsLine parsed;
    const auto begin = number(line, 16, '-');
    if (!begin) return std::nullopt;
    const auto end = number(line, 16, ' ');
    if (!end || *end <= *begin || line.size() < 5) return std::nullopt;
    parsed.readable = line[0] == 'r';
    parsed.executable = line[2] == 'x';
    line.remove_prefix(5);
    const auto offset = number(line, 16, ' ');
    const std::size_t device = line.find(' ');
    if (!offset || device == std::string_view::npos) return std::nullopt;
    line.remove_prefix(device + 1);
    const auto inode = number(line, 10, ' ');
    if (!inode) return std::nullopt;
    while (!line.empty() && line.front() == ' ')
      line.remove_prefix(1);
    parsed.begin = *begin;
    parsed.end = *end;
    parsed.file_offset = *offset;
    parsed.inode = *inode;
    parsed.path = line;
    return parsed;
  }

  std::string_view rest_;
};

}  // namespace strata::trace
