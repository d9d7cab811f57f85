// EngineState: the engine behind strata::Engine.
//
// It ties the parts together: submission (submission.cpp) takes a slot of the window, asks the
// dependency tracker what the task must wait for and enlists it with the scheduler; the executor
// (executor.cpp) runs bodies and, when a task ends, releases its successors; runs, waiting and
// deadlines are in engine_state.cpp, host accesses in host_access.cpp, proofs that a full heap or
// window can't drain in back_pressure.cpp.
//
// Locks, in the order in which they may be taken: blocked lock, graph lock, then scheduler's mutex
// or heap lock; runs lock, run mutex and waiters lock are leaves. No user code runs under any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/buffer_table.hpp"
#include "graph/dependency_tracker.hpp"
#include "graph/node.hpp"
#include "graph/poller.hpp"
#include "graph/presence.hpp"
#include "graph/run_state.hpp"
#include "graph/scheduler.hpp"
#include "graph/storage.hpp"
#include "graph/task_window.hpp"
#include "os/adaptive_mutex.hpp"
#include "os/cpu.hpp"
#include "strata/engine.hpp"
#include "trace/state_board.hpp"

namespace strata::graph {

class RecorderState;
class RecordedGraph;

/// Lets the engine give a tensor its storage.
struct TensorAccess {
  static void assign(Tensor& tensor, BufferId buffer) noexcept {
    tensor.buffer_ = buffer;
    tensor.byte_offset_ = 0;
  }
};

/// Flag of detail::TensorRecord: the task holds a reference on the buffer's storage.
inline constexpr std::uint32_t kCountedStorage = 1;  // detail::kDumped is another flag.

/// An orchestration that waits for its turn on a tensor.
struct HostWait {
  std::atomic<bool> ready{false};  ///< Set (release) by whoever makes the node ready.
  /// Shared: the waiter may be gone, with its thread, as soon as it sees `ready`.
  std::shared_ptr<os::Parker> parker;
};

/// How tensor handles find the engine, and learn that it is gone.
struct HandleRegistry {
  os::AdaptiveMutex mutex;
  EngineState* engine = nullptr;  ///< Null once it is gone. Guarded by mutex.
};

struct HandleState {
  std::shared_ptr<HandleRegistry> registry;
  BufferRecord* record;  ///< Alive while registry->engine is.
};

/// An orchestration under way: its run, its scopes, its thread. Used by that thread alone, save
/// what back_pressure.cpp reads while it is blocked.
class OrchestrationState {
 public:
  OrchestrationState(EngineState& its_engine, std::shared_ptr<RunState> its_run);
  ~OrchestrationState();
  OrchestrationState(const OrchestrationState&) = delete;
  OrchestrationState& operator=(const OrchestrationState&) = delete;

  EngineState& engine;
  const std::shared_ptr<RunState> run;
  const std::thread::id thread;
  /// The orchestration of this thread that called Engine::run for this one, if any. It gets on only
  /// when this one does.
  const OrchestrationState* outer = nullptr;
  [[nodiscard]] bool is_inside(const OrchestrationState* other) const noexcept {
    const OrchestrationState* each = this;
    while (each != nullptr && each != other)
      each = each->outer;
    return each != nullptr;
  }
  /// Whether `wanted` is its run, or that of one it is inside of.
  [[nodiscard]] bool works_for(const RunState* wanted) const noexcept {
    const OrchestrationState* each = this;
    while (each != nullptr && each->run.get() != wanted)
      each = each->outer;
    return each != nullptr;
  }
  std::vector<std::unique_ptr<ScopeState>> scopes;  ///< Open ones; the first is the run itself.
  RecorderState* recorder = nullptr;                ///< Set while recording: nothing is executed.
  std::vector<DependencyTracker::MadeJoin> joins;   ///< Scratch of a submission; empty between.

  [[nodiscard]] ScopeState& scope() noexcept { return *scopes.back(); }
  void open_scope(std::string_view name, bool manual);
  void close_scopes_to(std::size_t depth);
};

/// One body with its arguments, as submitted.
struct PartSpec {
  Body* body = nullptr;
  std::span<const TensorArg> tensors = {};
  std::span<const Scalar> scalars = {};
  LaneId lane{};
  bool shared = false;  ///< The body is not moved from: it belongs to a recording.
};

/// A node as submitted.
struct NodeSpec {
  NodeType type = NodeType::task;
  std::span<PartSpec> parts = {};
  std::string_view name = {};
  Target target{};
  std::int32_t priority = 0;
  bool unordered = false;
  std::span<const TaskId> after = {};
  HostWait* host = nullptr;
};

/// What a blocked orchestration waits for.
struct RoomRequest {
  /// Slots of the window, bytes of the heap, the end of a run, the end of a buffer's users.
  enum class Need : std::uint8_t { slots, bytes, run_end, users };

  OrchestrationState* who = nullptr;
  Need need = Need::slots;
  std::uint64_t asked = 0;
  const RunState* run = nullptr;  ///< For run_end.
  os::Parker* parker = nullptr;
  std::uint64_t since = os::cycle_count();
  bool hopeless = false;            ///< Proved that waiting can't end. Blocked lock.
  CapacityError::Facts facts = {};  ///< Then, why.
};

class EngineState {
 public:
  explicit EngineState(EngineOptions engine_options);
  ~EngineState();
  EngineState(const EngineState&) = delete;
  EngineState& operator=(const EngineState&) = delete;

  // --- Runs ---
  std::shared_ptr<RunState> submit_run(Engine::OrchestrationFn orchestration,
                                       RunOptions run_options);
  std::shared_ptr<RunState> run_here(const Engine::OrchestrationFn& orchestration,
                                     RunOptions run_options);
  [[nodiscard]] static bool wait_for_run(RunState& run,
                                         std::chrono::steady_clock::time_point deadline);
  static void cancel(RunState& run, RunState::Ending why);
  /// Waits; meanwhile polls for completions and helps on caller lanes. `ready` is asked again after
  /// each unpark of this thread, so whoever makes it true unparks. False if the deadline came
  /// first.
  bool wait_until(const std::function<bool()>& ready,
                  std::chrono::steady_clock::time_point deadline);
  void caller_lanes_free();

  // --- Submission (submission.cpp) ---
  TaskNode* submit(OrchestrationState& orchestration, const NodeSpec& spec, TaskId& id);
  TaskId submit_task(OrchestrationState& orchestration, TaskSpec& spec);
  TaskId submit_group(OrchestrationState& orchestration, const GroupSpec& spec);
  Tensor allocate(OrchestrationState& orchestration, DType dtype,
                  std::span<const std::int64_t> shape, const void* fill);
  /// Drops the guards of joins made under the graph lock. Without the lock.
  void start_joins(std::vector<DependencyTracker::MadeJoin>& joins);
  /// Throws for a target that does not exist, and what EngineOptions::check_task throws.
  void check_task(TaskSpec& spec) const;
  /// The latter for a member of a group that is called `name`.
  void check_member(GroupMember& member, std::string_view name) const;
  bool look_up_arguments(const NodeSpec& spec, std::uint64_t pin);
  void find_predecessors(TaskNode& task, const NodeSpec& spec, bool manual, std::uint64_t pin);
  [[nodiscard]] std::uint32_t commit(OrchestrationState& orchestration, TaskNode& task,
                                     const NodeSpec& spec, bool manual) noexcept;
  void take_back(TaskNode& task, const NodeSpec& spec) noexcept;
  [[noreturn]] void refuse_assumed(const NodeSpec& spec) const;
  void log_task(TaskNode& task, RunState& run);

  // --- Replay (replay.cpp) ---
  TaskId replay(OrchestrationState& orchestration, const std::shared_ptr<RecordedGraph>& recording,
                std::span<const Tensor> tensors, std::span<const Scalar> scalars);

  // --- Host accesses (host_access.cpp) ---
  /// Waits for its turn on the tensor (or after a task), calls `access` and ends the turn.
  void host_access(OrchestrationState& orchestration, std::string_view what, const TensorArg* arg,
                   TaskId after, const std::function<void()>& access);
  /// Waits for all tasks that use a buffer of the caller.
  void wait_for_last_user(BufferRecord& buffer);
  /// Hides the buffer now and calls `freed` when its last user has ended.
  void remove_later(BufferRecord& buffer, std::function<void()> freed,
                    std::unique_lock<os::AdaptiveMutex> graph_lock);
  /// Address of a tensor's element (0, 0, ...). Throws InvalidArgument if it has none here.
  [[nodiscard]] std::byte* address_of(const Tensor& tensor);

  // --- Execution (executor.cpp) ---
  /// Runs a plain task of a kind's queue; returns a successor to run next on this lane, or null.
  TaskNode* execute(TaskNode& task, Lane& lane);
  /// Runs a part that was started on an exact lane, or a group's member.
  void execute_part(Placed part, Lane& lane);
  void dispatch_external(Lane& lane, Dispatch& dispatch);
  /// `value` is moved from; null if the task returns none.
  void complete_external(DispatchId id, const std::exception_ptr& error,
                         std::string* value = nullptr);
  void drop_cancelled();
  /// The node has all it waits for.
  void make_ready(Node& node);
  /// The node has ended: releases what waited for it. `failure` is null if it went well. Returns a
  /// successor for `lane` to run next (if that is not null), or null.
  TaskNode* finish(Node& node, const std::shared_ptr<const Failure>& failure, Lane* lane);

  // --- Back-pressure (back_pressure.cpp) ---
  /// Waits until there may be room; throws CapacityError if it is proved that there never will be,
  /// and Cancelled if the run was ended. `try_again` is called once after blocking is announced.
  void wait_for_room(OrchestrationState& who, CapacityError::Resource resource, std::uint64_t asked,
                     const std::function<bool()>& try_again);
  /// Something may have made room: blocked submitters look again.
  void room_changed() noexcept {
    if (blocked_count.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      wake_blocked();
  }
  /// Waits until no task holds the caller's buffer.
  void wait_for_users(OrchestrationState& who, const BufferRecord& buffer);
  void prove_blocked();
  [[nodiscard]] CapacityError::Facts heap_facts(
      std::uint64_t asked, const std::function<bool(const BufferRecord&)>& releasable);
  void enter_blocked(RoomRequest& request);
  void leave_blocked(RoomRequest& request);

  /// A thread that is not the engine's, inside it: the destructor lets it leave first.
  class Guest {
   public:
    explicit Guest(EngineState& engine) : engine_(&engine) { engine.presence.enter_guest(); }
    Guest(Guest&& other) noexcept : engine_(std::exchange(other.engine_, nullptr)) {}
    Guest& operator=(Guest&&) = delete;
    ~Guest() {
      if (engine_ != nullptr) engine_->presence.leave_guest();
    }
    [[nodiscard]] EngineState& engine() const noexcept { return *engine_; }

   private:
    EngineState* engine_;
  };
  [[nodiscard]] static std::optional<Guest> visit(const RunState& run);
  [[nodiscard]] static std::vector<GraphEdge> edges_in_window(const RunState& run, TaskId task);
  [[nodiscard]] EngineStats stats();

  // --- Reports (engine_report.cpp) ---
  /// Runs, tasks in flight by state, what is blocked and who holds the heap, for reports.
  [[nodiscard]] nlohmann::json describe();
  void throw_if_ended(const RunState& run) const;

 private:
  [[nodiscard]] std::vector<std::shared_ptr<RunState>> open_runs();
  [[nodiscard]] nlohmann::json describe_blocked();
  void describe_tasks(nlohmann::json& report, const std::vector<std::shared_ptr<RunState>>& runs);
  [[nodiscard]] nlohmann::json describe_holders();

 public:
  const EngineOptions options;
  const std::shared_ptr<HandleRegistry> handles = std::make_shared<HandleRegistry>();
  std::size_t kind_count = 0;  ///< Constant.
  std::size_t lane_count = 0;

  os::AdaptiveMutex graph_mutex;
  // --- Guarded by graph_mutex ---
  BufferTable buffers;
  DependencyTracker tracker;
  TaskWindow window;
  std::uint64_t next_task = 1;
  std::vector<TrackedArgument> tracked_scratch;  ///< Arguments of the task being submitted.
  /// Failures that edges and invalid bytes may still refer to, by the task that failed.
  std::unordered_map<std::uint64_t, std::shared_ptr<const Failure>> failures;
  /// Keeps failures alive that nodes in flight may point to; emptied when nothing is in flight.
  std::vector<std::shared_ptr<const Failure>> failure_keeper;
  std::uint64_t tasks_submitted = 0;
  std::uint64_t blocked_submits = 0;

  Storage storage;
  void reap_dead_buffers();  ///< Graph lock held.
  /// The slot's last task no longer needs its arguments. Graph lock held.
  static void release_binding(TaskNode& task) noexcept;
  [[nodiscard]] bool other_runs_open();

  // --- Blocked submitters ---
  std::atomic<int> blocked_count{
      0};  ///< Size of blocked. Sequentially consistent, see wait_for_room.
  os::AdaptiveMutex blocked_mutex;
  std::vector<RoomRequest*> blocked;
  /// Counts what may have made room while somebody was blocked, and refusals.
  std::atomic<std::uint64_t> room_changes{0};

  Presence presence;

  std::mutex runs_mutex;

  // --- Lane holds by this engine's users; blocked_mutex ---
  std::vector<std::thread::id> holders;

 private:
  struct Job {
    std::shared_ptr<RunState> run;
    Engine::OrchestrationFn orchestration;
  };
  void open_place(const char* caller);
  std::shared_ptr<RunState> open_run(const char* caller, RunOptions run_options);
  /// Waits for a run, known to the proof if the caller is an orchestration of this engine.
  bool wait_for_end(RunState& run, std::chrono::steady_clock::time_point deadline);
  void run_orchestration(const std::shared_ptr<RunState>& run,
                         const Engine::OrchestrationFn& orchestration);
  void orchestration_main();
  void watch_deadline(const std::shared_ptr<RunState>& run);
  void deadline_main();
  void wake_blocked() noexcept;
  void settle(TaskNode& task, const std::shared_ptr<const Failure>& failure);
  void retire(Node& node, Lane* lane);
  void release_storage(TaskNode& task);
  void end_removal(BufferRecord& record);
  bool settles_at_once(TaskNode& task);
  void log_ready(TaskNode& task);
  void start(TaskNode& task);
  void part_done(TaskNode& task, const std::shared_ptr<const Failure>& failure);
  template <class FailureOf>
  bool end_dispatch(DispatchId id, std::string* value, const FailureOf& failure);

  // Runs; guarded by runs_mutex.
  std::uint64_t next_run_ = 1;
  std::size_t open_runs_ = 0;
  std::vector<os::Parker*> place_waiters_;
  std::deque<Job> jobs_;
  std::size_t idle_threads_ = 0;
  std::condition_variable jobs_changed_;
  std::vector<std::thread> orchestration_threads_;
  bool closing_ = false;
  std::vector<std::weak_ptr<RunState>> runs_;  ///< All that may still point here.
  std::condition_variable deadlines_changed_;
  std::vector<std::shared_ptr<RunState>> deadlines_;
  std::thread deadline_thread_;

  os::AdaptiveMutex waiters_mutex_;
  std::vector<os::Parker*> waiters_;  ///< Threads in wait_until.

 public:
  Scheduler scheduler;                    // Its threads use all of the above.
  trace::StateBoard::Entry report_entry;  ///< Last: nobody asks an engine that is being destroyed.
};

}  // namespace strata::graph
