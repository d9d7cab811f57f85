// A folder with the sources of a chip program, a cache of its own, and a compiler that counts.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "strata/chip_error.hpp"
#include "strata/chip_program.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {

class ProgramFolder {
 public:
  explicit ProgramFolder(const std::string& compiler = "c++") {
    write("compiler", "#!/bin/sh\ncase \" $* \" in *' -c '*) echo \"$*\" >>'" +
                          (path() / "calls").string() + "';; esac\nexec " + compiler + " \"$@\"\n");
    ::chmod((path() / "compiler").c_str(), 0755);
    options.cache = path() / "cache";
    options.compiler = (path() / "compiler").string();
    write("orchestration.cpp",
          "#include <strata/chip.hpp>\nSTRATA_CHIP_ORCHESTRATION(program) {}\n");
    source.name = "program";
    source.orchestration = {path() / "orchestration.cpp"};
  }

  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path write(const std::string& name, std::string_view text) const {
    std::filesystem::create_directories((path() / name).parent_path());
    std::ofstream(path() / name, std::ios::binary) << text;
    return path() / name;
  }
  /// Adds a kernel whose source is this, behind the usual include.
  void add_kernel(const std::string& name, std::string_view text, const std::string& symbol = "") {
    const auto file =
        write(name + ".cpp", "#include <strata/kernel.hpp>\n" + std::string(text) + "\n");
    source.kernels.push_back({.name = name, .source = file, .symbol = symbol});
  }
  [[nodiscard]] std::filesystem::path build() const { return build_chip_program(source, options); }

  /// How many sources were compiled since the last call.
  std::size_t compiled() {
    std::ifstream file(path() / "calls");
    std::size_t count = 0;
    for (std::string line; std::getline(file, line);)
      ++count;
    const std::size_t before = counted_;
    counted_ = count;
    return count - before;
  }

  ChipProgramSource source = {};
  ChipBuildOptions options = {};

 private:
  TempDir folder_;
  std::size_t counted_ = 0;
};

/// A kernel that adds `value` to element 0.
inline std::string adds(const std::string& name, const std::string& value) {
  return "STRATA_KERNEL(" + name + ") { kernel.data<float>(0)[0] += " + value + "; }";
}

/// The error of a call; code none if there was none.
struct Failure {
  ErrorCode code = ErrorCode::none;
  std::string text = {};
};
inline Failure failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ChipError& error) {
    return {error.code(), error.what()};
  }
  return {};
}

inline std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Calls a kernel with one float.
inline float call(void (*function)(const Kernel&), float value) {
  const std::int64_t dims[] = {1, 1};
  const detail::TensorRecord record = {.data = reinterpret_cast<std::byte*>(&value),
                                       .dims = dims,
                                       .buffer = {},
                                       .byte_offset = 0,
                                       .dtype = DType::float32,
                                       .access = Access::inout,
                                       .tracking = Tracking::full,
                                       .rank = 1,
                                       .flags = 0};
  detail::KernelBlock block;
  block.arguments.tensors = &record;
  block.arguments.tensor_count = 1;
  function(Kernel(block));
  return value;
}

}  // namespace strata::test
