// The program of these tests: built once by each compiler, run in this process.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "chip/chip_runtime.hpp"
#include "chip/host_arguments.hpp"
#include "strata/chip_program.hpp"

namespace strata::test {

/// Which case of orchestration.cpp.
enum class Case : int {
  clean,
  gap,
  unwritten,
  neighbour,
  past,
  input,
  global,
  helper,
  copy_too_much,
  atomics,
  half_written = 100,
  initial_value,
  rows,
  all_edges,
  missing_edge,
  throws,
};

inline bool has_compiler(const std::string& name) {
  const std::string command = "command -v " + name + " > /dev/null 2>&1";
  return std::system(command.c_str()) == 0;
}

class CheckedProgram {
 public:
  /// The same for all tests with a compiler.
  static const CheckedProgram& by(const std::string& compiler) {
    static const CheckedProgram gcc("g++");
    if (compiler == "g++") return gcc;
    static const CheckedProgram clang("clang++");
    return clang;
  }

  [[nodiscard]] const std::shared_ptr<const chip::Program>& program() const { return program_; }
  [[nodiscard]] static std::filesystem::path kernels() {
    return std::filesystem::path(STRATA_CHECK_PROGRAM) / "kernels.cpp";
  }
  /// "kernels.cpp:12", the line with this mark.
  static std::string line_of(const std::string& fault) {
    std::ifstream file(kernels());
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      if (line.ends_with("// FAULT: " + fault)) return "kernels.cpp:" + std::to_string(number);
    }
    ADD_FAILURE() << "no line is marked " << fault;
    return "";
  }

 private:
  explicit CheckedProgram(const std::string& compiler) {
    const std::filesystem::path folder = STRATA_CHECK_PROGRAM;
    program_ = chip::Program::load(
        build_chip_program(ChipProgramSource::load(folder / "program.json"),
                           {.cache = STRATA_CHECK_CACHE, .compiler = compiler, .check = true}));
  }

  std::shared_ptr<const chip::Program> program_;
};

/// Two matrices of 8 x 16 floats, in memory of their own each.
inline chip::HostArguments matrices(Case which) {
  chip::HostArguments arguments;
  for (const char* const name : {"x", "y"}) {
    chip::HostTensor tensor{
        .name = name, .access = Access::inout, .dtype = DType::float32, .shape = {8, 16}};
    tensor.bytes.resize(8 * 16 * sizeof(float));
    auto* const values = reinterpret_cast<float*>(tensor.bytes.data());
    for (int i = 0; i < 8 * 16; ++i)
      values[i] = static_cast<float>(i);
    arguments.tensors.push_back(std::move(tensor));
  }
  arguments.scalars = {static_cast<std::uint64_t>(which)};
  return arguments;
}

}  // namespace strata::test
