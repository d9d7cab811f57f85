// ChipSession: a chip in a process of its own, on which the command runs one chip program.
//
// Thread safety: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "chip/host_arguments.hpp"
#include "strata/chip_worker.hpp"

namespace strata::cli {

/// What is known of one run.
struct ChipRunFacts {
  std::chrono::nanoseconds time{0};  ///< From submission to result.
  std::uint64_t tasks = 0;
  std::uint64_t edges = 0;
  std::uint64_t heap_peak = 0;  ///< Bytes.
};

class ChipSession {
 public:
  /// Starts the chip. Throws StartFailed, ChipError.
  ChipSession(std::filesystem::path program, const std::string& platform,
              const chip::HostArguments& arguments);

  /// Runs the program with these arguments, whose tensors get what it has written. Throws what the
  /// run failed with.
  ChipRunFacts run(chip::HostArguments& arguments, ChipRunOptions options);
  void close() { chip_.close(); }

 private:
  std::filesystem::path program_;
  ChipWorker chip_;
  std::vector<Buffer> buffers_;  ///< By tensor.
};

/// What a run failed with, without the words around it that only tell of the chip's process.
[[nodiscard]] std::string failure_text(const std::exception& error);

}  // namespace strata::cli
