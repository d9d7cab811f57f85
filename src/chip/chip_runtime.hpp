// ChipRuntime: runs chip programs on the cores of one chip; the same for every platform.
//
// Thread safety: run() is for one thread at a time; status() for any.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chip/argument_ranges.hpp"
#include "chip/cores/core_pool.hpp"
#include "chip/program/program.hpp"
#include "strata/chip_run_options.hpp"
#include "strata/log_level.hpp"
#include "strata/platform.hpp"
#include "strata/run.hpp"
#include "strata/task_context.hpp"

namespace strata::chip {

struct ChipRuntimeOptions {
  Platform platform = {};
  std::vector<int> cpus = {};                      ///< That this chip may use; empty: all allowed.
  ipc::SpinnerBudget* budget = nullptr;            ///< Of the tree; may be null.
  std::function<void(std::string_view)> log = {};  ///< Lines of orchestrations and kernels.
  LogLevel log_level = LogLevel::info;             ///< Of orchestrations: lines below are dropped.
};

/// One run of a chip program.
struct ChipRunRequest {
  std::shared_ptr<const Program> program = {};
  detail::ArgumentBlock arguments = {};  ///< Lives until run() returns.
  /// Arguments that lie in these are memory of the chip already: they are used where they are on
  /// platforms that do not share the host's, too.
  std::span<const AddressRange> on_chip = {};
  std::string_view name = {};
  ChipRunOptions options = {};
  /// Whether the run is wanted no more; looked at every some milliseconds.
  bool (*cancelled)(const void* token) = nullptr;
  const void* token = nullptr;
};

struct ChipRunResult {
  RunStats stats = {};
  std::string graph = {};  ///< DOT, if ChipRunOptions::keep_graph.
};

/// A kernel did not end though its run was over: the message has what run() would have thrown, and
/// this process can't be used for chips any more.
class ChipStuck : public ChipError {
  using ChipError::ChipError;
};

class ChipRuntime {
 public:
  explicit ChipRuntime(const ChipRuntimeOptions& options);
  ~ChipRuntime();
  ChipRuntime(const ChipRuntime&) = delete;
  ChipRuntime& operator=(const ChipRuntime&) = delete;

  [[nodiscard]] const Platform& platform() const noexcept;
  /// Runs a program to its end. Throws what it failed with: ChipError (kernel_threw,
  /// kernel_overran, ...), Cancelled, ChipStuck.
  ChipRunResult run(const ChipRunRequest& request);
  /// Forgets recordings of the program; before it is unloaded.
  void forget(const Program& program);
  [[nodiscard]] std::vector<CoreStatus> status() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Bounds of ChipRunOptions.
inline constexpr unsigned kMaxThreads = 4096;
inline constexpr std::size_t kMaxHeap = std::size_t{1} << 46;

/// Checks the options of a run, before it is submitted. Throws ChipError (bad_configuration) that
/// names the option.
void validate(const ChipRunOptions& options, const Platform& platform);

/// Checks arguments against a signature. Throws ChipError (wrong_argument_count, _mode, _dtype,
/// _rank) that names the program and the argument.
void check_signature(const ChipProgramInfo& program, std::span<const TensorArg> tensors,
                     std::size_t scalars);

}  // namespace strata::chip
