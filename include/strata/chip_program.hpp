// Chip programs: an orchestration and its kernels, each a C++ source, built into one file.
//
//   const auto file = strata::build_chip_program(strata::ChipProgramSource::load("program.json"));
//   const auto program = worker.add(strata::Callable::chip_program(file));
//
// The file is a shared object with a description of itself in it. Its name and its build id come
// from the content of all that went into it; whatever was built before is found in the cache.
//
// Thread safety: plain values; build_chip_program() may be called by any thread, also of several
// processes with one cache at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/dtype.hpp"
#include "strata/kernel.hpp"
#include "strata/task.hpp"

namespace strata {

/// One tensor argument of a chip program.
struct TensorParameter {
  std::string name = {};
  Access access = Access::in;
  std::optional<DType> dtype = {};  ///< Any if absent.
  std::optional<int> rank = {};     ///< Any if absent.
  friend bool operator==(const TensorParameter&, const TensorParameter&) = default;
};

/// What a chip program is called with.
struct ChipSignature {
  std::vector<TensorParameter> tensors = {};
  std::vector<std::string> scalars = {};  ///< Their names.
  friend bool operator==(const ChipSignature&, const ChipSignature&) = default;
};

enum class ProgramSanitizer : std::uint8_t { none, address, thread };

/// One kernel.
struct KernelSource {
  std::string name = {};  ///< By which orchestrations know it.
  std::filesystem::path source = {};
  CoreType core = CoreType::aiv;
  std::string symbol = {};  ///< Of its STRATA_KERNEL; the name if empty.
  /// Folders of headers for this kernel, tried in order at compile time: may hold $VARIABLES and
  /// folders that do not exist. If there are any, at least one must exist.
  std::vector<std::string> include_candidates = {};
};

/// All that a chip program is built from.
struct ChipProgramSource {
  std::string name = {};
  std::vector<std::filesystem::path> orchestration = {};  ///< One source or more.
  std::string orchestration_symbol = {};  ///< Of its STRATA_CHIP_ORCHESTRATION; the name if empty.
  ChipSignature signature = {};
  std::vector<KernelSource> kernels = {};  ///< Function ids are their positions.
  std::vector<std::string> include =
      {};  ///< Folders of headers for every source; may hold $VARIABLES.
  std::string standard = "c++20";
  std::vector<std::string> macros = {};  ///< "NAME" or "NAME=VALUE".
  std::vector<std::string> flags = {};   ///< Further flags of the compiler.

  /// Reads program.json; paths in it are relative to its folder. Throws ChipError
  /// (bad_program_file) that names the file and the field.
  [[nodiscard]] static ChipProgramSource load(const std::filesystem::path& program_json);
};

struct ChipBuildOptions {
  std::filesystem::path output = {};  ///< A copy of the result goes here too, if set.
  /// If empty: STRATA_CACHE, else strata/ in XDG_CACHE_HOME or ~/.cache.
  std::filesystem::path cache = {};
  std::string compiler = {};  ///< If empty: STRATA_CXX, CXX, else c++.
  ProgramSanitizer sanitizer = ProgramSanitizer::none;
  bool check = false;                                   ///< For checking mode.
  unsigned jobs = 0;                                    ///< Compilers at once; 0: as many as CPUs.
  std::function<void(std::string_view)> progress = {};  ///< Told what is being done.
  /// If set, a rule for make goes here: what the output depends on.
  std::filesystem::path depfile = {};
};

/// Builds, or finds in the cache. Returns the file. Throws ChipError (compile_failed with the
/// compiler's own text, missing_headers, bad_program_file).
[[nodiscard]] std::filesystem::path build_chip_program(const ChipProgramSource& source,
                                                       const ChipBuildOptions& options = {});

/// What a chip program file says of itself.
struct ChipProgramInfo {
  struct KernelInfo {
    std::string name;
    CoreType core = CoreType::aiv;
    std::string symbol;  ///< In the file.
    std::string source;  ///< For messages.
  };
  std::string name;
  ChipSignature signature;
  std::vector<KernelInfo> kernels;
  std::string orchestration_symbol;  ///< In the file.
  std::string build_id;              ///< Hash of all that went into it, in hexadecimal.
  std::string compiler;
  std::string machine;  ///< "x86_64".
  ProgramSanitizer sanitizer = ProgramSanitizer::none;
  /// The sanitizer's library: a process that is not itself built with this sanitizer must be
  /// started with it in LD_PRELOAD, to load the program.
  std::string sanitizer_runtime;
  bool check = false;
  /// Functions that the kernels of a program built for checking mode call and that it can't look
  /// into.
  std::vector<std::string> unseen;

  /// Reads it without loading the program. Throws ChipError (bad_program_file, foreign_program,
  /// stale_program) with the reason.
  [[nodiscard]] static ChipProgramInfo read(const std::filesystem::path& file);
};

}  // namespace strata
