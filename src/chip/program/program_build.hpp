// Parts of building a chip program: one unit per source, compiled on its own.
//
// Kernels are isolated from each other and from the orchestration. Each kernel's object is linked
// by itself (ld -r), then all its symbols but its entry are made local and the entry gets the name
// of the kernel. So two kernels may define the same functions, templates and entries: nothing is
// merged. Orchestrations are linked with each other as usual.
//
// Thread safety: a unit is used by one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "chip/program/program_cache.hpp"
#include "chip/program/program_toolchain.hpp"
#include "strata/chip_program.hpp"

namespace strata::chip {

/// What stands before a name in the symbol that STRATA_KERNEL or STRATA_CHIP_ORCHESTRATION makes
/// of it.
inline constexpr std::string_view kKernelEntry = "strata_entry_kernel_";
inline constexpr std::string_view kOrchestrationEntry = "strata_entry_orchestration_";

/// Names go into file names.
[[nodiscard]] bool is_program_name(std::string_view name) noexcept;
/// What makes no sense in a description of a program; empty if all is well.
[[nodiscard]] std::string problem_of(const ChipProgramSource& source);

/// One source to be compiled.
struct BuildUnit {
  enum class Kind : std::uint8_t { kernel, orchestration } kind = Kind::kernel;
  std::string label = {};  ///< "kernel 'add'", for messages.
  std::filesystem::path source = {};
  std::vector<std::string> include = {};  ///< Folders, as resolved.
  std::vector<std::string> flags = {};    ///< Of the compiler, without files.
  std::string entry = {};                 ///< Of a kernel: the symbol in the source ...
  std::string symbol = {};                ///< ... and in the program.
  bool check = false;
  Digest key = {};

  // --- Once it is compiled, or found ---
  std::string object = {};  ///< Hash of the object; empty as long as there is none.
  CacheEntry entry_in_cache = {};
  std::string failure = {};   ///< Why there is no object; a whole text.
  std::string warnings = {};  ///< What the compiler said though all went well.
};

/// The units of a program; include folders are looked for now. Throws ChipError (missing_headers).
[[nodiscard]] std::vector<BuildUnit> units_of(const ChipProgramSource& source,
                                              const ChipBuildOptions& options,
                                              const Toolchain& toolchain);

/// Compiles a unit, and isolates it if it is a kernel; sets object, or failure. The object is in
/// the cache then. `name` is unused in `work` so far.
void compile_unit(BuildUnit& unit, const Toolchain& toolchain, const ProgramCache& cache,
                  const std::filesystem::path& work, const std::string& name);

/// Links objects and the description to a program file in `work`. Throws ChipError
/// (compile_failed).
[[nodiscard]] std::filesystem::path link_program(const std::vector<BuildUnit>& units,
                                                 const ChipProgramSource& source,
                                                 const ChipProgramInfo& info,
                                                 const Toolchain& toolchain,
                                                 const ProgramCache& cache,
                                                 const std::filesystem::path& work);

/// Functions that kernels call and that checking mode can't look into, for people to read.
[[nodiscard]] std::vector<std::string> unseen_functions(const std::vector<std::string>& undefined);

}  // namespace strata::chip
