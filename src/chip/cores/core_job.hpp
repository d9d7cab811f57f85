// The parts of the core pool: a task in it, a place of a cluster, a thread, what the lanes of a
// mixed block share.
//
// Thread safety: each member says what guards it. "The pool's mutex" is that of CorePool::Impl.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "chip/cores/core_pool.hpp"
#include "chip/cores/view_gate.hpp"
#include "chip/program/kernel_set.hpp"
#include "os/adaptive_mutex.hpp"
#include "os/cpu.hpp"
#include "os/parker.hpp"
#include "strata/chip.hpp"
#include "strata/kernel.hpp"

namespace strata::chip {

inline constexpr unsigned kLanes = 3;
using LaneMask = std::uint8_t;
[[nodiscard]] constexpr LaneMask mask_of(ClusterLane lane) noexcept {
  return static_cast<LaneMask>(1U << static_cast<unsigned>(lane));
}
[[nodiscard]] constexpr unsigned index_of(ClusterLane lane) noexcept {
  return static_cast<unsigned>(lane);
}

struct Runner;

/// Which queue a task waits in.
enum class Shape : std::uint8_t { aic, aiv, mixed, together };
inline constexpr unsigned kShapes = 4;

/// Where all lanes of all blocks of a task meet.
struct Meeting {
  os::AdaptiveMutex mutex;
  std::uint32_t arrived = 0;            ///< Guarded by mutex.
  std::uint32_t returned = 0;           ///< Lanes that will not come any more. Guarded by mutex.
  Runner* waiting = nullptr;            ///< A list. Guarded by mutex.
  std::atomic<std::uint32_t> round{0};  ///< Meetings so far. Written under mutex, with release.
};

/// One task in the pool. Used again; never freed while the pool lives.
struct Job {
  explicit Job(const Launch& its_launch) noexcept : launch(its_launch) {}

  // --- Constant from start() to the end ---
  DispatchId dispatch = {};
  TaskContext* context = nullptr;
  TaskSink* sink = nullptr;
  const KernelSet* set = nullptr;
  std::array<std::uint16_t, kLanes> kernels = {};
  LaneMask lanes = 0;
  std::uint8_t lane_count = 1;
  Shape shape = Shape::aiv;
  bool together = false;
  /// One lane and one block: only the thread that runs it has a part in it.
  bool simple = true;
  /// Whether its lanes can wait for each other: its returns are told to those who wait.
  bool meets = false;
  std::uint32_t blocks = 1;
  detail::ArgumentBlock arguments = {};
  Launch launch;

  // --- Guarded by the pool's mutex ---
  std::uint64_t order = 0;  ///< Of arrival.
  Job* next = nullptr;      ///< In its queue, or in the list of free ones.
  Job* previous = nullptr;
  bool queued = false;
  std::uint32_t next_block = 0;
  std::uint32_t live = 0;     ///< Lanes that have their cores and have not returned.
  std::exception_ptr error;   ///< The first.
  int reserved_cluster = -1;  ///< Nothing younger starts there: see Schedule.

  /// What is left of it is of no use: a lane threw, or the run was cancelled. Set with release
  /// before those who wait are woken.
  std::atomic<bool> failed{false};
  Meeting meeting;
};

/// Why a lane waits, for reports and for finding waits that can't end.
enum class WaitKind : std::uint8_t { none, flag, push, pop, barrier, signal };

/// One direction between two lanes of a block.
struct Pipe {
  std::array<std::vector<std::byte>, kPipeDepth> messages;  ///< Owned by the pusher until counted.
  unsigned first = 0;
  unsigned count = 0;
  std::int8_t pusher = -1;  ///< Lanes; -1: none so far.
  std::int8_t popper = -1;
};

/// What the lanes of one block of a mixed task share: its cluster's memory. All guarded by mutex
/// but what is said otherwise.
struct MixedBlock {
  os::AdaptiveMutex mutex;
  LaneMask live = 0;  ///< Lanes that have not returned.
  std::array<std::array<std::uint32_t, kFlagsPerCore>, kLanes> flags = {};
  std::unique_ptr<std::array<Pipe, kPipesPerCluster>> pipes;  ///< Made by the first push or pop.
  /// Who waits, and for what.
  struct Waiter {
    Runner* runner = nullptr;
    WaitKind kind = WaitKind::none;
    unsigned index = 0;  ///< Of the flag or pipe; at the barrier, which meeting this is.
  };
  std::array<Waiter, kLanes> waiters = {};
  /// Grows with every change. Written under the mutex; read by those who spin, without.
  std::atomic<std::uint32_t> changes{0};

  std::uint8_t lanes_out = 0;  ///< Lanes that hold their core. Guarded by the pool's mutex.
  MixedBlock* next_free = nullptr;

  void reset(LaneMask lanes) noexcept;
};

/// A lane of a cluster: where one block's lane runs. Is the KernelBlock that the kernel sees, so
/// that services find the place again.
struct Place : detail::KernelBlock {
  enum class State : std::uint8_t { idle, allotted, running, waiting };

  /// Open from when a block has the place until its lane has returned; who looks from outside
  /// keeps it open. What is below is constant while it is open, or atomic.
  ViewGate gate;
  Job* job = nullptr;
  MixedBlock* mixed = nullptr;  ///< Null for tasks of one lane.
  class CorePool::Impl* pool = nullptr;
  Place* next_due = nullptr;  ///< Guarded by the pool's mutex.
  // Written by the thread that runs here (or allots); all but `runner` relaxed: each is looked at
  // by itself.
  std::atomic<Runner*> runner{nullptr};
  std::atomic<State> state{State::idle};
  std::atomic<std::uint64_t> since{0};  ///< os::cycle_count().
  std::atomic<WaitKind> wait_kind{WaitKind::none};
  std::atomic<std::uint32_t> wait_index{0};
  std::atomic<std::uint32_t> wait_operand{0};
  std::atomic<Signal*> wait_signal{nullptr};

  void set_state(State to) noexcept {
    state.store(to, std::memory_order_relaxed);
    since.store(os::cycle_count(), std::memory_order_relaxed);
  }
};

/// A thread's part in the pool: a carrier's, or that of a thread in run_one(). Never freed while
/// the pool lives, so that a late wake does no harm.
struct Runner {
  CorePool::Impl* pool = nullptr;
  os::Parker parker;
  std::atomic<int> thread{0};      ///< As the kernel numbers it.
  unsigned number = 0;             ///< Of the carrier.
  int cpu = -1;                    ///< That the carrier is bound to; -1: any of the pool's.
  Runner* next_waiting = nullptr;  ///< In a Meeting's list.

  // --- The thread's own ---
  Place* place = nullptr;  ///< Where it runs a block.
  /// It tells a sink that a task has ended: what this makes ready it looks at right after.
  bool completing = false;
  Place* offered = nullptr;  ///< Where it could go on with a task that this makes ready: `next`.
  Job* next = nullptr;
  Job* spare = nullptr;  ///< The task that has just ended, to be used again.

  // --- Guarded by the pool's mutex ---
  Runner* next_idle = nullptr;
  bool idle = false;     ///< In the list of idle carriers.
  bool watches = false;  ///< It is to sleep until a due lane has waited too long.
  // Exploring.
  Place* given = nullptr;  ///< What it is to run.
  bool stands = false;     ///< In a wait, until it is its turn.

  std::atomic<bool> stirred{false};  ///< Something was done that may end its wait.
  std::atomic<bool> turn{false};     ///< It may go on. Written under the pool's mutex.

  /// Makes the thread look again at what it waits for.
  void wake() noexcept {
    // Relaxed: who looks at it has met the waker at a mutex since.
    stirred.store(true, std::memory_order_relaxed);
    parker.unpark();
  }
};

/// The runner as which the calling thread acts, if any.
extern thread_local constinit Runner* current_runner;

}  // namespace strata::chip
