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

#include "strata/orchestration.hpp"
#include "strata/recording.hpp"
#include "strata/run.hpp"

namespace strata {

namespace graph {
class EngineState;
}

/// Names one dispatch to an external lane until its completion is reported.
struct DispatchId {
  std::uint64_t value = 0;
};

/// A lane whose tasks run elsewhere: in another process, on a device.
///
/// The engine calls dispatch() for one task at a time and lane, in the lane's order, from whichever
/// thread made the task ready; it must not block. If it throws, the task fails with that. The
/// completion is reported later by Engine::complete(), once for each dispatch, from any thread,
/// also from within dispatch().
class ExternalLane {
 public:
  virtual ~ExternalLane() = default;
  /// `context` (arguments, place, token) is valid until the completion is reported. `body` is the
  /// task's body, for lanes that run bodies in this process.
  virtual void dispatch(DispatchId id, TaskContext& context, Body& body) = 0;
};

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
  /// Runs open at once; further submits wait.
  std::size_t max_open_runs = 8;
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

  /// Reports that a dispatch to an external lane has ended; `error` is null if it went well.
  void complete(DispatchId dispatch, const std::exception_ptr& error = nullptr);

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
