// A chip in this process: what is measured of tasks has no other process in it.
//
// Thread safety: none.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "chip/chip_runtime.hpp"

namespace strata::bench {

/// A function of this program as a kernel.
struct NamedKernel {
  const char* name;
  CoreType core;
  chip::KernelFunction function;
};

class InProcessChip {
 public:
  InProcessChip(const char* platform, unsigned threads, std::optional<std::size_t> window = {})
      : InProcessChip({.platform = Platform::parse(platform)}, threads) {
    options_.window = window;
  }
  InProcessChip(const chip::ChipRuntimeOptions& options, unsigned threads) : runtime_(options) {
    options_.threads = threads;
  }
  /// Runs call the orchestration, which has these kernels.
  void set_program(const std::vector<NamedKernel>& kernels,
                   chip::OrchestrationFunction orchestration) {
    ChipProgramInfo info;
    info.name = "bench";
    chip::KernelSet set;
    set.program = info.name;
    for (const NamedKernel& kernel : kernels) {
      info.kernels.push_back(
          {.name = kernel.name, .core = kernel.core, .symbol = {}, .source = {}});
      set.kernels.push_back({kernel.name, kernel.core, kernel.function});
    }
    program_ =
        std::make_shared<const chip::Program>(std::move(info), std::move(set), orchestration);
  }
  void run(const detail::ArgumentBlock& arguments) {
    (void)runtime_.run(
        {.program = program_, .arguments = arguments, .name = "bench", .options = options_});
  }

 private:
  chip::ChipRuntime runtime_;
  std::shared_ptr<const chip::Program> program_;
  ChipRunOptions options_;
};

/// Row-major arrays of this program as the arguments of a run.
class Arguments {
 public:
  template <class T>
  void add(std::vector<T>& data, const std::vector<std::int64_t>& shape, Access access) {
    const std::size_t rank = shape.size();
    std::vector<std::int64_t> dims(shape);
    dims.resize(2 * rank);
    std::int64_t stride = 1;
    for (std::size_t i = rank; i-- > 0;) {
      dims[rank + i] = stride;
      stride *= shape[i];
    }
    dims_.push_back(std::move(dims));  // What it points to stays where it is.
    records_.push_back({.data = reinterpret_cast<std::byte*>(data.data()),
                        .dims = dims_.back().data(),
                        .buffer = {},
                        .byte_offset = 0,
                        .dtype = dtype_of<T>,
                        .access = access,
                        .tracking = Tracking::full,
                        .rank = static_cast<std::uint8_t>(rank),
                        .flags = 0});
  }
  template <class T>
  void add_scalar(T value) {
    scalars_.push_back(Scalar::of(value).bits);
  }
  [[nodiscard]] detail::ArgumentBlock block() const {
    return {.tensors = records_.data(),
            .scalars = scalars_.data(),
            .tensor_count = static_cast<std::uint32_t>(records_.size()),
            .scalar_count = static_cast<std::uint32_t>(scalars_.size())};
  }

 private:
  std::vector<std::vector<std::int64_t>> dims_;
  std::vector<detail::TensorRecord> records_;
  std::vector<std::uint64_t> scalars_;
};

}  // namespace strata::bench
