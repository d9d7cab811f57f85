// Toolchain: the C++ compiler of this machine, what it is, and how it is run.
//
// Thread safety: constant once found; run_tool() may be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "chip/program/program_cache.hpp"
#include "os/child_process.hpp"
#include "strata/chip_program.hpp"

namespace strata::chip {

struct Toolchain {
  enum class Family : std::uint8_t { gcc, clang };
  std::vector<std::string> command = {};  ///< "/usr/bin/c++", or "/usr/bin/ccache", "g++".
  Family family = Family::gcc;
  std::string version = {};   ///< First line of what it says of itself.
  std::string identity = {};  ///< Hash of the compiler's own files and of what it says.
  std::string objcopy = {};
  std::string address_runtime = {};  ///< Libraries of its sanitizers; empty if not there.
  std::string thread_runtime = {};
};

/// Finds the compiler (ChipBuildOptions::compiler) and asks it what it is, or finds that in the
/// cache. Throws ChipError (compile_failed) if it can't be run.
[[nodiscard]] Toolchain find_toolchain(const std::string& given, const ProgramCache& cache,
                                       FileTable& files);

/// How a program ended, and what it wrote to stdout and stderr.
struct ToolResult {
  os::ExitStatus status;
  std::string text;
};
/// Runs a program to its end; argv[0] is its path. What it writes passes through a file in `work`
/// of that name. Throws SystemError.
[[nodiscard]] ToolResult run_tool(const std::vector<std::string>& argv,
                                  const std::filesystem::path& work, const std::string& name);

/// As one would type it.
[[nodiscard]] std::string command_line(const std::vector<std::string>& argv);

/// The file that a shell would run; empty if there is none.
[[nodiscard]] std::string find_program(const std::string& name);

}  // namespace strata::chip
