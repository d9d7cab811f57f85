// Endpoint: the lane of the graph engine behind which one worker process runs tasks.
//
// It outlives the processes: a worker that dies is replaced behind the same lane. While a process
// is up, tasks go to its mailbox as frames, several ahead; what can't go yet (no process, a
// callable that it has not confirmed, no room) waits here, in order.
//
// Thread safety: all members from any thread, save up(), down() and next_timer(), which are the
// supervisor's. A lock per endpoint guards everything; the engine is never called with it held.
//
// Invariants
//   (1) Every dispatch is completed or given back exactly once.
//   (2) Tasks reach the worker in the order in which the engine dispatched them.
//   (3) A frame for a callable is sent only after this process has confirmed that callable.
//   (4) When a process has died, the task that it had in hand fails with the cause. Those that it
//       had not begun go back to the engine, unless they named this lane: they fail with the cause,
//       as do all that name this lane and were submitted before the death.
//   (5) A task that failed counts as failed once its story is there or the process is gone.
//   (6) A chip ends a run that is past its time limit itself, and its story is the task's error.
//       Its process is ended only if nothing has come by its cancel grace after the limit, or by
//       kChipGrace if that is more. This holds for every limit that the chip knows of: the call's,
//       the program's, and the chip's own.
//   (7) A task that has a time limit and a cancel grace of its own counts its limit from its
//   dispatch
//       until it is sent: a process that does not even take its callable is ended.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ipc/mailbox.hpp"
#include "node/chip_memory.hpp"
#include "node/domain_state.hpp"
#include "node/slab_store.hpp"
#include "os/adaptive_mutex.hpp"
#include "os/deadline.hpp"
#include "strata/callable.hpp"
#include "strata/engine.hpp"
#include "strata/worker_error.hpp"

namespace strata::node {

class CallableRegistry;
class ProgramCall;

/// What all endpoints of a Worker share. Constant once the Worker runs.
struct EndpointContext {
  Engine* engine = nullptr;
  const SlabStore* slabs = nullptr;
  const ChipMemory* chip_memory = nullptr;
  DomainTable* domains = nullptr;
  const std::atomic<std::uint32_t>* collective =
      nullptr;  ///< Callable of collectives; 0: none yet.
  std::chrono::milliseconds cancel_grace{5000};
  std::function<void()> timers_changed = {};  ///< Wakes the supervisor.
  /// Whether some task was cancelled that was at no endpoint then; written by any thread, read by
  /// every dispatch. Sequentially consistent: a dispatch that does not see it is found at its
  /// endpoint by the one who cancels.
  std::atomic<bool> any_task_cancelled{false};
  const CallableRegistry* callables = nullptr;  ///< A dispatch of one beyond is refused.
  /// Whether that task is such a one; forgets it.
  std::function<bool(TaskId)> task_cancelled = {};
};

class Endpoint final : public ExternalLane {
 public:
  Endpoint(std::string path, const EndpointContext& context) noexcept;

  // --- The engine's ---
  void dispatch(DispatchId id, TaskContext& context, Body& body) override;
  void cancellation() override;

  // --- Whoever polls ---
  /// Takes completions from the mailbox and reports them. True if there was any.
  bool poll();
  /// How many tasks its worker has, in hand and sent ahead. A hint, as of some time ago.
  [[nodiscard]] std::uint32_t in_flight() const noexcept {
    return in_flight_.load(std::memory_order_relaxed);
  }
  /// Asks the worker to wake the supervisor at its next completion. False if one is there already.
  [[nodiscard]] bool arm();
  void disarm();

  // --- The supervisor's ---
  void set_lane(LaneId lane) noexcept { lane_ = lane; }
  /// Of runs on this chip that have none of their own. Before the Worker runs.
  void set_run_limit(std::optional<std::chrono::nanoseconds> limit) noexcept { run_limit_ = limit; }
  [[nodiscard]] LaneId lane() const noexcept { return lane_; }
  /// A process is ready behind the lane.
  void up(std::shared_ptr<ipc::MailboxParent> mailbox);
  /// It is gone, or never came; `cause` tells why. `lost`: there will be no other.
  void down(const WorkerFault& cause, bool lost);
  /// A lost place is to be filled again: tasks for it wait from now on.
  void revive();
  /// The Worker closes: what has not begun is dropped, and what comes is refused, until open().
  void close();
  void open();
  /// The process has confirmed a callable, or can't provide it.
  void confirm(CallableId callable);
  void refuse(CallableId callable, WorkerFault why);
  /// The story of a task that failed, and the value of one that did not fit the frame.
  void story(std::uint64_t dispatch, WorkerFault fault);
  void value(std::uint64_t dispatch, std::string bytes);
  /// Drops the task if it has not begun, and tells it otherwise. False if it is not here.
  bool cancel_task(TaskId task);

  /// A task that has outstayed its time limit or its cancellation.
  struct Overdue {
    std::string why;
  };
  /// Looks at the limits of the task in hand: when to look next. Sets `overdue` if its worker must
  /// be ended.
  [[nodiscard]] os::Deadline next_timer(std::optional<Overdue>& overdue);
  /// There is no process behind the lane, and there will be none unless somebody asks.
  [[nodiscard]] bool lost();
  /// Of the task in hand, for messages: "task 17 'scale'", or empty.
  [[nodiscard]] std::string task_in_hand();
  /// The task in hand with its arguments, and what is behind it, for reports.
  [[nodiscard]] nlohmann::json describe();
  /// Set when the mailbox says that the worker broke the protocol.
  [[nodiscard]] std::string broken();

 private:
  /// What the control channel tells of a task, before or after its completion.
  struct Story {
    std::optional<WorkerFault> fault;
    std::optional<std::string> value;
    ipc::CompletionFrame frame;  ///< Once completed.
  };
  struct Entry {
    DispatchId id;
    TaskContext* context = nullptr;
    Call call{CallableId{}};
    bool program = false;                    ///< It calls a chip program.
    std::chrono::nanoseconds time_limit{0};  ///< Of the call or the run; 0: none.
    ipc::MailboxParent::Ticket ticket = {};
    os::Deadline limit = {};            ///< Of a task in hand with a time limit.
    os::Deadline grace = {};            ///< When a cancelled task in hand has had its time.
    bool told = false;                  ///< Its cancel word is set.
    bool over_limit = false;            ///< It outstayed its limit.
    bool cancelled = false;             ///< By Worker::cancel(task).
    std::unique_ptr<Story> story = {};  ///< Of a task that failed or returned a long value.
  };
  /// What is to be told to the engine once the lock is released.
  struct Report {
    DispatchId id;
    std::exception_ptr error = {};
    std::optional<std::string> value = {};
    bool give_back = false;
  };
  enum class Confirmed : std::uint8_t { no, yes, refused };
  enum class Sent : std::uint8_t { yes, later, never };

  void tell(const Report& report);
  void tell(const std::vector<Report>& reports);
  [[nodiscard]] ipc::TensorFrame frame_of(const TaskContext& context, std::size_t argument) const;
  [[nodiscard]] Sent send(Entry& entry, std::exception_ptr& refusal);
  void send_waiting(std::vector<Report>& reports);
  void tell_to_stop(Entry& entry);
  void now_in_hand();
  /// `cause`: why its worker died, where that is what ended the wait for its story.
  [[nodiscard]] Report finished(Entry& entry, const WorkerFault* cause = nullptr) const;
  enum class Begun : bool { no, yes };
  [[nodiscard]] std::exception_ptr died(const Entry& entry, const WorkerFault& cause,
                                        Begun begun) const;
  template <class Add>
  void add_to_story(std::uint64_t dispatch, const Add& add);
  [[nodiscard]] static std::vector<std::string> argument_texts(const TaskContext& context);
  [[nodiscard]] std::chrono::nanoseconds limit_of(const Call& call,
                                                  const ProgramCall* program) const noexcept;
  [[nodiscard]] std::string overdue_text(const Entry& entry) const;
  [[nodiscard]] std::chrono::nanoseconds grace_of(const Entry& entry) const noexcept;
  [[nodiscard]] std::chrono::milliseconds cancel_grace_of(const Entry& entry) const noexcept {
    return entry.call.cancel_grace().value_or(shared_.cancel_grace);
  }

  const std::string path_;
  const EndpointContext& shared_;
  LaneId lane_{};
  std::optional<std::chrono::nanoseconds> run_limit_;

  /// Frames in flight; written under the lock, read without it by poll() to skip idle endpoints.
  std::atomic<std::uint32_t> in_flight_{0};

  os::AdaptiveMutex mutex_;
  // --- Guarded by mutex_ ---
  std::shared_ptr<ipc::MailboxParent> mailbox_;  ///< Null while no process is up.
  std::deque<Entry> sent_;                       ///< In the mailbox, in order.
  std::deque<Entry> waiting_;                    ///< Not sent yet, in order.
  std::vector<Entry> unfinished_;                ///< Completed; their stories are to come.
  std::vector<Confirmed> confirmed_;             ///< By callable, of this process.
  std::vector<std::pair<std::uint32_t, WorkerFault>> refused_;
  std::uint64_t cutoff_ = 0;  ///< Tasks up to here that name this lane fail with last_cause_.
  WorkerFault last_cause_;
  bool lost_ = false;
  bool closed_ = true;
};

}  // namespace strata::node
