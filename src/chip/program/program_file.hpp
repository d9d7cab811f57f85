// Chip program files: shared objects with a section .strata.program that describes them.
//
// The section is not loaded. It begins with a ProgramHeader, then comes the description as JSON.
// The header has the size and the hash of the whole file, so that a file which was cut off,
// patched or stripped is known as such before anything of it is loaded.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chip/program/program_hash.hpp"
#include "strata/chip_program.hpp"

namespace strata::chip {

/// At the beginning of the section.
struct ProgramHeader {
  char magic[8];
  std::uint64_t json_bytes;
  std::uint64_t file_bytes;  ///< This and the hash are zero until seal_program().
  std::uint64_t hash_high;   ///< Of all bytes before the hash and all behind it.
  std::uint64_t hash_low;
};
static_assert(sizeof(ProgramHeader) == 40);

/// What the section of a program with this description holds, not sealed.
[[nodiscard]] std::string program_section(const ChipProgramInfo& info);
/// Writes size and hash into a file that was linked with program_section(). False if there is no
/// such section.
[[nodiscard]] bool seal_program(std::span<char> file);

/// Reads and verifies a whole file; `name` is for messages. Throws as ChipProgramInfo::read().
[[nodiscard]] ChipProgramInfo parse_program(std::string_view file, const std::string& name);
/// Hash in the header of a file that parse_program() takes.
[[nodiscard]] Digest sealed_digest(std::string_view file);

/// Content of a regular file. Throws ChipError (bad_program_file).
[[nodiscard]] std::string read_program_file(const std::filesystem::path& file);

/// The name that a program has in the cache, which no program of other content has.
[[nodiscard]] std::string cached_name(const ChipProgramInfo& info);

/// Names of the machine that this process runs on: "x86_64".
[[nodiscard]] std::string_view machine_name() noexcept;

/// Symbols of an object file.
struct ObjectSymbols {
  std::vector<std::string> functions;  ///< Global ones that it defines.
  std::vector<std::string> undefined;
};
/// Throws Error if it is not a complete object file of this machine.
[[nodiscard]] ObjectSymbols symbols_of(std::string_view object);

}  // namespace strata::chip
