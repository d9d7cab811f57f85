#include "chip/program/program_build.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "chip/program/program_file.hpp"
#include "chip/program/program_interface.hpp"
#include "chip/program/program_json.hpp"
#include "os/cpu.hpp"
#include "os/system_error.hpp"
#include "strata/chip_error.hpp"

namespace strata {
namespace {

namespace fs = std::filesystem;
using namespace chip;

fs::path cache_folder(const ChipBuildOptions& options) {
  fs::path folder = options.cache.empty() ? ProgramCache::default_folder() : options.cache;
  if (folder.empty()) {
    throw ChipError(ErrorCode::bad_configuration,
                    "there is no folder for the cache of chip programs: neither HOME nor "
                    "XDG_CACHE_HOME is set; set STRATA_CACHE to one");
  }
  return folder;
}

/// One call of build_chip_program().
class Build {
 public:
  Build(const ChipProgramSource& source, const ChipBuildOptions& options)
      : source_(source),
        options_(options),
        cache_(cache_folder(options)),
        toolchain_(find_toolchain(options.compiler, cache_, files_)),
        units_(units_of(source, options, toolchain_)),
        info_(describe()),
        key_(program_key()) {}

  /// The program in the cache.
  fs::path run() {
    if (auto found = find_program()) return *found;
    find_units();
    compile_units();
    return link();
  }

  /// A copy where the caller wants it, with the rule for make.
  fs::path deliver(const fs::path& program) const {
    const fs::path& output = options_.output;
    if (!output.empty()) replace(program, output);
    if (!options_.depfile.empty()) write_depfile(output.empty() ? program : output);
    return output.empty() ? program : output;
  }

 private:
  void tell(std::string_view text) const {
    if (options_.progress) options_.progress(text);
  }

  ChipProgramInfo describe() const {
    ChipProgramInfo info;
    info.name = source_.name;
    info.signature = source_.signature;
    for (std::size_t i = 0; i < source_.kernels.size(); ++i) {
      info.kernels.push_back({.name = source_.kernels[i].name,
                              .core = source_.kernels[i].core,
                              .symbol = units_[i].symbol,
                              .source = units_[i].source.string()});
    }
    info.orchestration_symbol = kOrchestrationEntry;
    info.orchestration_symbol +=
        source_.orchestration_symbol.empty() ? source_.name : source_.orchestration_symbol;
    info.compiler = toolchain_.version;
    info.machine = machine_name();
    info.sanitizer = options_.sanitizer;
    if (options_.sanitizer == ProgramSanitizer::address) {
      info.sanitizer_runtime = toolchain_.address_runtime;
    } else if (options_.sanitizer == ProgramSanitizer::thread) {
      info.sanitizer_runtime = toolchain_.thread_runtime;
    }
    info.check = options_.check;
    info.build_id = Digest{}.hex();
    return info;
  }

  Digest program_key() const {
    KeyText key;
    key.add("program 1").add(program_section(info_)).add_all(source_.flags);
    for (const BuildUnit& unit : units_)
      key.add(unit.key.hex());
    return key.digest();
  }

  /// The program as it was linked before, if nothing has changed since.
  std::optional<fs::path> find_program() {
    auto entry = cache_.find(key_, files_);
    if (!entry) return std::nullopt;
    info_.build_id = entry->result;
    fs::path path = cache_.program_path(cached_name(info_));
    try {
      if (ChipProgramInfo::read(path).build_id != entry->result) return std::nullopt;
    } catch (const ChipError&) {
      return std::nullopt;  // Missing or damaged: it will be linked again.
    }
    entry_ = std::move(*entry);
    return path;
  }

  void find_units() {
    for (BuildUnit& unit : units_) {
      auto entry = cache_.find(unit.key, files_);
      if (!entry || !cache_.object(entry->result)) continue;
      unit.object = entry->result;
      unit.entry_in_cache = std::move(*entry);
    }
  }

  void compile_units() {
    std::vector<BuildUnit*> missing;
    for (BuildUnit& unit : units_) {
      if (unit.object.empty()) missing.push_back(&unit);
    }
    if (missing.empty()) return;
    const WorkFolder work(cache_);
    std::atomic<std::size_t> next{0};
    const auto compile_some = [&] {
      for (std::size_t i = next++; i < missing.size(); i = next++)
        compile_unit(*missing[i], toolchain_, cache_, work.path(), std::to_string(i));
    };
    for (const BuildUnit* const unit : missing)
      tell(fmt::format("compiles {}", unit->label));
    run_at_once(missing.size(), compile_some);
    report(missing);
  }

  /// Calls it from as many threads as there may be compilers; this is one of them.
  template <class Function>
  void run_at_once(std::size_t units, const Function& function) const {
    const unsigned allowed =
        options_.jobs != 0 ? options_.jobs : static_cast<unsigned>(os::allowed_cpus());
    const std::size_t count = std::min<std::size_t>(allowed, units);
    std::vector<std::jthread> threads;
    threads.reserve(count);
    for (std::size_t i = 1; i < count; ++i)
      threads.emplace_back(function);
    function();
  }

  void report(const std::vector<BuildUnit*>& compiled) const {
    std::string failures;
    std::size_t failed = 0;
    for (const BuildUnit* const unit : compiled) {
      if (!unit->failure.empty()) {
        ++failed;
        failures +=
            fmt::format("\n{} in {}:\n{}", unit->label, unit->source.string(), unit->failure);
      } else if (!unit->warnings.empty()) {
        tell(fmt::format("{} in {}:\n{}", unit->label, unit->source.string(), unit->warnings));
      }
    }
    if (failed == 0) return;
    throw ChipError(ErrorCode::compile_failed,
                    fmt::format("{} of the {} sources of chip program '{}' can't be compiled:{}",
                                failed, units_.size(), source_.name, failures));
  }

  fs::path link() {
    std::map<std::string, CacheDependency> dependencies;
    std::vector<std::string> undefined;
    for (const BuildUnit& unit : units_) {
      for (const CacheDependency& dependency : unit.entry_in_cache.dependencies)
        dependencies.insert_or_assign(dependency.path, dependency);
      entry_.absent.insert(entry_.absent.end(), unit.entry_in_cache.absent.begin(),
                           unit.entry_in_cache.absent.end());
      if (!unit.check) continue;
      const ObjectSymbols symbols = symbols_of(cache_.object(unit.object).value_or(""));
      undefined.insert(undefined.end(), symbols.undefined.begin(), symbols.undefined.end());
    }
    std::sort(entry_.absent.begin(), entry_.absent.end());
    entry_.absent.erase(std::unique(entry_.absent.begin(), entry_.absent.end()),
                        entry_.absent.end());
    info_.unseen = unseen_functions(undefined);
    KeyText id;
    id.add(key_.hex());
    for (auto& [path, dependency] : dependencies) {
      id.add(path).add(dependency.digest.hex());
      entry_.dependencies.push_back(std::move(dependency));
    }
    info_.build_id = id.digest().hex();
    entry_.result = info_.build_id;

    tell(fmt::format("links chip program '{}'", source_.name));
    const WorkFolder work(cache_);
    const fs::path linked = link_program(units_, source_, info_, toolchain_, cache_, work.path());
    fs::path program = cache_.program_path(cached_name(info_));
    ProgramCache::put(linked, program);
    cache_.remember(key_, entry_);
    return program;
  }

  /// A program that is loaded from `to` goes on as it was.
  static void replace(const fs::path& from, const fs::path& file) {
    std::error_code unknown;
    const fs::path to = fs::is_symlink(file, unknown) ? fs::weakly_canonical(file, unknown) : file;
    if (fs::exists(to, unknown) && !fs::is_regular_file(to, unknown)) {
      throw SystemError(
          fmt::format("write the chip program to {}, which is no regular file", to.string()),
          EEXIST);
    }
    fs::path beside = to;
    beside += fmt::format(".{}.{}", ::getpid(), ::gettid());
    std::error_code failed;
    if (to.has_parent_path()) fs::create_directories(to.parent_path(), failed);
    fs::copy_file(from, beside, fs::copy_options::overwrite_existing, failed);
    if (!failed) fs::rename(beside, to, failed);
    if (failed) {
      std::error_code ignored;
      fs::remove(beside, ignored);
      throw SystemError(fmt::format("write the chip program to {}", to.string()), failed.value());
    }
  }

  void write_depfile(const fs::path& target) const {
    const auto quoted = [](const std::string& path) {
      std::string text;
      for (const char c : path) {
        if (c == ' ' || c == '#') text += '\\';
        if (c == '$') text += '$';
        text += c;
      }
      return text;
    };
    std::string rule = quoted(target.string()) + ":";
    for (const CacheDependency& dependency : entry_.dependencies)
      rule += " \\\n  " + quoted(dependency.path);
    write_whole_file(options_.depfile, rule + "\n");
  }

  const ChipProgramSource& source_;
  const ChipBuildOptions& options_;
  const ProgramCache cache_;
  FileTable files_;
  const Toolchain toolchain_;
  std::vector<BuildUnit> units_;
  ChipProgramInfo info_;
  const Digest key_;
  CacheEntry entry_;
};

}  // namespace

fs::path build_chip_program(const ChipProgramSource& source, const ChipBuildOptions& options) {
  if (const std::string problem = problem_of(source); !problem.empty()) {
    throw ChipError(ErrorCode::bad_program_file,
                    fmt::format("chip program '{}': {}", source.name, problem));
  }
  if (options.check && options.sanitizer != ProgramSanitizer::none) {
    throw ChipError(ErrorCode::bad_configuration,
                    fmt::format("chip program '{}': checking mode and a sanitizer exclude each "
                                "other; build it once with each",
                                source.name));
  }
  Build build(source, options);
  return build.deliver(build.run());
}

}  // namespace strata
