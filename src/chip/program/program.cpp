#include "chip/program/program.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "chip/program/program_cache.hpp"
#include "chip/program/program_file.hpp"
#include "chip/program/program_json.hpp"
#include "os/unique_fd.hpp"
#include "strata/chip_error.hpp"

namespace strata::chip {
namespace {

namespace fs = std::filesystem;

std::string loader_error() {
  const char* const text = ::dlerror();
  return text == nullptr ? "the loader does not say why" : text;
}

/// A sanitizer's runtime can't come in later than all else, and ends the process if it does.
void require_sanitizer(const ChipProgramInfo& info, const std::string& name) {
  if (info.sanitizer == ProgramSanitizer::none) return;
  const bool address = info.sanitizer == ProgramSanitizer::address;
  if (::dlsym(RTLD_DEFAULT, address ? "__asan_init" : "__tsan_init") != nullptr) return;
  const std::string library =
      info.sanitizer_runtime.empty()
          ? fmt::format("the {} sanitizer's library", name_of(info.sanitizer))
          : info.sanitizer_runtime;
  throw ChipError(
      ErrorCode::foreign_program,
      fmt::format("{}: it was built with the {} sanitizer, whose runtime is not in this "
                  "process; start it with LD_PRELOAD={}, or build the program without "
                  "--sanitizer",
                  name, name_of(info.sanitizer), library));
}

/// A path of these bytes under a name that no other content has. The loader takes two files of one
/// name for the same as long as the first is loaded, and a file at hand may be written anew.
/// Nothing if the cache can't be used.
std::optional<fs::path> path_by_content(const fs::path& file, std::string_view bytes,
                                        const ChipProgramInfo& info) {
  std::error_code failed;
  const std::string name = cached_name(info);
  fs::path known = fs::canonical(file, failed);
  if (!failed && known.filename() == name) return known;
  try {
    const fs::path folder = ProgramCache::default_folder();
    if (folder.empty()) return std::nullopt;
    const ProgramCache cache(folder);
    fs::path path = cache.program_path(name);
    try {
      const std::string there = read_program_file(path);
      (void)parse_program(there, path.string());
      return path;
    } catch (const ChipError&) {
      cache.put_bytes(bytes, path);  // It was not there, or damaged.
    }
    return path;
  } catch (const SystemError&) {
    return std::nullopt;
  }
}

/// A file in memory with these bytes. It is loaded by its number, so it stays open meanwhile.
os::UniqueFd in_memory(std::string_view bytes, const ChipProgramInfo& info) {
  os::UniqueFd file(::memfd_create(info.name.c_str(), MFD_CLOEXEC));
  while (file && !bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written <= 0) return {};
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return file;
}

struct Library {
  void* handle = nullptr;
  os::UniqueFd memory = {};
};

Library open_library(const fs::path& file, std::string_view bytes, const ChipProgramInfo& info) {
  Library library;
  std::string why;
  if (const auto path = path_by_content(file, bytes, info)) {
    library.handle = ::dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle != nullptr) return library;
    why = loader_error();
  }
  // Also where the cache lies on a file system that nothing may be executed from.
  library.memory = in_memory(bytes, info);
  if (library.memory) {
    library.handle = ::dlopen(fmt::format("/proc/self/fd/{}", library.memory.get()).c_str(),
                              RTLD_NOW | RTLD_LOCAL);
    if (library.handle != nullptr) return library;
    if (why.empty()) why = loader_error();
  }
  throw ChipError(
      ErrorCode::bad_program_file,
      fmt::format(
          "{}: it can't be loaded: {} (what kernels and orchestrations use must be in "
          "their sources, in the program that loads them, or in a library given by `flags`)",
          file.string(), why));
}

}  // namespace

Program::Program(ChipProgramInfo info, KernelSet kernels, OrchestrationFunction function)
    : info_(std::move(info)), kernels_(std::move(kernels)), orchestration_(function) {}

Program::~Program() {
  if (library_ != nullptr) ::dlclose(library_);
  if (memory_ >= 0) ::close(memory_);
}

std::shared_ptr<const Program> Program::load(const fs::path& file) {
  const std::string bytes = read_program_file(file);
  ChipProgramInfo info = parse_program(bytes, file.string());
  require_sanitizer(info, file.string());
  Library library = open_library(file, bytes, info);

  auto program = std::make_shared<Program>(std::move(info), KernelSet{}, nullptr);
  program->library_ = library.handle;
  program->memory_ = library.memory.release();
  const auto find = [&](const std::string& symbol) {
    void* const address = ::dlsym(library.handle, symbol.c_str());
    if (address == nullptr) {
      throw ChipError(
          ErrorCode::bad_program_file,
          fmt::format("{}: it has no function {}: {}", file.string(), symbol, loader_error()));
    }
    return address;
  };
  program->orchestration_ =
      reinterpret_cast<OrchestrationFunction>(find(program->info_.orchestration_symbol));
  program->kernels_.program = program->info_.name;
  program->kernels_.kernels.reserve(program->info_.kernels.size());
  for (const auto& kernel : program->info_.kernels) {
    program->kernels_.kernels.push_back(
        {.name = kernel.name,
         .core = kernel.core,
         .function = reinterpret_cast<KernelFunction>(find(kernel.symbol))});
  }
  return program;
}

}  // namespace strata::chip
