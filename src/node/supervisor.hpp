// Supervisor: one thread that drives the life of every worker process of a Worker.
//
// It makes the processes, hears what they say, knows when they die, and ends them. What it does in
// which state is the table in child_machine.hpp; what becomes of tasks is its client's affair.
// Everything that can happen is in one epoll set: the ends of processes (pidfds), their control
// channels and log pipes, the completion event of the mailboxes, commands of other threads, and the
// time.
//
// Thread safety: commands may be given from any thread. The client is called from the supervisor's
// thread alone, with no lock held.
//
// Invariants
//   (1) Only the supervisor's thread makes, signals or waits for a worker process; it lives as long
//       as any of them (their PDEATHSIG is tied to it).
//   (2) After start() exactly one of started, start_failed and stopped is called; after stop(),
//       stopped, once every process has been waited for or handed to the reaper.
//   (3) For each process that start() or a replacement asks for, child_down is called once: when it
//   is
//       gone, or could not be made. child_up is called at most once, before that.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "node/child_machine.hpp"
#include "node/child_specs.hpp"
#include "node/log_sink.hpp"
#include "os/cgroup.hpp"
#include "os/deadline.hpp"
#include "os/epoll.hpp"
#include "os/event_fd.hpp"
#include "strata/worker.hpp"
#include "strata/worker_error.hpp"

namespace strata::ipc {
class MailboxParent;
class Message;
class SpinnerBudget;
}  // namespace strata::ipc

namespace strata::trace {
class ProcessRecord;
}  // namespace strata::trace

namespace strata::node {

struct Child;
struct ChildResources;

/// A message for a worker, with the descriptors that go with it (not owned).
struct Letter {
  nlohmann::json body;
  std::vector<int> descriptors = {};
};

/// What the supervisor's owner wants to know. Calls must not block.
class SupervisorClient {
 public:
  virtual ~SupervisorClient() = default;
  virtual void started() = 0;
  /// All processes have been ended again.
  virtual void start_failed(const WorkerFault& first) = 0;
  /// `problems`: what had to be ended by force while it ran a task, or could not be ended.
  virtual void stopped(const std::vector<WorkerFault>& problems) = 0;

  /// What a new process is sent after its configuration.
  virtual std::vector<Letter> greetings() = 0;
  /// The next callables for a process that was sent the first `known` of them, a bounded number;
  /// how many it has been sent then.
  struct Registrations {
    Letter letter;
    std::size_t known = 0;
  };
  virtual std::optional<Registrations> registrations(std::size_t /*known*/) { return {}; }
  virtual void child_up(std::size_t child, std::shared_ptr<ipc::MailboxParent> mailbox) = 0;
  virtual void child_down(std::size_t child, const WorkerFault& cause, bool lost) = 0;
  /// A message that is not about the life of the process. Throws if it makes no sense.
  virtual void child_message(std::size_t child, ipc::Message& message) = 0;
  /// Some mailbox has completions, perhaps.
  virtual void completions() = 0;
  /// When to ask again; the reason why the process must be ended, if it must.
  virtual os::Deadline look_at_limits(std::size_t child, std::optional<std::string>& end) = 0;
  /// Of the task in hand, or empty.
  virtual std::string task_in_hand(std::size_t child) = 0;
};

struct SupervisorOptions {
  std::string path = "node";
  std::vector<ChildSpec> children = {};
  std::chrono::milliseconds start_time_limit{60'000};  ///< Of a replacement.
  bool replace_dead_workers = true;
  int tree_page = -1;  ///< Of the spinner budget; not owned.
  ipc::SpinnerBudget* budget = nullptr;
  LogSink* log = nullptr;
};

/// What processes are made of at one start.
struct StartPlan {
  os::Deadline deadline;
  std::chrono::milliseconds limit{0};  ///< Of the deadline, for messages; 0: it is not ours.
  std::vector<std::string> environment = {};
  int worker_program = -1;  ///< O_PATH, not owned; outlives the run of the Worker.
  std::string worker_program_path = {};
};

class Supervisor {
 public:
  Supervisor(SupervisorOptions options, SupervisorClient& client);
  /// Requires that every process is gone: after stopped().
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // --- Commands ---
  void start(StartPlan plan);
  /// Ends all processes: asks, then insists, then kills, so that all is over at about `limit` from
  /// now and a process that can't be ended is given up soon after.
  void stop(std::chrono::milliseconds limit);
  /// Less time than the stop that is under way, or that is about to be asked for, was given.
  void hasten(std::chrono::milliseconds limit);
  void replace(std::size_t child, std::string reason);
  void broadcast(Letter letter);
  /// There are more registrations for the processes.
  void registrations_changed();
  /// Limits have changed: look at them again.
  void timers_changed() noexcept;
  /// Runs something on the supervisor's thread.
  void post(std::function<void()> command);

  /// The eventfd that workers write to when completions are there.
  [[nodiscard]] const os::EventFd& completion_event() const noexcept { return completion_event_; }
  [[nodiscard]] std::vector<ProcessStatus> processes() const;

 private:
  enum class Phase : std::uint8_t { closed, starting, running, rolling_back, stopping };
  struct StopPlan {
    os::Deadline ask, term;
    std::chrono::milliseconds limit{0};
  };

  void main();
  void turn();
  void run_commands();
  void handle(const epoll_event& event);
  void read_control(Child& child);
  void hear(Child& child, ipc::Message& message);
  bool read_exit(Child& child);
  void check_timers();
  [[nodiscard]] os::Deadline next_timer() const;

  void apply(Child& child, ChildEvent event);
  void act(Child& child, ChildAction action, ChildState from);
  void set_timer(Child& child);
  void spawn(Child& child);
  void make_process(Child& child);
  void greet(Child& child);
  void send(Child& child, const Letter& letter);
  void register_more(Child& child);
  void blame(Child& child, ChildEvent event, ChildState state);
  void announce(Child& child);
  void bury(Child& child, ChildState from);
  void abandon(Child& child);
  void stop_watching(Child& child);
  void keep_record(ChildResources& of_process);
  void settle(Child& child, WorkerFault fault, bool gone_well);
  [[nodiscard]] std::string late_text(const Child& child) const;
  [[nodiscard]] WorkerFault fault_of(Child& child, ChildState from);
  [[nodiscard]] static ErrorCode code_of_death(const Child& child, ChildState from, bool crashed);
  void begin_stop(std::chrono::milliseconds limit);
  void check_all_gone();
  void remove_groups();
  void log_error(const char* doing, const std::string& what);
  void publish(const Child& child);
  void log(LogLevel level, const std::string& path, const std::string& text);

  const SupervisorOptions options_;
  SupervisorClient& client_;
  os::EventFd completion_event_ = os::EventFd::make();
  os::EventFd wake_ = os::EventFd::make();

  // --- The supervisor's thread only ---
  os::Epoll epoll_;
  std::vector<std::unique_ptr<Child>> children_;
  Phase phase_ = Phase::closed;
  StartPlan plan_;
  StopPlan stop_plan_;
  std::optional<std::chrono::milliseconds> hurry_;  ///< A hasten() that came before its stop().
  std::optional<WorkerFault> first_fault_;
  std::vector<WorkerFault> problems_;
  std::vector<os::Cgroup> old_groups_;  ///< Of buried processes, where something may be left.
  /// Of the processes that were buried last: reports find them among our descriptors.
  std::vector<trace::ProcessRecord> dead_;
  bool quit_ = false;

  /// A command for registrations is posted and has not run. Sequentially consistent, against the
  /// callables' lock: who finds it set has added its callable before the command looks.
  std::atomic<bool> registrations_posted_{false};

  mutable std::mutex mutex_;
  // --- Guarded by mutex_ ---
  std::vector<std::function<void()>> commands_;
  std::vector<ProcessStatus> status_;

  std::thread thread_;  ///< Last: uses all of the above.
};

}  // namespace strata::node
