// From a source to an object in the cache, and from objects to a program file.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <set>
#include <system_error>

#include "base/exception_text.hpp"
#include "chip/check/check_names.hpp"
#include "chip/program/program_build.hpp"
#include "chip/program/program_file.hpp"
#include "os/deadline.hpp"
#include "strata/chip_error.hpp"

namespace strata::chip {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// How often a unit is compiled if its files change meanwhile.
constexpr int kAttempts = 3;

/// The coarse clock goes on in far less than this.
constexpr std::chrono::milliseconds kMostTicks{200};

/// A tool failed; the text says all there is to know.
struct ToolFailure {
  std::string text;
};

std::string run_or_fail(const Words& argv, const fs::path& work, const std::string& name) {
  ToolResult result = run_tool(argv, work, name);
  if (!result.status.clean()) {
    throw ToolFailure{fmt::format("{}\n{}{}", command_line(argv), result.text,
                                  result.status.kind == os::ExitStatus::Kind::exited
                                      ? ""
                                      : result.status.to_string() + "\n")};
  }
  return result.text;
}

/// The files behind the colon of a rule for make.
Words files_of_rule(std::string_view rule) {
  Words files;
  const std::size_t colon = rule.find(": ");
  rule.remove_prefix(colon == std::string_view::npos ? rule.size() : colon + 2);
  std::string file;
  const auto finish = [&] {
    if (!file.empty()) files.push_back(std::move(file));
    file.clear();
  };
  for (std::size_t i = 0; i < rule.size(); ++i) {
    const char c = rule[i];
    const char next = i + 1 < rule.size() ? rule[i + 1] : '\0';
    const bool escaped = c == '\\' && (next == ' ' || next == '#' || next == '\\');
    if (escaped || (c == '$' && next == '$')) {
      file += rule[++i];
    } else if (c == '\\' && next == '\n') {
      ++i;
      finish();
    } else if (c == ' ' || c == '\n') {
      finish();
    } else {
      file += c;
    }
  }
  finish();
  return files;
}

/// Waits until what is written from now on has a later time than what was written so far, and
/// returns the first such time. Since Linux 6.13 a file's time may be the precise one, which is
/// ahead of the coarse clock that other files get theirs from: so the coarse one has to pass it.
/// Not for long, should somebody set the clock back: then files seem to change all the time, and
/// are read each time.
std::int64_t next_tick() {
  timespec precise = {};
  ::clock_gettime(CLOCK_REALTIME, &precise);
  const std::int64_t written = std::int64_t{precise.tv_sec} * 1'000'000'000 + precise.tv_nsec;
  const os::Deadline patience = os::Deadline::after(kMostTicks);
  std::int64_t tick = file_clock_ns();
  while (tick <= written && !patience.passed()) {
    const timespec moment{.tv_sec = 0, .tv_nsec = 500'000};
    (void)::nanosleep(&moment, nullptr);
    tick = file_clock_ns();
  }
  return tick;
}

/// Files that would have been found in place of one that was: the same name in the folder of the
/// source, or in a folder of headers that comes before. (Headers of the system are left out.)
void add_absent(const BuildUnit& unit, const std::string& file, std::set<std::string>& absent) {
  for (std::size_t i = 0; i < unit.include.size(); ++i) {
    const std::string folder = unit.include[i] + "/";
    if (!file.starts_with(folder)) continue;
    const std::string name = file.substr(folder.size());
    std::error_code failed;
    const auto add = [&](const fs::path& other) {
      if (!fs::exists(other, failed)) absent.insert(other.string());
    };
    add(unit.source.parent_path() / name);
    for (std::size_t k = 0; k < i; ++k)
      add(fs::path(unit.include[k]) / name);
    return;
  }
}

/// What the compiled unit depends on; nothing if one of the files was written since `started`.
std::optional<CacheEntry> dependencies_of(const BuildUnit& unit, const fs::path& rule,
                                          std::int64_t started, bool last_attempt) {
  CacheEntry entry;
  FileTable files;
  std::set<std::string> paths;
  std::set<std::string> absent;
  for (const std::string& file : files_of_rule(read_whole_file(rule).value_or("")))
    paths.insert(fs::absolute(file).lexically_normal().string());
  paths.insert(unit.source.string());
  for (const std::string& path : paths) {
    const auto& content = files.content(path);
    const bool changed = !content || content->stamp.modified_ns >= started;
    if (changed && !last_attempt) return std::nullopt;
    if (!content || path.find('\n') != std::string::npos) {
      throw ToolFailure{fmt::format("{} can't be read, or it changes all the time\n", path)};
    }
    // A time in the future says nothing: such a file is read each time.
    entry.dependencies.push_back(
        {.path = path, .stamp = changed ? FileStamp{} : content->stamp, .digest = content->digest});
    add_absent(unit, path, absent);
  }
  entry.absent.assign(absent.begin(), absent.end());
  return entry;
}

/// The symbol `wanted` is `prefix` and the name that `macro` was to be given.
void require_entry(const std::vector<std::string>& functions, std::string_view wanted,
                   std::string_view prefix, std::string_view macro) {
  if (std::find(functions.begin(), functions.end(), wanted) != functions.end()) return;
  Words names;
  for (const std::string& function : functions) {
    if (function.starts_with(prefix)) names.push_back(function.substr(prefix.size()));
  }
  throw ToolFailure{
      fmt::format("it defines no {}({}); names that it does define so: {}\n", macro,
                  wanted.substr(prefix.size()),
                  names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")))};
}

/// The object of a kernel with all names local but its entry.
fs::path isolate(const BuildUnit& unit, const fs::path& object, const Toolchain& toolchain,
                 const fs::path& work, const std::string& name) {
  const auto bytes = read_whole_file(object);
  require_entry(symbols_of(bytes.value_or("")).functions, unit.entry, kKernelEntry,
                "STRATA_KERNEL");
  const fs::path merged = work / (name + ".merged.o");
  Words link = toolchain.command;
  // Groups (inline functions, templates) become plain sections, which no linker merges any more.
  link.insert(link.end(), {"-r", "-nostdlib", "-Wl,--force-group-allocation", object.string(), "-o",
                           merged.string()});
  (void)run_or_fail(link, work, name);
  if (toolchain.objcopy.empty()) {
    throw ToolFailure{"there is no program objcopy; install the package binutils\n"};
  }
  fs::path isolated = work / (name + ".isolated.o");
  Words rename = {toolchain.objcopy, fmt::format("--redefine-sym={}={}", unit.entry, unit.symbol),
                  "--keep-global-symbol=" + unit.symbol};
  if (unit.check) {
    for (const std::string_view function : kCheckedNames)
      rename.push_back(fmt::format("--redefine-sym={0}={1}{0}", function, kCheckedPrefix));
  }
  rename.insert(rename.end(), {merged.string(), isolated.string()});
  (void)run_or_fail(rename, work, name);
  return isolated;
}

void compile_or_fail(BuildUnit& unit, const Toolchain& toolchain, const ProgramCache& cache,
                     const fs::path& work, const std::string& name) {
  const fs::path object = work / (name + ".o");
  const fs::path rule = work / (name + ".d");
  Words compile = toolchain.command;
  compile.insert(compile.end(), unit.flags.begin(), unit.flags.end());
  compile.insert(compile.end(),
                 {"-MD", "-MF", rule.string(), "-c", unit.source.string(), "-o", object.string()});
  std::optional<CacheEntry> entry;
  for (int attempt = 1; !entry; ++attempt) {
    const std::int64_t started = next_tick();
    unit.warnings = run_or_fail(compile, work, name);
    entry = dependencies_of(unit, rule, started, attempt == kAttempts);
  }
  const bool is_kernel = unit.kind == BuildUnit::Kind::kernel;
  const fs::path result = is_kernel ? isolate(unit, object, toolchain, work, name) : object;
  const auto bytes = read_whole_file(result);
  if (!bytes) throw ToolFailure{"there is no object file though the compiler had no complaint\n"};
  entry->result = digest_of(*bytes).hex();
  ProgramCache::put(result, cache.object_path(entry->result));
  cache.remember(unit.key, *entry);
  unit.object = entry->result;
  unit.entry_in_cache = std::move(*entry);
}

}  // namespace

void compile_unit(BuildUnit& unit, const Toolchain& toolchain, const ProgramCache& cache,
                  const fs::path& work, const std::string& name) {
  try {
    compile_or_fail(unit, toolchain, cache, work, name);
  } catch (const ToolFailure& failure) {
    unit.failure = failure.text;
  } catch (const std::exception& error) {
    unit.failure = fmt::format("{}\n", error.what());
  }
}

fs::path link_program(const std::vector<BuildUnit>& units, const ChipProgramSource& source,
                      const ChipProgramInfo& info, const Toolchain& toolchain,
                      const ProgramCache& cache, const fs::path& work) {
  const fs::path description = work / "program.description";
  const fs::path assembly = work / "program.s";
  const fs::path exports = work / "program.map";
  fs::path program = work / "program.strata";
  write_whole_file(description, program_section(info));
  write_whole_file(assembly, fmt::format(".section .strata.program,\"\",%progbits\n.balign 8\n"
                                         ".incbin \"{}\"\n"
                                         ".section .note.GNU-stack,\"\",%progbits\n",
                                         description.string()));
  write_whole_file(exports, fmt::format("{{ global: strata_kernel_*; {}; local: *; }};\n",
                                        info.orchestration_symbol));
  Words link = toolchain.command;
  link.insert(link.end(), {"-shared", "-o", program.string(), assembly.string()});
  std::vector<std::string> functions;
  for (const BuildUnit& unit : units) {
    link.push_back(cache.object_path(unit.object).string());
    if (unit.kind == BuildUnit::Kind::kernel) continue;
    const ObjectSymbols symbols = symbols_of(cache.object(unit.object).value_or(""));
    functions.insert(functions.end(), symbols.functions.begin(), symbols.functions.end());
  }
  link.insert(link.end(), {"-Wl,--version-script=" + exports.string(), "-Wl,-z,now", "-Wl,-z,relro",
                           "-Wl,--build-id=0x" + info.build_id});
  link.insert(link.end(), source.flags.begin(), source.flags.end());
  try {
    require_entry(functions, info.orchestration_symbol, kOrchestrationEntry,
                  "STRATA_CHIP_ORCHESTRATION");
    (void)run_or_fail(link, work, "link");
  } catch (const ToolFailure& failure) {
    throw ChipError(ErrorCode::compile_failed, fmt::format("chip program '{}' can't be linked: {}",
                                                           source.name, failure.text));
  }
  std::string bytes = read_whole_file(program).value_or("");
  if (!seal_program(bytes)) {
    throw ChipError(ErrorCode::compile_failed,
                    fmt::format("chip program '{}': the linker left the section .strata.program "
                                "out; it was called so:\n{}",
                                source.name, command_line(link)));
  }
  write_whole_file(program, bytes);
  return program;
}

namespace {

/// What touches no memory that a kernel has an address of, or is known to checking mode.
bool is_seen(std::string_view symbol) {
  static constexpr std::string_view kPrefixes[] = {
      "strata_",     "__asan_", "__tsan_", "__cxa_", "_Unwind_", "__gxx_personality",
      "__stack_chk", "_ZTV",    "_ZTI",    "_ZTS",   "__ubsan_"};
  static constexpr std::string_view kNames[] = {
      "_GLOBAL_OFFSET_TABLE_", "__tls_get_addr", "__dso_handle", "abort",
      "_ZSt9terminatev",       "memcpy",         "memmove",      "memset"};
  static constexpr std::string_view kMath[] = {
      "acos",      "acosh",     "asin", "asinh",     "atan",  "atan2", "atanh",  "cbrt",  "ceil",
      "copysign",  "cos",       "cosh", "erf",       "erfc",  "exp",   "exp2",   "expm1", "fabs",
      "fdim",      "floor",     "fma",  "fmax",      "fmin",  "fmod",  "hypot",  "ldexp", "lgamma",
      "llrint",    "llround",   "log",  "log10",     "log1p", "log2",  "logb",   "lrint", "lround",
      "nearbyint", "nextafter", "pow",  "remainder", "rint",  "round", "scalbn", "sin",   "sinh",
      "sqrt",      "tan",       "tanh", "tgamma",    "trunc"};
  const auto is_in = [](const auto& names, std::string_view name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  for (const std::string_view prefix : kPrefixes) {
    if (symbol.starts_with(prefix)) return true;
  }
  // What the standard exceptions do with themselves.
  const bool is_member = symbol.starts_with("_ZNSt") || symbol.starts_with("_ZNKSt");
  const bool of_exception = symbol.find("9exception") != std::string_view::npos ||
                            symbol.find("_error") != std::string_view::npos;
  if (is_member && of_exception) return true;
  if (symbol.starts_with("_ZSt") && symbol.find("__throw_") != std::string_view::npos) return true;
  // operator new, new[], delete, delete[]
  for (const std::string_view prefix : {"_Znw", "_Zna", "_Zdl", "_Zda"}) {
    if (symbol.starts_with(prefix)) return true;
  }
  if (is_in(kNames, symbol) || is_in(kMath, symbol)) return true;
  const bool has_suffix = symbol.ends_with('f') || symbol.ends_with('l');
  return has_suffix && is_in(kMath, symbol.substr(0, symbol.size() - 1));
}

}  // namespace

std::vector<std::string> unseen_functions(const std::vector<std::string>& undefined) {
  std::set<std::string> names;
  for (const std::string& symbol : undefined) {
    if (is_seen(symbol)) continue;
    names.insert(base::demangled(symbol.c_str()));
  }
  return {names.begin(), names.end()};
}

}  // namespace strata::chip
