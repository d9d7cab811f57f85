// Program: a chip program in this process, ready to run.
//
// Thread safety: constant once made; shared by the runs that use it, and unloaded with the last.
#pragma once

#include <filesystem>
#include <memory>

#include "chip/program/kernel_set.hpp"
#include "strata/chip.hpp"
#include "strata/chip_program.hpp"

namespace strata::chip {

using OrchestrationFunction = void (*)(ChipOrchestration&);

class Program {
 public:
  /// Loads a chip program file; a file that has other content than at the last time is another
  /// program. Throws ChipError (bad_program_file, foreign_program, stale_program).
  [[nodiscard]] static std::shared_ptr<const Program> load(const std::filesystem::path& file);
  /// A program of functions that are in this process already.
  Program(ChipProgramInfo info, KernelSet kernels, OrchestrationFunction function);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] const ChipProgramInfo& info() const noexcept { return info_; }
  [[nodiscard]] const KernelSet& kernels() const noexcept { return kernels_; }
  [[nodiscard]] OrchestrationFunction orchestration() const noexcept { return orchestration_; }

 private:
  ChipProgramInfo info_;
  KernelSet kernels_;
  OrchestrationFunction orchestration_;
  void* library_ = nullptr;  ///< From dlopen; null for functions of this process.
  int memory_ = -1;          ///< The file in memory that it was loaded from, if it was.
};

}  // namespace strata::chip
