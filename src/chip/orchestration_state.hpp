// OrchestrationState: what is behind a ChipOrchestration: the run, the engine's orchestration that
// tasks are submitted to, and, while a graph is recorded, what the recording depends on.
//
// An orchestration function is called with one of three of these: one that submits (the run's
// own), one that records a sub-graph of a run, or one that records the whole of a run for
// host_graph mode.
//
// Thread safety: the thread of the orchestration.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chip/chip_engine.hpp"
#include "chip/gathering.hpp"
#include "chip/graph_cache.hpp"
#include "chip/program/program.hpp"
#include "strata/chip.hpp"
#include "strata/chip_run_options.hpp"
#include "strata/orchestration.hpp"
#include "strata/platform.hpp"

namespace strata::chip {

/// Memory that a run knows: an argument's range, or what external() named.
struct KnownMemory {
  AddressRange range = {};     ///< As the user knows it.
  std::byte* place = nullptr;  ///< Where the chip has it.
  BufferId buffer = {};
};

/// One run, as its orchestration sees it. Constant while the orchestration runs, but for `memory`
/// and `given_up`.
struct RunScene {
  std::shared_ptr<const Program> program = {};
  const Platform* platform = nullptr;
  ChipEngine* engine = nullptr;
  Gathering* gathering = nullptr;
  const std::function<void(std::string_view)>* log = nullptr;
  LogLevel log_level = LogLevel::info;  ///< Lines below it are dropped.
  std::uint64_t number = 0;             ///< Of the run, from 1.
  bool check = false;                   ///< Fresh memory is poisoned.
  std::vector<Tensor> tensors = {};
  std::vector<std::uint64_t> scalars = {};
  std::vector<KnownMemory> memory = {};
  /// What ChipOrchestration::fail threw.
  std::exception_ptr given_up = {};
};

/// What a recording depends on, noted while it is made.
struct RecordingNotes {
  std::string what = {};                   ///< For messages.
  std::vector<std::uint64_t> values = {};  ///< Of its scalars.
  std::vector<bool> read = {};             ///< Which of those were looked at.
  std::vector<bool> run_read = {};         ///< The same of the run's.
  bool uses_run_tensors = false;
  std::vector<TaskId> tasks = {};
  std::vector<std::string> log = {};
  std::string refused = {};  ///< What it did that can't be recorded; nothing if empty.
};

class OrchestrationState {
 public:
  /// For the run's own orchestration.
  OrchestrationState(RunScene& scene, Orchestration& live)
      : scene_(scene), live_(live), target_(live) {}
  /// For a recording; `live` is the run's own, `target` the recording one.
  OrchestrationState(RunScene& scene, Orchestration& live, Orchestration& target,
                     RecordingNotes& notes)
      : scene_(scene), live_(live), target_(target), notes_(&notes) {}
  OrchestrationState(const OrchestrationState&) = delete;
  OrchestrationState& operator=(const OrchestrationState&) = delete;

  /// Of a recording of the whole run: the arguments are its parameters.
  void replace_tensors(std::vector<Tensor> parameters) {
    parameters_ = std::move(parameters);
    whole_ = true;
  }

  [[nodiscard]] const RunScene& scene() const noexcept { return scene_; }
  [[nodiscard]] const Tensor& tensor(std::size_t i);
  [[nodiscard]] std::uint64_t scalar_bits(std::size_t i);
  [[nodiscard]] KernelId kernel(std::string_view name) const;
  [[nodiscard]] Launch launch(std::array<KernelId, 3> kernels) const;
  TaskId submit_task(TaskSpec& spec);
  [[nodiscard]] Allocation allocate(std::span<const NewTensor> tensors);
  [[nodiscard]] Tensor external(void* data, DType dtype, std::span<const std::int64_t> shape);
  [[nodiscard]] Scope scope(ScopeOptions options) { return target_.scope(options); }

  /// A whole run of more tasks than these is not recorded.
  static constexpr std::size_t kMaxWholeTasks = 65536;

  using GraphBody = std::function<void(ChipOrchestration&, const GraphArguments&)>;
  TaskId submit_graph(const void* function, const std::string& config,
                      std::span<const Tensor> tensors, std::span<const Scalar> scalars,
                      const GraphBody& body);

  void wait(const Tensor& tensor);
  void wait(TaskId task);
  void read_element(const Tensor& tensor, std::span<const std::int64_t> index, DType dtype,
                    void* value);
  void read_elements(const Tensor& tensor, DType dtype, std::byte* values);
  void write_element(const Tensor& tensor, std::span<const std::int64_t> index, DType dtype,
                     const void* value);

  [[noreturn]] void fail(std::int32_t code, const std::string& text);
  [[nodiscard]] bool cancelled() const noexcept { return live_.cancelled(); }
  void log(LogLevel level, std::string_view text);

 private:
  [[nodiscard]] std::string what() const;
  void check_room(const Launch& launch) const;
  void check_condition(const Launch& launch, const TaskSpec& spec) const;
  void prepare_launch(TaskSpec& spec) const;
  void prepare_outputs(TaskSpec& spec);
  [[nodiscard]] const std::byte* address_of(const Tensor& tensor, TensorHandle& kept);
  /// Throws ChipError (not_recordable) while recording.
  void refuse_while_recording(std::string_view call, std::string_view instead);
  TaskId submit_inline(std::span<const Tensor> tensors, std::span<const Scalar> scalars,
                       const GraphBody& body);
  const RecordedGraph& record(GraphCache& cache, const std::string& key,
                              std::span<const Tensor> tensors, std::span<const Scalar> scalars,
                              const GraphBody& body);

  RunScene& scene_;
  Orchestration& live_;
  Orchestration& target_;
  RecordingNotes* notes_ = nullptr;  ///< Set while recording.
  bool whole_ = false;
  std::vector<Tensor> parameters_ = {};
  std::vector<TensorArg> args_ = {};  ///< Scratch of a submission.
};

/// Runs the program's orchestration: directly, or in mode host_graph by way of a recording of the
/// whole where that can be.
void orchestrate(RunScene& scene, Orchestration& live, OrchestrationMode mode);

/// The values that were looked at.
[[nodiscard]] std::vector<ReadScalar> read_scalars(const std::vector<bool>& read,
                                                   const std::vector<std::uint64_t>& values);

}  // namespace strata::chip
