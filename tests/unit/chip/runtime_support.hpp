// What the tests of the chip runtime share: programs of functions of the test, arguments, runs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "chip/chip_runtime.hpp"
#include "strata/chip.hpp"

namespace strata::chip::test {

// --- Kernels ---

/// out = a + b, element by element.
inline void add(const Kernel& kernel) {
  const auto a = kernel.tensor(0), b = kernel.tensor(1), out = kernel.tensor(2);
  for (std::int64_t i = 0; i < out.extent(0); ++i)
    out.at<float>(i) = a.at<float>(i) + b.at<float>(i);
}
/// Every element of a tensor of rank one becomes the scalar.
inline void fill(const Kernel& kernel) {
  const auto out = kernel.tensor(0);
  for (std::int64_t i = 0; i < out.extent(0); ++i)
    out.at<float>(i) = kernel.scalar<float>(0);
}
/// x += the scalar.
inline void increase(const Kernel& kernel) {
  const auto x = kernel.tensor(0);
  for (std::int64_t i = 0; i < x.extent(0); ++i)
    x.at<float>(i) += kernel.scalar<float>(0);
}
/// Copies tensor 0 to tensor 1.
inline void copy(const Kernel& kernel) {
  const auto from = kernel.tensor(0), to = kernel.tensor(1);
  for (std::int64_t i = 0; i < to.extent(0); ++i)
    to.at<float>(i) = from.at<float>(i);
}
/// An int32 becomes the scalar.
inline void set_int(const Kernel& kernel) {
  *kernel.data<std::int32_t>(0) = kernel.scalar<std::int32_t>(0);
}
/// Element block() of tensor 0 becomes block() + 1, for the lane that has the last word.
inline void number_blocks(const Kernel& kernel) {
  kernel.tensor(0).at<float>(kernel.block()) = static_cast<float>(kernel.block() + 1);
}
inline void fails(const Kernel&) { throw std::runtime_error("the kernel's own words"); }
inline void nothing(const Kernel&) {}
/// Comes back only when the run is over.
inline void waits_for_cancel(const Kernel& kernel) {
  while (!kernel.cancelled())
    std::this_thread::yield();
}

inline std::vector<KernelEntry> test_kernels() {
  return {{"add", CoreType::aiv, add},
          {"fill", CoreType::aiv, fill},
          {"increase", CoreType::aiv, increase},
          {"copy", CoreType::aiv, copy},
          {"set_int", CoreType::aiv, set_int},
          {"number_blocks", CoreType::aiv, number_blocks},
          {"fails", CoreType::aiv, fails},
          {"nothing", CoreType::aiv, nothing},
          {"waits_for_cancel", CoreType::aiv, waits_for_cancel},
          {"cube", CoreType::aic, nothing}};
}

inline std::shared_ptr<const Program> program_of(OrchestrationFunction orchestration,
                                                 std::vector<KernelEntry> kernels = test_kernels(),
                                                 const std::string& name = "tested") {
  ChipProgramInfo info;
  info.name = name;
  info.check = true;
  for (const KernelEntry& kernel : kernels)
    info.kernels.push_back({.name = kernel.name, .core = kernel.core, .symbol = {}, .source = {}});
  return std::make_shared<const Program>(
      info, KernelSet{.program = name, .kernels = std::move(kernels)}, orchestration);
}

// --- Arguments ---

/// Tensor and scalar arguments over memory of the test.
class Arguments {
 public:
  template <class T>
  Arguments& add(Access access, T* data, std::vector<std::int64_t> shape,
                 std::vector<std::int64_t> strides = {}) {
    if (strides.empty()) {
      strides.resize(shape.size());
      std::int64_t stride = 1;
      for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d])
        strides[d] = stride;
    }
    auto& dims = dims_.emplace_back(shape);
    dims.insert(dims.end(), strides.begin(), strides.end());
    tensors_.push_back({.data = reinterpret_cast<std::byte*>(data),
                        .dims = nullptr,
                        .buffer = {},
                        .byte_offset = 0,
                        .dtype = dtype_of<T>,
                        .access = access,
                        .tracking = Tracking::full,
                        .rank = static_cast<std::uint8_t>(shape.size()),
                        .flags = 0});
    return *this;
  }
  template <class T>
  Arguments& add(Access access, std::vector<T>& data) {
    return add(access, data.data(), {static_cast<std::int64_t>(data.size())});
  }
  template <class T>
  Arguments& scalar(T value) {
    scalars_.push_back(Scalar::of(value).bits);
    return *this;
  }
  template <class T>
  void set_scalar(std::size_t i, T value) {
    scalars_[i] = Scalar::of(value).bits;
  }
  [[nodiscard]] detail::ArgumentBlock block() const {
    // Now, as this may be a copy of where they were added.
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      tensors_[i].dims = dims_[i].data();
    return {.tensors = tensors_.data(),
            .scalars = scalars_.data(),
            .tensor_count = static_cast<std::uint32_t>(tensors_.size()),
            .scalar_count = static_cast<std::uint32_t>(scalars_.size())};
  }

 private:
  std::vector<std::vector<std::int64_t>> dims_;
  mutable std::vector<detail::TensorRecord> tensors_;
  std::vector<std::uint64_t> scalars_;
};

// --- Runs ---

/// A runtime with its log, on a small chip.
class TestChip {
 public:
  explicit TestChip(std::string_view platform = "a2a3sim:clusters=2")
      : runtime_({.platform = Platform::parse(platform), .log = [this](std::string_view line) {
                    const std::lock_guard lock(mutex_);
                    log_.emplace_back(line);
                  }}) {}

  ChipRunResult run(const std::shared_ptr<const Program>& program, const Arguments& arguments = {},
                    const ChipRunOptions& options = {}) {
    return runtime_.run({.program = program, .arguments = arguments.block(), .options = options});
  }
  ChipRunResult run(OrchestrationFunction orchestration, const Arguments& arguments = {},
                    const ChipRunOptions& options = {}) {
    return run(program_of(orchestration), arguments, options);
  }
  /// The text and the code of the ChipError that the run ends with.
  std::string refusal(ErrorCode code, const std::shared_ptr<const Program>& program,
                      const Arguments& arguments = {}, const ChipRunOptions& options = {}) {
    try {
      run(program, arguments, options);
    } catch (const ChipError& error) {
      EXPECT_EQ(name_of(error.code()), name_of(code));
      return error.what();
    }
    ADD_FAILURE() << "the run went well";
    return {};
  }
  std::string refusal(ErrorCode code, OrchestrationFunction orchestration,
                      const Arguments& arguments = {}, const ChipRunOptions& options = {}) {
    return refusal(code, program_of(orchestration), arguments, options);
  }
  [[nodiscard]] std::vector<std::string> log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  [[nodiscard]] ChipRuntime& runtime() { return runtime_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> log_;
  ChipRuntime runtime_;
};

inline const ChipRunOptions kDevice{.mode = OrchestrationMode::device};
inline const ChipRunOptions kHostGraph{.mode = OrchestrationMode::host_graph};

}  // namespace strata::chip::test
