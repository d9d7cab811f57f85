#include "cli/elf_build_id.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <ios>
#include <string_view>
#include <vector>

namespace strata::cli {
namespace {

constexpr std::size_t kMostNotes = 1 << 20;  ///< Notes are some hundred bytes.

template <class T>
bool read_at(std::ifstream& file, std::uint64_t offset, T& value) {
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(&value), sizeof value);
  return static_cast<bool>(file);
}

std::size_t padded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

/// The build id among the notes of a segment, or nothing.
std::string build_id_in(std::string_view notes) {
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data(), sizeof note);
    notes.remove_prefix(sizeof note);
    const std::size_t name_bytes = padded(note.n_namesz);
    const std::size_t bytes = name_bytes + padded(note.n_descsz);
    if (bytes > notes.size()) return "";
    if (note.n_type == NT_GNU_BUILD_ID &&
        notes.substr(0, note.n_namesz) == std::string_view("GNU\0", 4)) {
      std::string hex;
      for (const char c : notes.substr(name_bytes, note.n_descsz)) {
        hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
      }
      return hex;
    }
    notes.remove_prefix(bytes);
  }
  return "";
}

}  // namespace

std::string build_id_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file || !read_at(file, 0, header)) return "";
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return "";
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!read_at(file, header.e_phoff + std::uint64_t{i} * header.e_phentsize, segment)) return "";
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMostNotes) continue;
    std::vector<char> notes(segment.p_filesz);
    file.seekg(static_cast<std::streamoff>(segment.p_offset));
    if (!file.read(notes.data(), static_cast<std::streamsize>(notes.size()))) return "";
    if (std::string id = build_id_in({notes.data(), notes.size()}); !id.empty()) return id;
  }
  return "";
}

}  // namespace strata::cli
