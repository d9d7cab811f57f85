// The public face of chip orchestrations: ChipOrchestration, GraphArguments, Launch.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "chip/orchestration_state.hpp"
#include "strata/chip.hpp"

namespace strata {

void Launch::operator()(TaskContext& context) const {
  throw InvalidState(
      fmt::format("task '{}' is a launch of kernels: only the cores of a chip can "
                  "run it, not lane {} of this engine",
                  context.name(), context.lane().value));
}

Body detail::body_of(const Launch& launch) { return Body(launch); }

// ---- GraphArguments -----------------------------------------------------------------------------

namespace {
[[noreturn]] void no_graph_argument(std::string_view sort, std::size_t i, std::size_t count) {
  throw InvalidArgument(
      fmt::format("GraphArguments: there is no {} {}; the graph was called with "
                  "{}",
                  sort, i, count));
}
}  // namespace

const Tensor& GraphArguments::tensor(std::size_t i) const {
  if (i >= tensors_.size()) no_graph_argument("tensor", i, tensors_.size());
  return tensors_[i];
}

Scalar GraphArguments::scalar(std::size_t i) const {
  if (i >= scalars_.size()) no_graph_argument("scalar", i, scalars_.size());
  return scalars_[i];
}

std::uint64_t GraphArguments::value_bits(std::size_t i) const {
  if (i >= scalars_.size()) no_graph_argument("scalar", i, scalars_.size());
  if (read_ != nullptr) (*read_)[i] = true;
  return bits_[i];
}

// ---- ChipOrchestration --------------------------------------------------------------------------

std::size_t ChipOrchestration::tensor_count() const noexcept {
  return state_->scene().tensors.size();
}
const Tensor& ChipOrchestration::tensor(std::size_t i) const { return state_->tensor(i); }
std::size_t ChipOrchestration::scalar_count() const noexcept {
  return state_->scene().scalars.size();
}
std::uint64_t ChipOrchestration::scalar_bits(std::size_t i) const { return state_->scalar_bits(i); }

KernelId ChipOrchestration::kernel(std::string_view name) const { return state_->kernel(name); }
Launch ChipOrchestration::aic(KernelId kernel) const {
  return state_->launch(std::array{kernel, KernelId{}, KernelId{}});
}
Launch ChipOrchestration::aiv(KernelId kernel) const {
  return state_->launch(std::array{KernelId{}, kernel, KernelId{}});
}

Launch ChipOrchestration::mixed(KernelId aic, KernelId aiv0, KernelId aiv1) const {
  const std::array<KernelId, 3> ids = {aic, aiv0, aiv1};
  if (std::count(ids.begin(), ids.end(), KernelId{}) > 1) {
    throw InvalidArgument(
        "ChipOrchestration::mixed: a mixed task has kernels on two lanes of its cluster at least; "
        "use aic() or aiv() for one");
  }
  return state_->launch(ids);
}

TaskId ChipOrchestration::submit_task(TaskSpec& spec) { return state_->submit_task(spec); }
Allocation ChipOrchestration::allocate(std::span<const NewTensor> tensors) {
  return state_->allocate(tensors);
}
Tensor ChipOrchestration::external(void* data, DType dtype, std::span<const std::int64_t> shape) {
  return state_->external(data, dtype, shape);
}
Scope ChipOrchestration::scope(ScopeOptions options) { return state_->scope(options); }

TaskId ChipOrchestration::submit_graph(const void* function, const std::string& config,
                                       std::span<const Tensor> tensors,
                                       std::span<const Scalar> scalars, const GraphBody& body) {
  return state_->submit_graph(function, config, tensors, scalars, body);
}

void ChipOrchestration::wait(const Tensor& tensor) { state_->wait(tensor); }
void ChipOrchestration::wait(TaskId task) { state_->wait(task); }
void ChipOrchestration::read_element(const Tensor& tensor, std::span<const std::int64_t> index,
                                     DType dtype, void* value) {
  state_->read_element(tensor, index, dtype, value);
}
void ChipOrchestration::read_elements(const Tensor& tensor, DType dtype, void* values) {
  state_->read_elements(tensor, dtype, static_cast<std::byte*>(values));
}
void ChipOrchestration::write_element(const Tensor& tensor, std::span<const std::int64_t> index,
                                      DType dtype, const void* value) {
  state_->write_element(tensor, index, dtype, value);
}

unsigned ChipOrchestration::clusters() const noexcept { return state_->scene().platform->clusters; }
unsigned ChipOrchestration::aics() const noexcept { return state_->scene().platform->aics(); }
unsigned ChipOrchestration::aivs() const noexcept { return state_->scene().platform->aivs(); }
std::string_view ChipOrchestration::platform() const noexcept {
  return state_->scene().platform->name;
}

void ChipOrchestration::fail(std::int32_t code, const std::string& text) const {
  state_->fail(code, text);
}
bool ChipOrchestration::cancelled() const noexcept { return state_->cancelled(); }
void ChipOrchestration::log(LogLevel level, std::string_view text) const {
  state_->log(level, text);
}

}  // namespace strata
