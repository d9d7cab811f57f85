// ElfImage: sections of an ELF file that lies in memory as bytes, which may be anything.
//
// Reads nothing outside of the bytes. Takes files of this machine's word size and byte order.
//
// Thread safety: constant; the bytes must outlive it.
#pragma once

#include <elf.h>

#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

namespace strata::chip {

class ElfImage {
 public:
  enum class Problem : std::uint8_t {
    none,
    not_elf,
    foreign_format,  ///< Another word size or byte order.
    foreign_machine,
    cut_off,  ///< A part of it lies beyond its end.
  };
  explicit ElfImage(std::string_view bytes) noexcept : bytes_(bytes), problem_(look()) {}

  [[nodiscard]] Problem problem() const noexcept { return problem_; }
  [[nodiscard]] std::uint16_t machine() const noexcept { return header_.e_machine; }
  [[nodiscard]] std::uint16_t type() const noexcept { return header_.e_type; }

  // --- If there is no problem ---

  [[nodiscard]] std::size_t section_count() const noexcept { return header_.e_shnum; }
  [[nodiscard]] Elf64_Shdr section(std::size_t i) const noexcept {
    return at<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr)).value_or(Elf64_Shdr{});
  }
  /// Bytes of a section in the file; nothing if they are not all there.
  [[nodiscard]] std::optional<std::string_view> content(const Elf64_Shdr& section) const noexcept {
    if (section.sh_type == SHT_NOBITS) return std::string_view();
    if (!has(section.sh_offset, section.sh_size)) return std::nullopt;
    return bytes_.substr(section.sh_offset, section.sh_size);
  }
  [[nodiscard]] std::string_view name(const Elf64_Shdr& section) const noexcept {
    if (header_.e_shstrndx >= section_count()) return {};
    const auto names = content(this->section(header_.e_shstrndx));
    return names ? text_at(*names, section.sh_name) : std::string_view();
  }
  [[nodiscard]] std::optional<Elf64_Shdr> find(std::string_view wanted) const noexcept {
    for (std::size_t i = 0; i < section_count(); ++i) {
      const Elf64_Shdr candidate = section(i);
      if (name(candidate) == wanted) return candidate;
    }
    return std::nullopt;
  }
  /// The text that begins there and ends with a zero byte; empty if there is none.
  [[nodiscard]] static std::string_view text_at(std::string_view table,
                                                std::size_t offset) noexcept {
    if (offset >= table.size()) return {};
    const std::size_t end = table.find('\0', offset);
    if (end == std::string_view::npos) return {};
    return table.substr(offset, end - offset);
  }

 private:
  [[nodiscard]] bool has(std::uint64_t offset, std::uint64_t size) const noexcept {
    return offset <= bytes_.size() && size <= bytes_.size() - offset;
  }
  /// A copy, since nothing is aligned.
  template <class T>
  [[nodiscard]] std::optional<T> at(std::uint64_t offset) const noexcept {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!has(offset, sizeof(T))) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  Problem look() noexcept {
    if (bytes_.substr(0, SELFMAG) != std::string_view(ELFMAG, SELFMAG)) return Problem::not_elf;
    const auto header = at<Elf64_Ehdr>(0);
    if (!header) return Problem::cut_off;
    header_ = *header;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    constexpr unsigned char kOrder = ELFDATA2LSB;
#else
    constexpr unsigned char kOrder = ELFDATA2MSB;
#endif
    if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != kOrder ||
        header_.e_ident[EI_VERSION] != EV_CURRENT) {
      return Problem::foreign_format;
    }
#if defined(__x86_64__)
    constexpr std::uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
    constexpr std::uint16_t kMachine = EM_AARCH64;
#elif defined(__riscv)
    constexpr std::uint16_t kMachine = EM_RISCV;
#else
#error "which machine is this in elf.h?"
#endif
    if (header_.e_machine != kMachine) return Problem::foreign_machine;
    // More than 65279 sections are written in another way, which no program of ours needs.
    if (header_.e_shnum != 0 && header_.e_shentsize != sizeof(Elf64_Shdr)) {
      return Problem::foreign_format;
    }
    if (!has(header_.e_shoff, std::uint64_t{header_.e_shnum} * sizeof(Elf64_Shdr))) {
      return Problem::cut_off;
    }
    return Problem::none;
  }

  std::string_view bytes_;
  Elf64_Ehdr header_ = {};
  Problem problem_;
};

}  // namespace strata::chip
