// Engine: accepts runs, infers the dependencies of their tasks, and runs them on lanes.
//
// Thread safety: all members may be called from any thread. The destructor waits for all runs, and
// must not be called from a task or an orchestration.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/external_lane.hpp"
#include "strata/orchestration.hpp"
#include "strata/recording.hpp"
#include "strata/run.hpp"

namespace strata {

namespace graph {
class EngineState;
}

/// Lanes of one kind: either any number of thread lanes and at most one caller lane, or external
/// ones.
struct KindOptions {
  std::string name = {};
  /// Lanes with a thread of their own.
  unsigned threads = 0;
  /// Lanes driven by whichever thread waits for a run or is blocked in submit. At most one thread
  /// drives a caller lane at a time. A program whose main thread waits anyway gets one more core
  /// for one thread fewer.
  unsigned callers = 0;
  std::vector<std::shared_ptr<ExternalLane>> external = {};
  /// How many tasks may be at an external lane at once, the running one included.
  unsigned depth = 1;
};

struct EngineOptions {
  /// Lanes. If empty: one kind "cpu" with a lane per CPU that the process may use, one of them a
  /// caller lane.
  std::vector<KindOptions> kinds = {};
  /// Tasks in flight (submitted, not ended), over all runs.
  std::size_t window = 4096;
  /// Bytes for runtime-allocated tensors, over all runs. Address space until touched.
  std::size_t heap = std::size_t{256} << 20;
  /// The heap's memory, `heap` bytes at an address that is a multiple of 64: memory that other
  /// processes share, for instance. It must outlive the engine. If null, the engine maps its own.
  std::byte* heap_memory = nullptr;
  /// Runs open at once; further submits wait.
  std::size_t max_open_runs = 8;
  /// What the user must set to have another window or heap, for errors, where that is not these
  /// options.
  std::string window_setting = "EngineOptions::window";
  std::string heap_setting = "EngineOptions::heap";
  /// Polled by whoever waits, if set.
  std::shared_ptr<ProgressSource> progress = nullptr;
  /// Called with each task, and each member of a group as if it were one, when it is submitted or
  /// recorded, on the thread that does so. What it throws refuses the task. It may put another body
  /// in the place of the task's.
  std::function<void(TaskSpec&)> check_task = {};
};

struct EngineStats {
  std::uint64_t tasks = 0;        ///< Submitted so far.
  std::uint64_t window_used = 0;  ///< Tasks in flight.
  std::uint64_t heap_used = 0;
  std::uint64_t heap_peak = 0;
  std::uint64_t live_regions = 0;  ///< Regions that the dependency tracker holds now.
  std::uint64_t live_buffers = 0;
  // How each tracked argument was looked up: by the published tiers.
  std::uint64_t same_region = 0;  ///< The same region again: one hash.
  std::uint64_t new_region = 0;   ///< Found by the index of its buffer.
  std::uint64_t overlap_by_bounds = 0;
  std::uint64_t overlap_by_boxes = 0;
  std::uint64_t overlap_by_search = 0;
  std::uint64_t overlap_assumed = 0;
  std::uint64_t reader_epochs = 0;  ///< Lists of readers collapsed into one node.
  std::uint64_t blocked_submits = 0;
};

/// Keeps the lanes from starting anything new while it lives. Move-only.
class LaneHold {
 public:
  LaneHold(LaneHold&& other) noexcept : engine_(std::exchange(other.engine_, nullptr)) {}
  LaneHold& operator=(LaneHold&&) = delete;
  LaneHold(const LaneHold&) = delete;
  ~LaneHold();

 private:
  friend class Engine;
  explicit LaneHold(graph::EngineState* engine) noexcept : engine_(engine) {}
  graph::EngineState* engine_;
};

class Engine {
 public:
  explicit Engine(EngineOptions options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  using OrchestrationFn = std::function<void(Orchestration&)>;

  /// Opens a run: `orchestration` starts on a thread of the engine, and the handle is here at once.
  /// Waits only while max_open_runs are open (and throws InvalidState rather than wait for itself
  /// when called from an orchestration).
  Run submit(OrchestrationFn orchestration, RunOptions options = {});
  /// Runs `orchestration` on the calling thread, waits for the end and returns the handle, having
  /// thrown what Run::result() throws if it did not go well.
  Run run(const OrchestrationFn& orchestration, RunOptions options = {});

  /// Makes memory of the caller known. It must outlive the buffer; the caller removes it with
  /// remove_buffer. `data` may be null (with a size) for memory that this process can't address.
  [[nodiscard]] BufferId add_buffer(void* data, std::size_t bytes);
  /// Waits until no task uses the buffer, then forgets it; tensors of it are refused from then on.
  /// No other thread may submit tasks that use it, or remove it, meanwhile.
  void remove_buffer(BufferId buffer);
  /// Forgets the buffer without waiting: tasks that name it are refused from now on, and `freed` is
  /// called once when the last task that uses bytes of it has ended; from any thread, or from
  /// within this call if none does. Until then its memory must stay. `freed` must neither throw nor
  /// wait for tasks. It has been called when the engine's destructor returns.
  void remove_buffer_later(BufferId buffer, std::function<void()> freed);
  /// A row-major tensor over memory of the caller, in a buffer of its own.
  template <class T>
  [[nodiscard]] Tensor tensor(std::span<T> data, std::initializer_list<std::int64_t> shape) {
    return tensor_over(data.data(), data.size_bytes(), dtype_of<T>, {shape.begin(), shape.size()});
  }
  template <class T>
  [[nodiscard]] Tensor tensor(std::vector<T>& data) {
    return tensor(std::span<T>(data), {static_cast<std::int64_t>(data.size())});
  }
  template <class T>
  [[nodiscard]] Tensor tensor(std::vector<T>& data, std::initializer_list<std::int64_t> shape) {
    return tensor(std::span<T>(data), shape);
  }

  /// Records what `orchestration` submits. It is run once, now, on this thread; nothing is
  /// executed. Throws RecordingError if it does what can't be recorded (reads a tensor's value,
  /// waits, keeps a tensor), naming it.
  [[nodiscard]] Recording record(
      const RecordingSpec& spec,
      const std::function<void(Orchestration&, const Parameters&)>& orchestration);

  /// Whether it is one of this engine's: of a run, or recorded by it.
  [[nodiscard]] bool runs(const Orchestration& orchestration) const noexcept;

  /// Reports that a dispatch to an external lane has ended; `error` is null if it went well.
  void complete(DispatchId dispatch, const std::exception_ptr& error = nullptr);
  /// The same for a task that returns a value: Run::value() has it from here on. If `error` is set
  /// the task has failed and the value is dropped.
  void complete(DispatchId dispatch, const std::exception_ptr& error, std::string value);
  /// The lane has not started this dispatch and won't. The task goes back to the front of its
  /// kind's queue, and to whichever lane of the kind that is not suspended has room next. Throws
  /// InvalidArgument for a task that named its lane (TaskContext::named_lane): that can only be
  /// completed.
  void give_back(DispatchId dispatch);

  /// An external lane gets no more tasks of its kind's queue until it is resumed. Tasks that name
  /// it, and groups, still come to it. While every lane of a kind is suspended its tasks wait. A
  /// dispatch() that is under way may still bring one: it can be given back.
  void suspend_lane(LaneId lane);
  void resume_lane(LaneId lane);
  [[nodiscard]] bool lane_is_suspended(LaneId lane) const;
  /// No lane of the kind will run tasks of its queue any more: those that wait there, and all that
  /// come, fail with `error`. Null ends that. For kinds of external lanes.
  void fail_kind(KindId kind, std::exception_ptr error);

  /// A bound on the ids given out so far: none is above it, and all later ones are. Names no task.
  [[nodiscard]] TaskId last_task() const;

  [[nodiscard]] KindId kind(std::string_view name) const;  ///< Throws InvalidArgument if unknown.
  [[nodiscard]] std::vector<LaneId> lanes(KindId kind) const;
  [[nodiscard]] LaneHold hold_lanes();
  [[nodiscard]] EngineStats stats() const;

 private:
  Tensor tensor_over(void* data, std::size_t bytes, DType dtype,
                     std::span<const std::int64_t> shape);
  std::unique_ptr<graph::EngineState> state_;
};

}  // namespace strata
