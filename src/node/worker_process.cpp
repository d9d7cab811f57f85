#include "node/worker_process.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "base/fault_point.hpp"
#include "node/callable_loader.hpp"
#include "node/chip_task_runner.hpp"
#include "node/exception_fault.hpp"
#include "node/lifeline_thread.hpp"
#include "node/next_level.hpp"
#include "node/protocol.hpp"
#include "node/service_thread.hpp"
#include "node/task_loop.hpp"
#include "node/worker_shared.hpp"
#include "strata/error.hpp"
#include "trace/crash_handler.hpp"
#include "trace/recorder.hpp"
#include "trace/stack_board.hpp"
#include "trace/state_board.hpp"

namespace strata::node {
namespace {

using namespace std::chrono_literals;

/// Set before main by the one thread that there is, and by the main thread.
bool carried_token = false;
bool main_has_begun = false;

/// How long the last messages may take.
constexpr auto kLastWords = 1s;

/// Before everything but the C library. Costs the user's own process one look at the environment.
__attribute__((constructor(101))) void look_for_token() {
  if (std::getenv(kTokenVariable) == nullptr) return;
  carried_token = true;
  trace::early_crash_handler();  // It looks for the token too.
  unsetenv(kTokenVariable);
  // Programs that a task may start get none of these.
  syscall(SYS_close_range, kLifelineFd, kTreeFd, CLOSE_RANGE_CLOEXEC);
}

/// What the main thread of a worker process does, step by step.
class WorkerMain {
 public:
  [[noreturn]] void run();

 private:
  void attach();
  /// False if the process shall stop.
  [[nodiscard]] bool configure();
  void step(const std::string& text);
  [[nodiscard]] std::unique_ptr<TaskRunner> make_runner();
  void set_up();
  void serve();
  [[nodiscard]] WorkerFault current_fault();
  /// Tells the parent what is being handled. Returns the exit status.
  int fail();
  [[noreturn]] void end(int status);

  WorkerShared* shared_ = nullptr;  ///< Never destroyed: other threads use it to the end.
  ServiceThread* service_ = nullptr;
  const Configuration* configuration_ = nullptr;
  std::unique_ptr<TaskRunner> runner_;
  NextLevelRunner* next_level_ = nullptr;  ///< The same, where it is one.
  std::string step_ = "begin";             ///< What it did last.
  os::Deadline deadline_;                  ///< Of the start.
};

/// Not for errors of tasks: for those that leave nobody to tell.
[[noreturn]] void complain_and_exit(const std::string& text) {
  std::fprintf(stderr, "strata worker, pid %d: %s\n", getpid(), text.c_str());
  _exit(2);
}

void require_descriptors() {
  for (const int fd : {kLifelineFd, kControlFd}) {
    struct stat status = {};
    if (fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode)) continue;
    complain_and_exit(std::string("the environment variable ") + kTokenVariable +
                      " is set, but this process was not started by a Strata Worker; it is not"
                      " for use by hand");
  }
}

void WorkerMain::attach() {
  require_descriptors();
  trace::ProcessRecord* record = trace::early_crash_handler();
  if (record == nullptr) {
    record = new trace::ProcessRecord(trace::ProcessRecord::attach(os::UniqueFd(kRecordFd)));
  }
  trace::record_into(*record);
  trace::install_crash_handler(*record);
  record->set_state(trace::ProcessState::initialising);
  shared_ = new WorkerShared;
  shared_->record = record;
  shared_->messages = std::make_unique<WorkerMessages>(
      os::UniqueFd(kControlFd), [shared = shared_] { shared->service_event.signal(); });
  shared_->budget = std::make_unique<ipc::SpinnerBudget>(kTreeFd);
  shared_->mailbox =
      std::make_unique<ipc::MailboxWorker>(kMailboxFd, kCompletionFd, shared_->budget.get());
  // Nothing is blocked or ignored, so that programs which a task starts are as usual. SIGTERM means
  // stop; for the others the parent, which gets them too, decides.
  shared_->signals =
      std::make_unique<os::SignalEvents>(std::initializer_list<int>{SIGTERM, SIGINT, SIGHUP});
  trace::StateBoard::of_process().open();
  trace::StackBoard::of_process().open();
  start_lifeline_thread(*shared_);
  base::fault_point("worker.lifeline_started");
  shared_->messages->hello();
  service_ = &ServiceThread::start(*shared_);
}

void WorkerMain::step(const std::string& text) {
  step_ = text;
  shared_->record->set_step(text);
  shared_->messages->step(text);
}

bool WorkerMain::configure() {
  while (service_->configuration() == nullptr) {
    if (shared_->stopping() != Stop::none) return false;
    shared_->main_parker.park();
  }
  configuration_ = service_->configuration();
  deadline_ = os::Deadline::from_monotonic_ns(configuration_->deadline_ns);
  shared_->messages->set_identity(configuration_->path, configuration_->role);
  shared_->next_level.store(configuration_->next_level(), std::memory_order_release);
  base::set_fault_scope(configuration_->path);
  base::fault_point("worker.configured");
  return true;
}

std::unique_ptr<TaskRunner> WorkerMain::make_runner() {
  if (configuration_->next_level()) {
    auto runner = std::make_unique<NextLevelRunner>(*configuration_);
    next_level_ = runner.get();
    service_->listen(runner->listener());
    return runner;
  }
  service_->listen({});
  if (!configuration_->chip()) return std::make_unique<PlainRunner>();
  step("load platform " + configuration_->platform);
  base::fault_point("worker.load_platform");
  return std::make_unique<ChipTaskRunner>(*configuration_, *shared_);
}

void WorkerMain::set_up() {
  if (!configuration_->setup) return;
  CallableLoader loader([this](std::string_view text) { step(std::string(text)); });
  const LoadedCallable setup = loader.load(*configuration_->setup);
  step("setup " + configuration_->setup->to_string());
  base::fault_point("worker.setup");
  if (setup.code.function == nullptr) {
    throw InvalidArgument("the setup function '" + setup.name + "' is an orchestration");
  }
  WorkerTask::Services services;
  services.worker = shared_->messages->path();
  const auto cancelled = [](const void* shared) {
    return static_cast<const WorkerShared*>(shared)->stopping() != Stop::none;
  };
  const TaskContext context({}, {.task = {}, .name = "setup", .lane = {}}, cancelled, shared_);
  WorkerTask task(context, services);
  setup.code.function(task);
}

void WorkerMain::serve() {
  shared_->record->set_step("ready");  // The parent is told by the message that follows.
  shared_->record->set_state(trace::ProcessState::idle);
  base::fault_point("worker.ready.before");
  shared_->ready.store(true, std::memory_order_release);
  shared_->messages->ready();
  base::fault_point("worker.ready.after");
  TaskLoop(*shared_, *runner_).run();
}

WorkerFault WorkerMain::current_fault() {
  WorkerFault fault = shared_->messages->fault({});
  fault.state = shared_->ready.load(std::memory_order_relaxed) ? "ready" : "initialising";
  fault.step = step_;
  return fault_of(std::current_exception(), std::move(fault));
}

int WorkerMain::fail() {
  std::fflush(nullptr);
  shared_->messages->failed(current_fault(), os::Deadline::after(kLastWords));
  return 1;
}

void WorkerMain::end(int status) {
  shared_->record->set_state(trace::ProcessState::stopping);
  // From here on the lifeline thread ends the process if this takes long: stdio may be locked by a
  // thread of a task for ever, and static objects are not destroyed for the same reason.
  shared_->ending_since_ns.store(os::monotonic_now_ns(), std::memory_order_release);
  base::fault_point("worker.end");
  std::fflush(nullptr);
  shared_->messages->flush(os::Deadline::after(kLastWords));
  _exit(status);
}

void WorkerMain::run() {
  try {
    attach();
  } catch (const std::exception& error) {
    if (shared_ == nullptr || !shared_->messages) complain_and_exit(error.what());
    shared_->messages->failed(current_fault(), os::Deadline::after(kLastWords));
    complain_and_exit(error.what());
  }
  int status = 0;
  try {
    if (configure()) {
      runner_ = make_runner();
      set_up();
      if (next_level_ != nullptr && shared_->stopping() == Stop::none) {
        step("start workers");
        next_level_->init();
      }
      if (shared_->stopping() == Stop::none) serve();
    }
  } catch (const Cancelled&) {
    // A start that was called off has not failed.
    if (shared_->stopping() == Stop::none) status = fail();
  } catch (...) {
    status = fail();
  }
  try {
    if (next_level_ != nullptr) next_level_->close();
  } catch (...) {
    status = fail();
  }
  end(status);
}

}  // namespace

bool is_worker_process() noexcept { return carried_token; }

void refuse_in_worker_process() {
  if (!carried_token || main_has_begun) return;
  throw InvalidState(
      "this process was started as a worker process, but makes a Worker of its own before it has"
      " entered ProcessScope: construct strata::ProcessScope first of all in main, and no Worker in"
      " a static object");
}

void worker_process_main() {
  main_has_begun = true;
  WorkerMain().run();
}

}  // namespace strata::node
