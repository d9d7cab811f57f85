// Scheduler: brings ready tasks to lanes.
//
// A task that names a kind waits in that kind's ready queue; thread and caller lanes pull from it
// without a lock, external lanes are fed from it. A task that names an exact lane, and a group,
// take their place in the lanes' orders when they are submitted, and everything about those goes
// through one mutex. A lane looks at the mutex's side only when its `attention` flag is up.
//
// Groups. A group stands in the order of each of its lanes; places are taken under the mutex and in
// submission order, so any two groups stand in the same order wherever they meet. When a group is
// ready and first in all its orders, its lanes are reserved: nothing new starts on them. What runs
// there ends, and then all members start at once. As only one group can be first in an order, two
// groups never hold lanes that the other needs.
//
// Thread safety: every member may be called from any thread; enlist() under the graph lock, which
// makes submission order the order of the lanes. The mutex is taken inside the graph lock, never
// the other way round. No body, dispatch or completion is called with the mutex held.
//
// Invariants
//   (1) A lane runs one thing at a time (external lanes: up to `depth`).
//   (2) While a lane is reserved nothing but the group it is reserved for starts on it.
//   (3) A sleeping lane is in its kind's list of sleepers, or its attention is about to be raised:
//       a push that finds nobody spinning wakes one of them.
//   (4) `attention` is up while the lane has something in its inbox, is reserved or held, or must
//       stop.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "graph/node.hpp"
#include "graph/ready_queue.hpp"
#include "os/adaptive_mutex.hpp"
#include "os/parker.hpp"
#include "strata/engine.hpp"

namespace strata::graph {

class EngineState;
struct Kind;

/// How long a thread looks for work before it sleeps, in cycle counts: a few microseconds. A sleep
/// and a wake cost more than that.
inline constexpr std::uint64_t kSpinCycles = 12'000;

/// One part of a task at or on its way to a lane.
struct Placed {
  TaskNode* task = nullptr;
  std::uint32_t member = 0;
};

struct Lane {
  enum class Type : std::uint8_t { thread, caller, external };

  LaneId id{};
  Kind* kind = nullptr;
  Type type = Type::thread;

  /// Raised under the mutex (release); the lane's thread looks at it between tasks (acquire), and
  /// once more (sequentially consistent) after it has set `working`.
  alignas(64) std::atomic<bool> attention{false};
  /// Set by the lane's thread before it takes from the ready queue and cleared when it goes idle or
  /// serves its attention; read by whoever reserves the lane. Both sequentially consistent: of a
  /// lane that starts and a group that reserves at least one sees the other.
  std::atomic<bool> working{false};

  /// Run of the last task that the lane took from the queue; its end is checked when the lane turns
  /// to another run or to none. The lane's thread only.
  std::shared_ptr<RunState> last_run;

  // --- Guarded by the scheduler's mutex ---
  std::deque<Placed> order;     ///< Exact tasks and group members, in submission order.
  std::deque<Placed> loose;     ///< Ready tasks for this lane that need not keep order.
  std::deque<Placed> inbox;     ///< Started, not yet picked up by the lane's thread.
  std::uint32_t in_flight = 0;  ///< Started from order, loose (external: any) and not ended.
  bool reserved = false;
  bool driven = false;           ///< Some thread serves it now. Always true for thread lanes.
  os::Parker* parker = nullptr;  ///< Of the thread that serves it, if any.

  // External lanes.
  std::shared_ptr<ExternalLane> external;
  std::deque<std::uint32_t> outbox;  ///< Dispatches to be handed over, in order.
  bool draining = false;             ///< A thread is handing the outbox over.
};

struct Kind {
  Kind(std::string kind_name, std::size_t window) : name(std::move(kind_name)), queue(window) {}
  KindId id{};
  std::string name;
  unsigned depth = 1;
  bool external = false;
  std::vector<Lane*> lanes;
  ReadyQueue queue;

  /// Lanes that are awake and look for work. A push that finds one leaves the waking to it.
  alignas(64) std::atomic<int> spinning{0};
  std::atomic<int> sleeping{0};  ///< Size of sleepers, for a look without the lock.
  os::AdaptiveMutex sleep_mutex;
  std::vector<os::Parker*> sleepers;  ///< Guarded by sleep_mutex; the last is woken first.
};

class Scheduler {
 public:
  Scheduler(EngineState& engine, const std::vector<KindOptions>& kinds, std::size_t window);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// A new task takes its place in the orders of the lanes it names. Graph lock held.
  void enlist(TaskNode& task);
  /// All that the task depends on has ended: it may start. For plain tasks on a kind of thread
  /// lanes this is push and wake.
  void make_ready(TaskNode& task);
  /// The task will not run: it leaves the orders it stands in.
  void withdraw(TaskNode& task);
  /// A part of a task has ended on a lane (exact, group and external parts only).
  void part_ended(Lane& lane);

  [[nodiscard]] const std::vector<std::unique_ptr<Kind>>& kinds() const noexcept { return kinds_; }
  [[nodiscard]] std::vector<std::unique_ptr<Lane>>& lanes() noexcept { return lanes_; }
  [[nodiscard]] bool has_callers() const noexcept { return has_callers_; }

  void hold();
  void release_hold();
  /// True if the lanes are held and nothing runs on any of them.
  [[nodiscard]] bool held_still();

  /// What an external completion refers to. Throws InvalidArgument for an unknown or ended
  /// dispatch.
  struct Ended {
    Placed part;
    Lane* lane;
  };
  [[nodiscard]] Ended end_dispatch(DispatchId id);

  /// Ends all lanes; every task has ended.
  void stop();

 private:
  friend class CallerDriver;
  struct Dispatch {
    std::uint32_t generation = 0;
    bool live = false;
    Placed part;
    Lane* lane = nullptr;
    alignas(TaskContext) unsigned char context[sizeof(TaskContext)];
  };
  enum class Served : std::uint8_t { ran, nothing, stop };

  void lane_main(Lane& lane);
  Served serve_attention(Lane& lane);
  void run_queue(Lane& lane, TaskNode* task);
  TaskNode* take_from_queue(Lane& lane);
  void leave_run(Lane& lane);
  bool spin_for_work(Lane& lane);
  void sleep(Lane& lane, os::Parker& parker);
  void wake_one(Kind& kind);

  // With the mutex held.
  void advance(Lane& lane);
  bool try_start_group(TaskNode& group);
  void start_part(Lane& lane, Placed part);
  void pump(Kind& kind);
  void update_attention(Lane& lane);
  [[nodiscard]] bool idle(const Lane& lane) const noexcept;
  // With it released: hands over what the calls above put into outboxes.
  void drain_outboxes();

  EngineState& engine_;
  std::vector<std::unique_ptr<Kind>> kinds_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  bool has_callers_ = false;

  os::AdaptiveMutex mutex_;
  int holds_ = 0;                    ///< Guarded by mutex_.
  bool stopping_ = false;            ///< Guarded by mutex_.
  std::deque<Dispatch> dispatches_;  ///< Guarded by mutex_; elements never move.
  std::vector<std::uint32_t> free_dispatches_;
  std::vector<Lane*> to_drain_;  ///< Guarded by mutex_: lanes whose outbox somebody must drain.
  std::vector<std::thread> threads_;
};

/// Drives caller lanes for a thread that waits: at most one lane of each kind.
///
/// Thread safety: one thread.
class CallerDriver {
 public:
  explicit CallerDriver(Scheduler& scheduler, os::Parker& parker)
      : scheduler_(scheduler), parker_(parker) {}
  ~CallerDriver();
  CallerDriver(const CallerDriver&) = delete;
  CallerDriver& operator=(const CallerDriver&) = delete;

  /// Runs one task if there is one for a lane it drives. False if there was none.
  bool step();
  /// Sleeps until unparked, or there is work for a lane it drives, or the deadline.
  void sleep_until(std::chrono::steady_clock::time_point deadline);

 private:
  void claim();
  Scheduler& scheduler_;
  os::Parker& parker_;
  std::vector<Lane*> driven_;
};

/// The calling thread's parker.
[[nodiscard]] os::Parker& thread_parker();
/// The same, to be kept beyond the thread.
[[nodiscard]] const std::shared_ptr<os::Parker>& shared_thread_parker();

}  // namespace strata::graph
