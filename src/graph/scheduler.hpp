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
// External lanes. What was started on one is handed over (ExternalLane::dispatch) without the
// mutex, by one thread at a time. Whoever starts something on a lane that nobody hands over to does
// it itself, with what it started; otherwise it leaves that in the lane's outbox to the thread that
// is at it. A lane that is suspended gets nothing from its kind's queue.
//
// Thread safety: every member may be called from any thread; enlist() under the graph lock, which
// makes submission order the order of the lanes. The mutex is taken inside the graph lock, never
// the other way round. No body, dispatch or completion is called with the mutex held.
//
// Invariants
//   (1) A lane runs one thing at a time (external lanes: up to `depth`).
//   (2) While a lane is reserved nothing but the group it is reserved for starts on it.
//   (3) A sleeping lane is in its kind's list of sleepers, or its attention is about to be raised:
//       a push that finds nobody spinning wakes one of them. A push that does find a spinner leaves
//       its task to that one; so may several pushes. Therefore a lane that was idle looks at the
//       queue once more when it has taken its first task, and wakes the next if there is more, who
//       does the same.
//   (4) `attention` is up while the lane has something in its inbox, is reserved or held, or must
//       stop.
//   (5) An external lane's `handing` is `idle` while nobody hands over to it; then its outbox is
//       empty. The mutex is held to leave `idle` and to leave `more`; `at_it` becomes `idle` by the
//       thread that is at it, without.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
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
class Poller;
struct Kind;

/// How long a thread looks for work before it sleeps, in cycle counts: a few microseconds. A sleep
/// and a wake cost more than that.
inline constexpr std::uint64_t kSpinCycles = 12'000;

/// One part of a task at or on its way to a lane.
struct Placed {
  TaskNode* task = nullptr;
  std::uint32_t member = 0;
};

/// One dispatch to an external lane. Never moves; used again with another generation.
struct Dispatch {
  // --- Guarded by the scheduler's mutex; constant while it is live and not being handed over ---
  std::uint32_t index = 0;
  std::uint32_t generation = 0;
  bool live = false;
  Placed part;
  struct Lane* lane = nullptr;
  std::exception_ptr failure;  ///< Its kind has failed: the task fails with this.
  /// Made when it is handed over.
  alignas(TaskContext) unsigned char context[sizeof(TaskContext)];

  [[nodiscard]] DispatchId id() const noexcept {
    return {(std::uint64_t{generation} << 32) | index};
  }
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
  /// It span or slept since its last task from the queue: see invariant (3). Whoever serves it.
  bool was_idle = false;

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
  bool suspended = false;        ///< Gets nothing from its kind's queue.
  std::deque<Dispatch*> outbox;  ///< To be handed over behind what is being handed over.
  // --- Not guarded by the mutex ---
  /// Whether a thread hands over to the lane; `more`: and the outbox has something. See (5).
  enum class Handing : std::uint8_t { idle, at_it, more };
  std::atomic<Handing> handing{Handing::idle};
  Dispatch* first = nullptr;      ///< To be handed over first. The thread that is at it.
  Lane* next_handover = nullptr;  ///< In that thread's list.
};

/// The lanes that the calling thread has to hand over to, once it has let go of the mutex.
struct Handover {
  Lane* lanes = nullptr;
};

struct Kind {
  Kind(std::string kind_name, std::size_t window) : name(std::move(kind_name)), queue(window) {}
  KindId id{};
  std::string name;
  unsigned depth = 1;
  bool external = false;
  std::vector<Lane*> lanes;
  ReadyQueue queue;
  std::exception_ptr failure;  ///< Its queue's tasks fail with this. Guarded by the mutex.

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

  /// A dispatch has ended. Its lane may have been given the next already: the caller hands over
  /// once it has carried out the end. Nothing for a dispatch that is unknown or has ended.
  [[nodiscard]] std::optional<Placed> end_dispatch(DispatchId id, Handover& handover);
  /// Takes back what a lane does not want. Throws InvalidArgument.
  void give_back(DispatchId id);
  void hand_over(Handover handover);

  void suspend(LaneId lane);
  void resume(LaneId lane);
  [[nodiscard]] bool suspended(LaneId lane);
  void fail_kind(KindId kind, std::exception_ptr error);
  /// Takes the tasks out of the external kinds' queues that are not to run any more.
  [[nodiscard]] std::vector<TaskNode*> take_cancelled();
  /// Tells external lanes to look at the tokens of what is at them: all, or those of a group.
  void tell_cancellation(const TaskNode* group);

  /// What lanes have and will have, for reports. visit_lane(lane), then visit_part(lane, part) for
  /// what is at each external lane. With the mutex held.
  template <class VisitLane, class VisitPart>
  void look_at_lanes(VisitLane&& visit_lane, VisitPart&& visit_part) {
    const std::lock_guard lock(mutex_);
    for (const auto& lane : lanes_)
      visit_lane(*lane);
    for (const Dispatch& dispatch : dispatches_) {
      if (dispatch.live) visit_part(*dispatch.lane, dispatch.part);
    }
  }

  /// Ends all lanes; every task has ended.
  void stop();

 private:
  friend class CallerDriver;
  enum class Served : std::uint8_t { ran, nothing, stop };

  void lane_main(Lane& lane);
  Served serve_attention(Lane& lane, Poller* poller = nullptr);
  void run_queue(Lane& lane, TaskNode* task);
  TaskNode* take_from_queue(Lane& lane);
  void leave_run(Lane& lane);
  bool spin_for_work(Lane& lane);
  void sleep(Lane& lane, os::Parker& parker);
  void wake_one(Kind& kind);

  // With the mutex held. What they start on external lanes is put into `handover`.
  void advance(Lane& lane, Handover& handover);
  bool try_start_group(TaskNode& group, Handover& handover);
  void start_part(Lane& lane, Placed part, Handover& handover, std::exception_ptr failure = {});
  [[nodiscard]] static Lane* lane_with_room(const Kind& kind) noexcept;
  void pump(Kind& kind, Handover& handover);
  void update_attention(Lane& lane);
  [[nodiscard]] bool idle(const Lane& lane) const noexcept;
  [[nodiscard]] Dispatch* live_dispatch(DispatchId id) noexcept;
  void free_dispatch(Dispatch& dispatch);
  [[nodiscard]] Lane& external_lane(LaneId lane, const char* caller) const;

  EngineState& engine_;
  std::vector<std::unique_ptr<Kind>> kinds_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  bool has_callers_ = false;

  os::AdaptiveMutex mutex_;
  int holds_ = 0;                    ///< Guarded by mutex_.
  bool stopping_ = false;            ///< Guarded by mutex_.
  std::deque<Dispatch> dispatches_;  ///< Guarded by mutex_; elements never move.
  std::vector<Dispatch*> free_dispatches_;
  std::vector<std::thread> threads_;
};

/// Drives caller lanes for a thread that waits: at most one lane of each kind.
///
/// Thread safety: one thread.
class CallerDriver {
 public:
  /// `poller`: the thread's, which leaves before a task is run; or null.
  CallerDriver(Scheduler& scheduler, os::Parker& parker, Poller* poller = nullptr)
      : scheduler_(scheduler), parker_(parker), poller_(poller) {}
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
  Poller* const poller_;
  std::vector<Lane*> driven_;
};

/// The calling thread's parker.
[[nodiscard]] os::Parker& thread_parker();
/// The same, to be kept beyond the thread.
[[nodiscard]] const std::shared_ptr<os::Parker>& shared_thread_parker();

}  // namespace strata::graph
