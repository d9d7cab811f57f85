// Worker: owns worker processes and runs orchestrations over them.
//
//   strata::Worker worker({.chips = {{}, {}}, .subs = {{.count = 2}}});
//   const auto scale = worker.add(strata::Callable::in_library("./libmath.so", "scale"));
//   strata::Buffer x = worker.create_buffer(4096);
//   worker.init();
//   worker.run([&](strata::Orchestration& run) {
//     run.submit(strata::Call(scale), inout(x.tensor(strata::DType::float32, {1024})),
//                on(worker.any_chip()));
//   });
//   worker.close();
//
// Every worker process is a fresh program, never a copy of this one. None outlives this process,
// however that ends.
//
// Thread safety: all members may be called from any thread. The destructor must not be called from
// an orchestration of the Worker.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/callable.hpp"
#include "strata/chip_memory.hpp"
#include "strata/chip_run_options.hpp"
#include "strata/domain.hpp"
#include "strata/engine.hpp"
#include "strata/log_level.hpp"
#include "strata/orchestration.hpp"
#include "strata/run.hpp"
#include "strata/worker_task.hpp"

namespace strata {

namespace node {
class WorkerState;
struct BufferState;
struct WorkerAccess;
}  // namespace node

/// Which program a worker process is.
enum class WorkerProgram : std::uint8_t {
  strata_worker,  ///< The small program of that name: the default, runs shared libraries.
  this_program,   ///< The user's own executable, entered anew through ProcessScope.
};

/// Worker processes that run host tasks, one at a time each.
struct SubWorkerOptions {
  unsigned count = 1;
  WorkerProgram program = WorkerProgram::strata_worker;
  /// Called (without arguments) in each before it is ready; what it throws fails the start.
  std::optional<Callable> setup = {};
};

/// A worker process that owns one chip. It runs chip programs on the chip's cores, and functions on
/// its main thread, beside the chip; one task at a time.
struct ChipOptions {
  /// As Platform::parse takes it: "cpu", "a2a3sim:clusters=4". The CPUs that this process may use
  /// are divided among the chips of platform cpu.
  std::string platform = "cpu";
  ChipRunOptions run = {};  ///< For chip programs whose callables do not say otherwise.
  std::optional<Callable> setup = {};
};

/// When a Worker writes a report of itself and all below it, as `strata dump` does, to its log.
/// Once for each hang; the runs go on, unless told otherwise. Only at the root of a tree.
struct WatchdogOptions {
  /// Tasks are in flight, and for so long none has been submitted and none has ended, on no chip
  /// either. Longer than the longest task takes. 0: never.
  std::chrono::milliseconds no_progress{0};
  bool missed_deadlines = false;  ///< A run has not ended by its RunOptions::deadline.
  bool sigquit = false;           ///< This process gets SIGQUIT, which then does not end it.
  std::string file = {};          ///< Reports are appended to it, too.
  enum class Then : std::uint8_t { go_on, cancel_runs } then = Then::go_on;
};

struct WorkerOptions {
  std::string name = "node";  ///< Of the tree's root; those below are "next[0]", ...
  std::vector<ChipOptions> chips = {};
  std::vector<SubWorkerOptions> subs = {};
  /// Workers below this one, each a process with children of its own. Tasks for them are
  /// orchestrations (Callable::as_orchestration).
  std::vector<WorkerOptions> next_level = {};
  /// What a next-level worker runs as.
  WorkerProgram program = WorkerProgram::strata_worker;
  std::optional<Callable> setup = {};  ///< Of a next-level worker.

  /// Bound on the start of the whole tree.
  std::chrono::milliseconds start_time_limit{60'000};
  /// How long close() lets running tasks go on before it insists, and how long it insists (SIGTERM)
  /// before it ends processes (SIGKILL).
  std::chrono::milliseconds close_time_limit{5'000};
  /// How long a task that was cancelled may go on before its worker is ended and replaced.
  std::chrono::milliseconds cancel_grace{5'000};
  /// Start a new process in the place of a worker that died or was ended.
  bool replace_dead_workers = true;

  std::size_t window = 4096;                  ///< As in EngineOptions.
  std::size_t heap = std::size_t{256} << 20;  ///< As in EngineOptions; shared with the workers.
  std::size_t max_open_runs = 8;
  unsigned depth = 16;  ///< Tasks at a worker at once, the running one included; at most 64.

  /// The communication library of domains: "shm" (chips of this host), or "vendor:" and the path of
  /// a shared object with the vendor's interface (docs/reference/domains.md).
  std::string communication = "shm";

  WatchdogOptions watchdog = {};
  LogLevel log_level = LogLevel::info;
  /// Path of strata-worker. If empty: beside this executable, where Strata was installed or built,
  /// then PATH.
  std::string worker_program = {};
};

/// Shared memory that tasks of one Worker use. Movable, not copyable. Its bytes can be read and
/// written here as long as it lives, also when the Worker is gone.
class Buffer {
 public:
  Buffer() noexcept = default;  ///< No memory.
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  /// As release().
  ~Buffer();

  /// Refuses new tasks from now on, and frees the memory once the last task that uses it has ended.
  /// Returns at once. Nothing happens if it was released before.
  void release() noexcept;
  [[nodiscard]] std::byte* data() const noexcept;  ///< Zeroed when created.
  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] BufferId id() const noexcept;
  /// A row-major tensor at `byte_offset`. Throws InvalidArgument if it does not fit.
  [[nodiscard]] Tensor tensor(DType dtype, std::span<const std::int64_t> shape,
                              std::size_t byte_offset = 0) const;
  [[nodiscard]] Tensor tensor(DType dtype, std::initializer_list<std::int64_t> shape,
                              std::size_t byte_offset = 0) const {
    return tensor(dtype, std::span(shape.begin(), shape.size()), byte_offset);
  }
  template <class T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(data()), bytes() / sizeof(T)};
  }

 private:
  friend class Worker;
  explicit Buffer(std::shared_ptr<node::BufferState> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<node::BufferState> state_;
};

/// One worker process, as it is now.
struct ProcessStatus {
  std::string path = {};     ///< "node/chip[1]".
  std::string role = {};     ///< "chip worker", "sub worker", "next-level worker".
  std::string state = {};    ///< As in docs/reference/worker-states.md: "ready", "killing", ...
  int pid = 0;               ///< 0 while there is no process.
  unsigned incarnation = 0;  ///< 1 for the first process in this place.
  std::string step = {};     ///< What it did last during its start: "load library x".
  std::string task = {};     ///< In hand: "task 17 'scale'", or empty.
  std::optional<LaneId> lane = {};
};

class Worker {
 public:
  /// Starts no process. Throws InvalidArgument for options that make no sense, ChipError
  /// (unknown_platform, platform_missing, bad_configuration) for chips that can't be.
  explicit Worker(WorkerOptions options);
  /// As close(); what close() would have thrown is logged. In a process that the program has forked
  /// both do nothing: there the Worker is a copy without threads, good for nothing.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // --- Life ---

  /// Starts all processes of the tree, in parallel, and waits until every one is ready. If one
  /// fails, all are ended and StartFailed tells of the first that failed; the Worker can be
  /// initialised again. Throws InvalidState if it is initialised or being so, or if ProcessScope is
  /// missing where it is needed, and Cancelled if close() or cancel() came meanwhile.
  void init();
  /// Cancels all runs, ends all processes and waits for them. Takes at most `time_limit` (the
  /// option if absent) and, for what does not end by itself by then, half a second more. Throws
  /// CloseFailed, after all is done, if a task had to be ended by force or the kernel does not give
  /// a process back. Nothing happens if it is closed already; a second caller waits for the first.
  void close();
  void close(std::chrono::milliseconds time_limit);
  /// Cancels whatever goes on: init() and results of runs throw Cancelled, and the Worker closes.
  /// Returns at once; close() waits for the end.
  void cancel() noexcept;
  [[nodiscard]] bool initialised() const noexcept;

  // --- What tasks run, and where ---

  /// Makes a callable known, before or after init(), and returns at once. A worker runs a task only
  /// once it has confirmed the callable; where it can't be loaded the task fails with the reason. A
  /// chip program is looked at here: throws ChipError (bad_program_file, foreign_program,
  /// stale_program, bad_configuration).
  CallableId add(const Callable& callable);
  /// Forgets a chip program: whoever submits it from now on gets ChipError (removed_program), tasks
  /// submitted before are run, and the chips unload it after the last of them. Returns at once.
  /// Throws InvalidArgument for what is no chip program of this Worker.
  void remove(CallableId program);
  [[nodiscard]] KindId any_sub() const;
  [[nodiscard]] KindId any_chip() const;
  [[nodiscard]] KindId any_next() const;
  [[nodiscard]] LaneId sub(std::size_t index) const;
  [[nodiscard]] LaneId chip(std::size_t index) const;
  [[nodiscard]] LaneId next(std::size_t index) const;

  /// Shared memory, before or after init(). Throws SystemError if there is not enough.
  [[nodiscard]] Buffer create_buffer(std::size_t bytes);

  /// Memory of one chip, zeroed, for tasks on that chip alone: Platform::memory bytes in all.
  /// Throws ChipError (out_of_chip_memory), InvalidArgument for a lane that is no chip,
  /// InvalidState unless initialised.
  [[nodiscard]] ChipBuffer allocate_on(LaneId chip, std::size_t bytes);
  [[nodiscard]] ChipMemoryUsage chip_memory(LaneId chip) const;

  /// Makes chips ranks of a domain; may be called from an orchestration. The first domain of some
  /// chips brings their communicator up, later ones use it. Throws InvalidArgument before anything
  /// is allocated (a chip twice, what is no chip, slices beyond the window), BringUpFailed with the
  /// rank and step that failed, InvalidState unless initialised.
  [[nodiscard]] Domain create_domain(const DomainOptions& options);

  // --- Runs ---

  /// As Engine::submit and Engine::run. Throws InvalidState unless initialised.
  Run submit(Engine::OrchestrationFn orchestration, RunOptions options = {});
  Run run(const Engine::OrchestrationFn& orchestration, RunOptions options = {});
  /// Cancels one task: it fails with Cancelled, at once if it has not started.
  void cancel(TaskId task);

  // --- Processes ---

  /// Ends the process behind a lane, whatever it does, and starts a new one in its place. Its
  /// running task fails; tasks that it had not started go elsewhere, or fail if they named it.
  /// Returns at once.
  void replace(LaneId lane);
  [[nodiscard]] std::vector<ProcessStatus> processes() const;
  [[nodiscard]] EngineStats stats() const;

 private:
  friend struct node::WorkerAccess;
  struct FromState {};
  Worker(FromState, std::shared_ptr<node::WorkerState> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<node::WorkerState> state_;
};

}  // namespace strata
