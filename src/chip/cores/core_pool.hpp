// CorePool: the cores of a chip whose cores are host threads, and which task runs on which of them.
//
// A *core* is a place: its number, cluster and lane. The threads of the pool act as cores: a thread
// takes a core and a block for as long as the block runs. So there are never more threads awake
// than may run at once, save those that a wait has just ended for, and a chip of 108 cores that
// never has more than two blocks under way has two threads.
//
// Thread safety: all members may be called from any thread.
//
// Invariants
//   (1) A block runs on one core, which runs nothing else meanwhile; the lanes of one block of a
//       mixed task are of one cluster; those of a task that starts together all have their cores
//       before the first of them begins.
//   (2) If something could start and fewer threads run than may, some thread is awake, or being
//       woken, that will look for it. A thread that blocks in a wait counts as not running.
//   (3) Nothing spins without bound, and a lane whose cores are allotted is begun in any case: by a
//       thread of its own if the others do not come to it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chip/program/kernel_set.hpp"
#include "ipc/spinner_budget.hpp"
#include "strata/chip.hpp"
#include "strata/external_lane.hpp"
#include "strata/platform.hpp"

namespace strata::chip {

/// Told when a task has ended, once for each; from any thread, without locks of the pool.
class TaskSink {
 public:
  virtual ~TaskSink() = default;
  virtual void ended(DispatchId dispatch, const std::exception_ptr& error) = 0;
};

/// What one core does now.
struct CoreStatus {
  enum class State : std::uint8_t { idle, allotted, running, waiting } state = State::idle;
  std::uint32_t core = 0;
  std::uint32_t cluster = 0;
  ClusterLane lane = ClusterLane::aic;
  TaskId task = {};
  std::string task_name = {};
  std::string kernel = {};
  std::uint32_t block = 0;
  std::uint32_t blocks = 1;
  std::chrono::nanoseconds since{0};        ///< How long it has been in this state.
  std::string waits_for = {};               ///< "its flag 3, which a lane of cluster 2 sets".
  int thread = 0;                           ///< Kernel's id of the host thread.
  std::vector<std::string> arguments = {};  ///< "float32[4, 8] at 0x7f...".
  /// "core 7 (cluster 2, AIV 0) waits for its flag 3 ... in kernel 'x', task 5 'y', block 1 of 4"
  [[nodiscard]] std::string to_string() const;
};

/// "idle", "allotted", "running", "waiting".
[[nodiscard]] std::string_view name_of(CoreStatus::State state) noexcept;

struct CorePoolOptions {
  Platform platform = {};
  unsigned threads = 0;                  ///< Running at once; 0: as many as CPUs allowed.
  std::vector<int> pin_to = {};          ///< CPUs to pin threads to, one each; none if empty.
  ipc::SpinnerBudget* budget = nullptr;  ///< Of the tree; may be null.
  std::function<void(std::string_view)> log = {};  ///< Lines of kernels; from any thread.
};

class CheckSession;

class CorePool {
 public:
  explicit CorePool(const CorePoolOptions& options);
  /// Requires that no task is in the pool. Waits for the threads.
  ~CorePool();
  CorePool(const CorePool&) = delete;
  CorePool& operator=(const CorePool&) = delete;

  /// Takes a task that is ready. `context` and `sink` live until the sink is told. A predicate that
  /// is false ends it from within this call, or from within the one in whose sink this is called.
  /// Throws ChipError: too_many_blocks, unknown_kernel, wrong_argument_dtype (of a predicate).
  void start(DispatchId dispatch, TaskContext& context, const Launch& launch, TaskSink& sink);

  /// The calling thread acts as a core for one block, if one can start. False if none could.
  bool run_one();
  /// Whether a thread that waits should call run_one() (another does not do so already).
  [[nodiscard]] bool try_become_helper();
  void stop_helping();

  /// Tasks gather from here on and none starts ...
  void hold();
  /// ... until here.
  void release();

  /// How many threads may run at once from now on; 0: as at first.
  void set_threads(unsigned threads);
  /// One lane at a time, each drawn from `seed` among those that could start or go on; only
  /// run_one() starts them, and returns when no lane that has begun can go on. For runs that
  /// explore schedules. Seed 0: the oldest task first, on the first core that is free. Requires
  /// that no task is in the pool; so does stop_exploring().
  void explore(std::uint64_t seed);
  void stop_exploring();

  /// Blocks that begin from here on are checked; null ends that. The session lives until the pool
  /// is empty.
  void set_check(CheckSession* session);

  /// Wakes all waits of kernels, to look whether their run was cancelled.
  void wake_waits();

  /// What each core does that is not idle.
  [[nodiscard]] std::vector<CoreStatus> status() const;
  /// Threads that were created so far, for tests.
  [[nodiscard]] unsigned thread_count() const;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

/// The description of the block that the calling thread runs, async-signal-safe: for the record of
/// a crash. Writes at most `bytes` and returns how many; 0 if it runs none.
std::size_t describe_current_block(char* to, std::size_t bytes) noexcept;

}  // namespace strata::chip
