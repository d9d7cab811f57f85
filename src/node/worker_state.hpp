// WorkerState: what is behind a strata::Worker. It ties the parts together: the engine and its
// endpoints, the supervisor and its processes, the shared memory, the callables.
//
// Thread safety: all members from any thread. The state of life (below) has one lock. With it held
// nothing is called but commands of the supervisor and Endpoint::open, which call nothing back.
//
//   closed --init--> starting --started--> running --close, cancel--> stopping --stopped--> closed
//                       |  `----start_failed----------------------------------------------> closed
//                       `--close, cancel--> stopping
//
// The supervisor decides when `starting` and `stopping` end; init() and close() wait for that. What
// they wait for is an event, not a state, since others may be through the next states before they
// look. The commands that belong to a change of the state reach the supervisor in the order of the
// changes. tests/model/start_close.pml shows what both are good for.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ipc/spinner_budget.hpp"
#include "node/builtin.hpp"
#include "node/callable_registry.hpp"
#include "node/child_specs.hpp"
#include "node/chip_memory.hpp"
#include "node/communicators.hpp"
#include "node/domain_state.hpp"
#include "node/endpoint.hpp"
#include "node/janitor.hpp"
#include "node/log_sink.hpp"
#include "node/slab_store.hpp"
#include "node/supervisor.hpp"
#include "node/task_check.hpp"
#include "node/watchdog.hpp"
#include "node/worker_program.hpp"
#include "os/unique_fd.hpp"
#include "strata/worker.hpp"
#include "trace/state_board.hpp"

namespace strata::comm {
class WindowLayout;
}

namespace strata::node {

/// How the engine's waiting threads look for completions of workers.
class WorkerProgress;

class WorkerState final : public SupervisorClient {
 public:
  explicit WorkerState(WorkerOptions options, Placement placement = {});
  ~WorkerState() override;
  WorkerState(const WorkerState&) = delete;
  WorkerState& operator=(const WorkerState&) = delete;

  void init();
  void close(std::chrono::milliseconds limit);
  void cancel() noexcept;
  [[nodiscard]] bool initialised() const noexcept;
  /// Whether this is a copy in a process that the program has forked: none of the threads is there,
  /// and the worker processes are not its own.
  [[nodiscard]] bool is_copy() const noexcept { return ::getpid() != process_; }

  CallableId add(const Callable& callable);
  void remove(CallableId program) { callables_.remove(program); }
  [[nodiscard]] KindId kind(std::string_view name) const;
  [[nodiscard]] LaneId lane(std::string_view kind, std::size_t index) const;
  [[nodiscard]] std::shared_ptr<BufferState> create_buffer(std::size_t bytes);
  [[nodiscard]] std::shared_ptr<ChipBufferState> allocate_on(LaneId chip, std::size_t bytes);
  [[nodiscard]] std::shared_ptr<DomainState> create_domain(const DomainOptions& options);
  void release_domain(const std::shared_ptr<DomainState>& domain) noexcept;
  /// A function of Strata's own, added at its first use.
  [[nodiscard]] CallableId builtin(Builtin which);
  Run submit(Engine::OrchestrationFn orchestration, RunOptions options);
  Run run(const Engine::OrchestrationFn& orchestration, RunOptions options);
  void cancel_task(TaskId task);
  void replace(LaneId lane);
  [[nodiscard]] std::vector<ProcessStatus> processes();

  [[nodiscard]] Engine& engine() noexcept { return *engine_; }
  [[nodiscard]] SlabStore& slabs() noexcept { return *slabs_; }
  [[nodiscard]] ChipMemory& chip_memory() noexcept { return chip_memory_; }
  [[nodiscard]] const WorkerOptions& options() const noexcept { return options_; }
  /// "node/chip[0]"; a lane of this Worker.
  [[nodiscard]] const std::string& path_of(LaneId lane) const;
  [[nodiscard]] LogSink& log() noexcept { return log_; }

  // --- SupervisorClient ---
  void started() override;
  void start_failed(const WorkerFault& first) override;
  void stopped(const std::vector<WorkerFault>& problems) override;
  std::vector<Letter> greetings() override;
  std::optional<Registrations> registrations(std::size_t known) override;
  void child_up(std::size_t child, std::shared_ptr<ipc::MailboxParent> mailbox) override;
  void child_down(std::size_t child, const WorkerFault& cause, bool lost) override;
  void child_message(std::size_t child, ipc::Message& message) override;
  void completions() override;
  os::Deadline look_at_limits(std::size_t child, std::optional<std::string>& end) override;
  std::string task_in_hand(std::size_t child) override;

 private:
  enum class Life : std::uint8_t { closed, starting, running, stopping };

  void make_engine();
  void set_chips();
  [[nodiscard]] std::vector<LaneId> chip_lanes() const;
  [[nodiscard]] std::shared_ptr<DomainState> make_domain(
      const DomainOptions& options, const comm::WindowLayout& layout,
      const std::shared_ptr<CommunicatorState>& communicator);
  void allocate_domain(const std::shared_ptr<DomainState>& domain,
                       const comm::WindowLayout& layout);
  [[nodiscard]] std::vector<WorkerFault> leave_communicators(std::chrono::milliseconds limit);
  void forget_program(CallableId program);
  void start_janitor();
  void require_running(const char* caller) const;
  void keep(const Run& run, std::chrono::steady_clock::time_point deadline);
  void cancel_runs();
  [[nodiscard]] std::vector<WorkerFault> wait_for_runs(os::Deadline deadline);
  /// Begins to stop, unless that is under way. Returns the `ended_` that its end will change;
  /// nothing if it is closed.
  std::optional<std::uint64_t> begin_stop(std::chrono::milliseconds limit, bool by_cancel);
  [[nodiscard]] nlohmann::json describe();
  [[nodiscard]] std::string place_of(LaneId lane);
  [[nodiscard]] CallableId known_callable(const nlohmann::json& id) const;

  const WorkerOptions options_;
  const Placement placement_;
  const pid_t process_ = ::getpid();  ///< Where it was made.
  LogSink log_;
  os::UniqueFd tree_page_;  ///< At the root.
  std::unique_ptr<ipc::SpinnerBudget> budget_;
  std::shared_ptr<SlabStore> slabs_;  ///< Buffers that outlive the Worker keep it.
  SlabStore::Range heap_;
  ChipMemory chip_memory_;
  CallableRegistry callables_{[this](CallableId program) { forget_program(program); }};
  DomainTable domains_;
  Communicators communicators_;
  std::array<std::atomic<std::uint32_t>, kBuiltins> builtins_{};  ///< Their ids; 0 for none yet.
  TaskCheck task_check_{callables_, chip_memory_, domains_};
  EndpointContext shared_;
  const std::vector<ChildSpec> specs_;
  std::vector<std::shared_ptr<Endpoint>> endpoints_;  ///< By child.
  std::shared_ptr<WorkerProgress> progress_;
  std::unique_ptr<Engine> engine_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // --- Guarded by mutex_ ---
  Life life_ = Life::closed;
  std::uint64_t ended_ = 0;                 ///< How often life_ became `closed`.
  bool cancelled_ = false;                  ///< Since the last init().
  bool by_cancel_ = false;                  ///< By cancel() rather than by close().
  std::optional<WorkerFault> start_fault_;  ///< Why the last start failed.
  std::vector<WorkerFault> problems_;       ///< Of the last stop.
  std::optional<OpenProgram> program_;
  std::unique_ptr<Janitor> janitor_;  ///< At the root, while it is initialised.
  std::vector<Run> runs_;             ///< That may not have ended.

  std::mutex tasks_mutex_;
  std::set<TaskId> cancelled_tasks_;  ///< That are at no endpoint yet. Guarded by tasks_mutex_.

  /// By child: its process is being ended since its task did not stop. The supervisor's thread.
  std::vector<bool> overdue_;

  std::unique_ptr<Supervisor> supervisor_;  ///< Its thread uses all of the above.
  trace::StateBoard::Entry report_entry_;   ///< Asks for what is above.
  std::unique_ptr<Watchdog> watchdog_;      ///< Last: looks at what is above.
};

/// A buffer of a Worker; freed when the last task that uses it has ended.
struct BufferState {
  std::weak_ptr<WorkerState> owner;
  std::shared_ptr<SlabStore> memory;  ///< The range stays mapped as long as the buffer is there.
  SlabStore::Range range;
  BufferId id;
  std::atomic<bool> released{false};
};

/// Lets the parts of Strata make a Worker that is not at the root, and look inside one.
struct WorkerAccess {
  [[nodiscard]] static std::unique_ptr<Worker> make(WorkerOptions options, Placement placement);
  [[nodiscard]] static WorkerState& state(Worker& worker) noexcept;
};

}  // namespace strata::node
