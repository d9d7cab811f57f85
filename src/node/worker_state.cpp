#include "node/worker_state.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "ipc/control_channel.hpp"
#include "node/live_workers.hpp"
#include "node/own_record.hpp"
#include "node/protocol.hpp"
#include "node/this_program.hpp"
#include "node/worker_process.hpp"
#include "node/worker_progress.hpp"
#include "os/cgroup.hpp"
#include "os/spawn.hpp"
#include "strata/error.hpp"
#include "strata/platform.hpp"
#include "trace/recorder.hpp"

namespace strata::node {

namespace {

/// How long a start may take before the janitor is started beside it.
constexpr std::chrono::milliseconds kJanitorDelay{30};

/// How long init() that fails and close() wait for stderr to take the last lines, which a process
/// that ends at once would lose.
constexpr std::chrono::milliseconds kLogFlush{200};

/// How long close() waits for ranks to leave a vendor's communicators.
constexpr std::chrono::milliseconds kLeaveLimit{1000};

}  // namespace

WorkerState::WorkerState(WorkerOptions options, Placement placement)
    : options_(std::move(options)),
      placement_(std::move(placement)),
      log_({.level = options_.log_level, .marked = is_worker_process()}),
      communicators_(*this, comm::parse_backend(options_.communication)),
      specs_(child_specs(options_, placement_)) {
  refuse_in_worker_process();
  check_options(options_, options_.name);
  make_own_record(options_.name);
  if (placement_.tree_page < 0) {
    tree_page_ = ipc::SpinnerBudget::make(ipc::SpinnerBudget::default_limit());
  }
  const int tree_page = tree_page_ ? tree_page_.get() : placement_.tree_page;
  budget_ = std::make_unique<ipc::SpinnerBudget>(tree_page);
  slabs_ = std::make_shared<SlabStore>(SlabStore::Options{
      .first_number = placement_.first_slab,
      .numbers = placement_.own_slabs(),
      .added =
          [this](const SlabStore::Slab& slab) {
            if (supervisor_ == nullptr) return;
            supervisor_->broadcast(
                {.body = {{"type", "slab"}, {"slab", slab.slab}, {"bytes", slab.bytes}},
                 .descriptors = {slab.memory}});
          },
      .dropped =
          [this](std::uint32_t slab) {
            if (supervisor_ == nullptr) return;
            supervisor_->broadcast({.body = {{"type", "forget_slab"}, {"slab", slab}}});
          }});
  heap_ = slabs_->create(options_.heap, SlabStore::Populate::no);
  make_engine();
  supervisor_ = std::make_unique<Supervisor>(
      SupervisorOptions{.path = options_.name,
                        .children = specs_,
                        .start_time_limit = options_.start_time_limit,
                        .replace_dead_workers = options_.replace_dead_workers,
                        .tree_page = tree_page,
                        .budget = budget_.get(),
                        .log = &log_},
      *this);
  progress_->set_event(supervisor_->completion_event());
  report_entry_ = trace::StateBoard::of_process().add("worker", [this] { return describe(); });
  watchdog_ = std::make_unique<Watchdog>(
      options_.watchdog, Watchdog::Hooks{.path = options_.name,
                                         .log = &log_,
                                         .stats = [this] { return engine_->stats(); },
                                         .cancel_runs = [this] { cancel_runs(); }});
}

WorkerState::~WorkerState() {
  watchdog_.reset();
  report_entry_.remove();
  callables_
      .stop();  // Recordings that are left may keep programs; nobody is told of them any more.
}

void WorkerState::make_engine() {
  shared_.slabs = slabs_.get();
  shared_.cancel_grace = options_.cancel_grace;
  shared_.timers_changed = [this] { supervisor_->timers_changed(); };
  shared_.chip_memory = &chip_memory_;
  shared_.domains = &domains_;
  shared_.collective = &builtins_[static_cast<std::size_t>(Builtin::collective)];
  shared_.callables = &callables_;
  shared_.task_cancelled = [this](TaskId task) {
    const std::lock_guard lock(tasks_mutex_);
    return cancelled_tasks_.erase(task) != 0;
  };
  EngineOptions engine;
  engine.window = options_.window;
  engine.heap = options_.heap;
  engine.heap_memory = heap_.data;
  engine.max_open_runs = options_.max_open_runs;
  engine.window_setting = "WorkerOptions::window";
  engine.heap_setting = "WorkerOptions::heap";
  overdue_.resize(specs_.size());
  for (const ChildSpec& spec : specs_)
    endpoints_.push_back(std::make_shared<Endpoint>(spec.path, shared_));
  for (const std::string_view kind : kChildKinds) {
    KindOptions lanes{.name = std::string(kind), .depth = options_.depth};
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
      if (specs_[i].kind == kind) lanes.external.push_back(endpoints_[i]);
    }
    if (!lanes.external.empty()) engine.kinds.push_back(std::move(lanes));
  }
  progress_ = std::make_shared<WorkerProgress>(endpoints_, *budget_);
  engine.progress = progress_;
  engine.check_task = [this](TaskSpec& task) { task_check_.check(task); };
  engine_ = std::make_unique<Engine>(std::move(engine));
  shared_.engine = engine_.get();
  for (const std::string_view kind : kChildKinds) {
    std::size_t next = 0;
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
      if (specs_[i].kind != kind) continue;
      const LaneId lane = engine_->lanes(engine_->kind(kind))[next];
      endpoints_[i]->set_lane(lane);
      if (kind == "chip") endpoints_[i]->set_run_limit(options_.chips[next].run.time_limit);
      ++next;
      engine_->suspend_lane(lane);  // Until a process is there.
    }
  }
  set_chips();
}

/// Says which lanes are chips, once the engine has given them out.
void WorkerState::set_chips() {
  if (options_.chips.empty()) return;
  const KindId kind = engine_->kind("chip");
  std::vector<bool> is_chip(endpoints_.size(), false);
  std::vector<ChipMemory::Chip> chips;
  const std::vector<LaneId> lanes = engine_->lanes(kind);
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Platform platform = Platform::parse(options_.chips[i].platform);
    is_chip[lanes[i].value] = true;
    chips.push_back({.lane = lanes[i],
                     .path = options_.name + "/chip[" + std::to_string(i) + "]",
                     .platform = platform.name,
                     .total = platform.memory});
  }
  task_check_.set_chips(std::move(is_chip), kind.value);
  chip_memory_.set_chips(std::move(chips));
}

// ---- Life ---------------------------------------------------------------------------------------

void WorkerState::init() {
  throw_if_signalled("Worker::init");
  StartPlan plan;
  plan.deadline = os::Deadline::after(options_.start_time_limit);
  if (placement_.start_deadline < plan.deadline) {
    plan.deadline = placement_.start_deadline;
  } else {
    plan.limit = options_.start_time_limit;
  }
  if (runs_this_program(options_)) {
    if (this_program() == nullptr) {
      throw InvalidState(
          "Worker::init: " + options_.name +
          " has workers that run this_program, but no ProcessScope was constructed: make it the "
          "first thing in main()");
    }
    check_program_functions();
  }
  const bool small_program = std::any_of(specs_.begin(), specs_.end(), [](const ChildSpec& spec) {
    return spec.program == WorkerProgram::strata_worker;
  });
  plan.environment = os::current_environment();
  if (tree_page_) os::Cgroup::sweep_stale(kGroupPrefix);
  std::optional<OpenProgram> found;
  if (small_program) found = find_worker_program(options_.worker_program);
  std::unique_lock lock(mutex_);
  if (life_ != Life::closed) {
    throw InvalidState("Worker::init: " + options_.name +
                       " is initialised, or being initialised or closed; close() it first");
  }
  throw_if_signalled("Worker::init");  // A signal that came later finds it starting.
  if (found) program_ = std::move(found);
  if (program_) {
    plan.worker_program = program_->file.get();
    plan.worker_program_path = program_->path;
  }
  for (const auto& endpoint : endpoints_)
    endpoint->open();
  // With the lock held, so that no stop of another thread comes before this start.
  supervisor_->start(std::move(plan));
  life_ = Life::starting;
  cancelled_ = false;
  start_fault_.reset();
  problems_.clear();
  const std::uint64_t before = ended_;
  const auto over = [&] { return life_ == Life::running || ended_ != before; };
  // The janitor's start shall not hold up that of the workers, unless that takes long.
  const bool quick = changed_.wait_for(lock, kJanitorDelay, over);
  if (ended_ == before) start_janitor();
  if (!quick) changed_.wait(lock, over);
  if (ended_ == before) return;
  const std::optional<WorkerFault> fault = cancelled_ ? std::nullopt : start_fault_;
  lock.unlock();
  (void)log_.flush(os::Deadline::after(kLogFlush));
  if (fault) throw StartFailed(fault->to_string(), *fault);
  throw Cancelled("Worker::init: the start of " + options_.name + " was cancelled");
}

/// Has one started; nobody waits for it. mutex_ is held.
void WorkerState::start_janitor() {
  if (!tree_page_ || !program_) return;
  supervisor_->post([this, program = program_->file.get()] {
    std::unique_ptr<Janitor> janitor = Janitor::start(program);
    const std::lock_guard guard(mutex_);
    if (life_ != Life::closed) janitor_ = std::move(janitor);
  });
}

void WorkerState::started() {
  {
    const std::lock_guard lock(mutex_);
    if (life_ == Life::starting) life_ = Life::running;
  }
  changed_.notify_all();
}

void WorkerState::start_failed(const WorkerFault& first) {
  for (const auto& endpoint : endpoints_)
    endpoint->close();
  std::unique_ptr<Janitor> janitor;
  {
    const std::lock_guard lock(mutex_);
    janitor = std::move(janitor_);
    start_fault_ = first;
    // If somebody closes it meanwhile, stopped() comes too.
    if (life_ == Life::starting) {
      life_ = Life::closed;
      ++ended_;
    }
  }
  changed_.notify_all();
}

std::optional<std::uint64_t> WorkerState::begin_stop(std::chrono::milliseconds limit,
                                                     bool by_cancel) {
  std::uint64_t before = 0;
  {
    const std::lock_guard lock(mutex_);
    if (life_ == Life::closed) return std::nullopt;
    before = ended_;
    if (std::exchange(life_, Life::stopping) == Life::stopping) {
      supervisor_->hasten(limit);
      return before;
    }
    cancelled_ = true;
    by_cancel_ = by_cancel;
  }
  cancel_runs();
  for (const auto& endpoint : endpoints_)
    endpoint->close();
  supervisor_->stop(limit);
  return before;
}

void WorkerState::stopped(const std::vector<WorkerFault>& problems) {
  std::unique_ptr<Janitor> janitor;
  {
    const std::lock_guard lock(mutex_);
    janitor = std::move(janitor_);
  }
  janitor.reset();  // All groups are gone.
  {
    const std::lock_guard lock(mutex_);
    if (life_ != Life::stopping) return;
    life_ = Life::closed;
    ++ended_;
    problems_ = problems;
  }
  changed_.notify_all();
}

void WorkerState::close(std::chrono::milliseconds limit) {
  const os::Deadline deadline = os::Deadline::after(limit + std::chrono::milliseconds(500));
  std::vector<WorkerFault> left = leave_communicators(limit);
  std::vector<WorkerFault> problems;
  const std::optional<std::uint64_t> before = begin_stop(limit, false);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !before || ended_ != *before; });
    problems = std::exchange(problems_, {});
  }
  std::move(left.begin(), left.end(), std::back_inserter(problems));
  // A Worker that was cancelled may be closed already, with runs that still wind down.
  for (WorkerFault& fault : wait_for_runs(deadline))
    problems.push_back(std::move(fault));
  // What the workers wrote last is out when this returns: the process may end at once.
  (void)log_.flush(os::Deadline::after(kLogFlush));
  if (problems.empty()) return;
  std::string text = "Worker::close: " + options_.name + " is closed, but not all ended well";
  for (const WorkerFault& fault : problems)
    text += "\n" + fault.to_string();
  throw CloseFailed(text, std::move(problems));
}

/// Where a vendor's library keeps more than a process, its ranks leave before they end. Runs that
/// go on are cancelled, as close() would.
std::vector<WorkerFault> WorkerState::leave_communicators(std::chrono::milliseconds limit) {
  if (!communicators_.leaves_something() || !initialised()) return {};
  cancel_runs();
  return communicators_.destroy_all(std::min(limit / 2, kLeaveLimit));
}

void WorkerState::cancel() noexcept { (void)begin_stop(options_.close_time_limit, true); }

bool WorkerState::initialised() const noexcept {
  const std::lock_guard lock(mutex_);
  return life_ == Life::running;
}

// ---- Runs ---------------------------------------------------------------------------------------

void WorkerState::require_running(const char* caller) const {
  throw_if_signalled(caller);
  const std::lock_guard lock(mutex_);
  if (life_ == Life::running) return;
  if (cancelled_ && (life_ == Life::stopping || by_cancel_)) {
    throw Cancelled(std::string(caller) + ": " + options_.name + " was cancelled or is closing");
  }
  throw InvalidState(std::string(caller) + ": " + options_.name +
                     " has no worker processes; call init() first");
}

/// Remembers a run, so that closing can cancel it.
void WorkerState::keep(const Run& run, std::chrono::steady_clock::time_point deadline) {
  watchdog_->run_opened(run, deadline);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(runs_, [](const Run& each) { return each.done(); });
    runs_.push_back(run);
    if (life_ == Life::running) return;
  }
  run.cancel();
}

void WorkerState::cancel_runs() {
  std::vector<Run> runs;
  {
    const std::lock_guard lock(mutex_);
    runs = runs_;
  }
  for (const Run& run : runs)
    run.cancel();
}

std::vector<WorkerFault> WorkerState::wait_for_runs(os::Deadline deadline) {
  std::vector<Run> runs;
  {
    const std::lock_guard lock(mutex_);
    runs.swap(runs_);
  }
  std::vector<WorkerFault> problems;
  for (const Run& run : runs) {
    if (run.wait_until(deadline.time_point())) continue;
    problems.push_back(
        {.path = options_.name,
         .role = "node",
         .state = "closed",
         .cause = "the orchestration of " + run.name() + " was cancelled and has not returned"});
    const std::lock_guard lock(mutex_);
    runs_.push_back(run);
  }
  return problems;
}

Run WorkerState::submit(Engine::OrchestrationFn orchestration, RunOptions options) {
  require_running("Worker::submit");
  // Kept before its first task, which a close might refuse, and before the caller can close; by
  // whichever thread comes first.
  const auto kept = std::make_shared<std::once_flag>();
  const auto deadline = options.deadline;
  Run run = engine_->submit(
      [this, kept, deadline, orchestration = std::move(orchestration)](Orchestration& inner) {
        std::call_once(*kept, [&] { keep(inner.run(), deadline); });
        orchestration(inner);
      },
      std::move(options));
  std::call_once(*kept, [&] { keep(run, deadline); });
  return run;
}

Run WorkerState::run(const Engine::OrchestrationFn& orchestration, RunOptions options) {
  require_running("Worker::run");
  const auto deadline = options.deadline;
  return engine_->run(
      [&](Orchestration& run) {
        keep(run.run(), deadline);
        orchestration(run);
      },
      std::move(options));
}

void WorkerState::cancel_task(TaskId task) {
  // Noted first: a dispatch that is under way meanwhile looks here, or is found below.
  {
    const std::lock_guard lock(tasks_mutex_);
    cancelled_tasks_.insert(task);
    // Ids only grow; those of tasks that ended long ago need no place here.
    while (cancelled_tasks_.size() > options_.window)
      cancelled_tasks_.erase(cancelled_tasks_.begin());
  }
  shared_.any_task_cancelled.store(true, std::memory_order_seq_cst);
  bool found = false;
  for (const auto& endpoint : endpoints_)
    found = endpoint->cancel_task(task) || found;
  if (!found) return;
  const std::lock_guard lock(tasks_mutex_);
  cancelled_tasks_.erase(task);
}

// ---- What tasks use -----------------------------------------------------------------------------

CallableId WorkerState::add(const Callable& callable) {
  const CallableRegistry::Added added = callables_.add(callable);
  if (!added.is_new) return added.id;
  supervisor_->registrations_changed();
  return added.id;
}

/// A removed program that no task uses any more.
void WorkerState::forget_program(CallableId program) {
  supervisor_->broadcast({.body = {{"type", "forget_callable"}, {"id", program.value}}});
}

std::vector<Letter> WorkerState::greetings() {
  std::vector<Letter> letters;
  for (const SlabStore::Slab& slab : slabs_->slabs()) {
    letters.push_back({.body = {{"type", "slab"}, {"slab", slab.slab}, {"bytes", slab.bytes}},
                       .descriptors = {slab.memory}});
  }
  return letters;
}

std::optional<SupervisorClient::Registrations> WorkerState::registrations(std::size_t known) {
  CallableRegistry::Batch batch = callables_.batch(known);
  if (batch.known == known) return std::nullopt;
  return Registrations{
      .letter = {.body = {{"type", "register"}, {"callables", std::move(batch.entries)}}},
      .known = batch.known};
}

std::shared_ptr<BufferState> WorkerState::create_buffer(std::size_t bytes) {
  auto buffer = std::make_shared<BufferState>();
  buffer->range = slabs_->create(bytes);
  buffer->memory = slabs_;
  buffer->id = engine_->add_buffer(buffer->range.data, bytes);
  return buffer;
}

std::shared_ptr<ChipBufferState> WorkerState::allocate_on(LaneId chip, std::size_t bytes) {
  require_running("Worker::allocate_on");
  auto buffer = std::make_shared<ChipBufferState>();
  buffer->place = chip_memory_.reserve(chip, bytes);
  try {
    buffer->range = slabs_->create(bytes);
  } catch (...) {
    chip_memory_.give_back(buffer->place);
    throw;
  }
  buffer->place.data = buffer->range.data;
  buffer->memory = slabs_;
  buffer->chip = chip;
  // No address: what is on a chip is reached through copies and tasks alone.
  buffer->id = engine_->add_buffer(nullptr, bytes);
  chip_memory_.add(buffer->id, buffer->place);
  return buffer;
}

CallableId WorkerState::builtin(Builtin which) {
  std::atomic<std::uint32_t>& known = builtins_.at(static_cast<std::size_t>(which));
  // Relaxed: it says all there is to say by itself; who comes second adds the same one again.
  if (const std::uint32_t id = known.load(std::memory_order_relaxed); id != 0) return {id};
  const CallableId id = add(callable_of(which));
  known.store(id.value, std::memory_order_relaxed);
  return id;
}

const std::string& WorkerState::path_of(LaneId lane) const {
  const auto found = std::find_if(endpoints_.begin(), endpoints_.end(),
                                  [&](const auto& each) { return each->lane() == lane; });
  return specs_[static_cast<std::size_t>(found - endpoints_.begin())].path;
}

std::vector<LaneId> WorkerState::chip_lanes() const {
  if (options_.chips.empty()) return {};
  return engine_->lanes(engine_->kind("chip"));
}

KindId WorkerState::kind(std::string_view name) const {
  if (std::none_of(specs_.begin(), specs_.end(),
                   [&](const ChildSpec& spec) { return spec.kind == name; })) {
    throw InvalidArgument("Worker: " + options_.name + " has no " + std::string(name) + " workers");
  }
  return engine_->kind(name);
}

LaneId WorkerState::lane(std::string_view name, std::size_t index) const {
  const std::vector<LaneId> lanes = engine_->lanes(kind(name));
  if (index >= lanes.size()) {
    throw InvalidArgument("Worker: " + options_.name + " has no " + std::string(name) + "[" +
                          std::to_string(index) + "]: there are " + std::to_string(lanes.size()));
  }
  return lanes[index];
}

void WorkerState::replace(LaneId lane) {
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    if (endpoints_[i]->lane() == lane) {
      // Tasks for it wait for the new process from now on.
      endpoints_[i]->revive();
      engine_->fail_kind(engine_->kind(specs_[i].kind), nullptr);
      supervisor_->replace(i, "was ended on request (Worker::replace)");
      return;
    }
  }
  throw InvalidArgument("Worker::replace: there is no lane " + std::to_string(lane.value));
}

std::vector<ProcessStatus> WorkerState::processes() {
  std::vector<ProcessStatus> all = supervisor_->processes();
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].lane = endpoints_[i]->lane();
    all[i].task = endpoints_[i]->task_in_hand();
    if (!all[i].task.empty()) all[i].step = "running " + all[i].task;
  }
  return all;
}

/// For reports from outside.
nlohmann::json WorkerState::describe() {
  nlohmann::json children = nlohmann::json::array();
  const std::vector<ProcessStatus> all = supervisor_->processes();
  for (std::size_t i = 0; i < all.size(); ++i) {
    nlohmann::json child = endpoints_[i]->describe();
    child["path"] = all[i].path;
    child["pid"] = all[i].pid;
    child["state"] = all[i].state;
    child["incarnation"] = all[i].incarnation;
    children.push_back(std::move(child));
  }
  return {{"path", options_.name}, {"children", std::move(children)}, {"waits", domains_.waits()}};
}

// ---- Access -------------------------------------------------------------------------------------

std::unique_ptr<Worker> WorkerAccess::make(WorkerOptions options, Placement placement) {
  return std::unique_ptr<Worker>(
      new Worker(Worker::FromState{},
                 std::make_shared<WorkerState>(std::move(options), std::move(placement))));
}

WorkerState& WorkerAccess::state(Worker& worker) noexcept { return *worker.state_; }

}  // namespace strata::node
