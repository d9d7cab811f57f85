// What is to be compiled, and with which flags.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <set>
#include <system_error>

#include "chip/check/check_names.hpp"
#include "chip/program/program_build.hpp"
#include "chip/program/program_interface.hpp"
#include "strata/chip_error.hpp"

namespace strata::chip {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr std::size_t kMaxNameBytes = 128;

/// Variables of the environment that compilers look at.
constexpr const char* kCompilerVariables[] = {"CPATH",           "CPLUS_INCLUDE_PATH",
                                              "LIBRARY_PATH",    "COMPILER_PATH",
                                              "GCC_EXEC_PREFIX", "SOURCE_DATE_EPOCH"};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_identifier(std::string_view text) {
  return !text.empty() && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

/// A text with its $NAME and ${NAME} replaced.
struct Expanded {
  std::string text;
  std::string unset;  ///< The first variable that is not set; empty if all are.
};

Expanded expand(std::string_view text) {
  Expanded result;
  for (std::size_t i = 0; i < text.size();) {
    const bool braced = text.substr(i, 2) == "${";
    std::size_t end = i + (braced ? 2 : 1);
    const std::size_t begin = end;
    while (end < text.size() && (is_letter(text[end]) || (end > begin && is_digit(text[end]))))
      ++end;
    const bool closed = !braced || (end < text.size() && text[end] == '}');
    if (text[i] != '$' || end == begin || !closed) {
      result.text += text[i++];
      continue;
    }
    const std::string name(text.substr(begin, end - begin));
    const char* const value = std::getenv(name.c_str());
    if (value != nullptr) {
      result.text += value;
    } else if (result.unset.empty()) {
      result.unset = name;
    }
    i = end + (braced ? 1 : 0);
  }
  return result;
}

/// Why a folder of headers can't be used; empty if it can.
std::string problem_of_folder(const Expanded& folder) {
  std::error_code failed;
  if (!folder.unset.empty()) return fmt::format("the variable {} is not set", folder.unset);
  if (!fs::exists(folder.text, failed)) return fmt::format("{} does not exist", folder.text);
  if (!fs::is_directory(folder.text, failed)) return fmt::format("{} is not a folder", folder.text);
  return "";
}

Words include_folders(const ChipProgramSource& source) {
  Words folders;
  for (const std::string& text : source.include) {
    const Expanded folder = expand(text);
    if (const std::string problem = problem_of_folder(folder); !problem.empty()) {
      throw ChipError(ErrorCode::missing_headers,
                      fmt::format("chip program '{}': the folder of headers '{}' (in `include`) "
                                  "can't be used: {}",
                                  source.name, text, problem));
    }
    folders.push_back(fs::absolute(folder.text).lexically_normal().string());
  }
  return folders;
}

Words candidate_folders(const ChipProgramSource& source, const KernelSource& kernel) {
  Words folders;
  std::string tried;
  for (const std::string& text : kernel.include_candidates) {
    const Expanded folder = expand(text);
    const std::string problem = problem_of_folder(folder);
    if (problem.empty()) {
      folders.push_back(fs::absolute(folder.text).lexically_normal().string());
    } else {
      tried += fmt::format("\n  {}: {}", text, problem);
    }
  }
  if (folders.empty() && !kernel.include_candidates.empty()) {
    throw ChipError(ErrorCode::missing_headers,
                    fmt::format("chip program '{}': kernel '{}' ({}) needs headers from one of "
                                "these folders (its `include_candidates`), and none can be used:{}",
                                source.name, kernel.name, kernel.source.string(), tried));
  }
  return folders;
}

/// Flags by which each access of a kernel becomes a call of ours (see chip/check/check.hpp).
Words check_flags(const Toolchain& toolchain) {
  Words flags = {"-O1", "-g", "-fno-omit-frame-pointer", fmt::format("-D{}", kCheckedLibraryMacro)};
  const auto add = [&](std::initializer_list<const char*> more) {
    flags.insert(flags.end(), more.begin(), more.end());
  };
  if (toolchain.family == Toolchain::Family::clang) {
    add({"-fsanitize=kernel-address", "-mllvm", "-asan-instrumentation-with-call-threshold=0",
         "-mllvm", "-asan-opt=0", "-mllvm", "-asan-stack=0", "-mllvm", "-asan-globals=0",
         "-fno-vectorize", "-fno-slp-vectorize"});
  } else {
    // Not kernel-address: g++ leaves out a store whose address was loaded from just before.
    add({"-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0", "-fno-builtin-memcpy",
         "-fno-builtin-memmove", "-fno-builtin-memset", "-fno-tree-loop-distribute-patterns",
         "-fno-tree-vectorize", "-fno-tree-slp-vectorize"});
  }
  return flags;
}

Words flags_of(const ChipProgramSource& source, const ChipBuildOptions& options,
               const Toolchain& toolchain, const BuildUnit& unit) {
  Words flags = {"-std=" + source.standard, "-O2", "-g", "-fPIC", "-fvisibility=hidden"};
  if (toolchain.family == Toolchain::Family::gcc) {
    // Such symbols are one for the whole process, and a library that has some is never unloaded.
    flags.emplace_back("-fno-gnu-unique");
  }
  for (const std::string& folder : unit.include)
    flags.push_back("-I" + folder);
  for (const std::string& macro : source.macros)
    flags.push_back("-D" + macro);
  flags.insert(flags.end(), source.flags.begin(), source.flags.end());
  if (options.sanitizer != ProgramSanitizer::none) {
    flags.emplace_back(options.sanitizer == ProgramSanitizer::address ? "-fsanitize=address"
                                                                      : "-fsanitize=thread");
    flags.emplace_back("-fno-omit-frame-pointer");
  }
  if (unit.check) {
    const Words more = check_flags(toolchain);
    flags.insert(flags.end(), more.begin(), more.end());
  }
  return flags;
}

Digest key_of(const BuildUnit& unit, const ChipProgramSource& source, const Toolchain& toolchain) {
  KeyText key;
  key.add("unit 1").add(toolchain.identity).add_all(toolchain.command).add_all(unit.flags);
  key.add(unit.source.string()).add(unit.entry).add(unit.symbol).add(unit.check ? "check" : "");
  if (unit.check) {
    for (const std::string_view function : kCheckedNames)
      key.add(function);
  }
  for (const char* const name : kCompilerVariables) {
    const char* const value = std::getenv(name);
    key.add(value == nullptr ? "" : value);
  }
  // Flags may hold paths that are relative to the working directory.
  std::error_code failed;
  key.add(source.flags.empty() ? "" : fs::current_path(failed).string());
  return key.digest();
}

}  // namespace

bool is_program_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' &&
         name.front() != '-' && std::all_of(name.begin(), name.end(), [](char c) {
           return is_letter(c) || is_digit(c) || c == '.' || c == '-';
         });
}

std::string problem_of(const ChipProgramSource& source) {
  static constexpr const char* kName =
      "may have letters, digits, '_', '-' and '.', and begins with "
      "none of the last two";
  if (!is_program_name(source.name)) return fmt::format("name '{}': it {}", source.name, kName);
  if (source.orchestration.empty()) return "orchestration: there is no source";
  if (source.orchestration_symbol.empty() && !is_identifier(source.name)) {
    return fmt::format(
        "orchestration: name '{}' is no function's name, so orchestration.symbol must "
        "say that of its STRATA_CHIP_ORCHESTRATION",
        source.name);
  }
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < source.kernels.size(); ++i) {
    const KernelSource& kernel = source.kernels[i];
    if (!is_program_name(kernel.name)) {
      return fmt::format("kernels[{}].name '{}': it {}", i, kernel.name, kName);
    }
    if (!names.insert(kernel.name).second) {
      return fmt::format("kernels[{}].name: there are two kernels '{}'", i, kernel.name);
    }
    if (!is_identifier(kernel.symbol.empty() ? kernel.name : kernel.symbol)) {
      return fmt::format(
          "kernels[{}].symbol: '{}' is no function's name; it must be that of the "
          "STRATA_KERNEL",
          i, kernel.symbol.empty() ? kernel.name : kernel.symbol);
    }
  }
  if (!source.orchestration_symbol.empty() && !is_identifier(source.orchestration_symbol)) {
    return fmt::format("orchestration.symbol: '{}' is no function's name",
                       source.orchestration_symbol);
  }
  for (const std::string& macro : source.macros) {
    if (!is_identifier(std::string_view(macro).substr(0, macro.find_first_of("=(")))) {
      return fmt::format("macros: '{}' is not NAME or NAME=VALUE", macro);
    }
  }
  return "";
}

std::vector<BuildUnit> units_of(const ChipProgramSource& source, const ChipBuildOptions& options,
                                const Toolchain& toolchain) {
  Words include = {find_interface_headers().string()};
  const Words more = include_folders(source);
  std::vector<BuildUnit> units;
  units.reserve(source.kernels.size() + source.orchestration.size());
  const auto add = [&](BuildUnit unit, const Words& candidates) {
    std::error_code failed;
    unit.source = fs::absolute(unit.source).lexically_normal();
    if (!fs::is_regular_file(unit.source, failed)) {
      throw ChipError(ErrorCode::bad_program_file,
                      fmt::format("chip program '{}': {} has no source: there is no file {}",
                                  source.name, unit.label, unit.source.string()));
    }
    unit.include = include;
    unit.include.insert(unit.include.end(), candidates.begin(), candidates.end());
    unit.include.insert(unit.include.end(), more.begin(), more.end());
    unit.flags = flags_of(source, options, toolchain, unit);
    unit.key = key_of(unit, source, toolchain);
    units.push_back(std::move(unit));
  };
  for (const KernelSource& kernel : source.kernels) {
    add({.kind = BuildUnit::Kind::kernel,
         .label = fmt::format("kernel '{}'", kernel.name),
         .source = kernel.source,
         .entry = std::string(kKernelEntry) + (kernel.symbol.empty() ? kernel.name : kernel.symbol),
         .symbol = "strata_kernel_" + kernel.name,
         .check = options.check},
        candidate_folders(source, kernel));
  }
  for (const fs::path& path : source.orchestration) {
    add({.kind = BuildUnit::Kind::orchestration,
         .label = fmt::format("the orchestration ({})", path.filename().string()),
         .source = path},
        {});
  }
  return units;
}

}  // namespace strata::chip
