// Runs, their threads, waiting and deadlines.

#include "graph/engine_state.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/planted_fault.hpp"
#include "os/cpu.hpp"

namespace strata::graph {

namespace {

/// The orchestration that this thread is running, to tell a submit that would wait for itself.
thread_local OrchestrationState* current_orchestration = nullptr;

EngineOptions checked(EngineOptions options) {
  if (options.kinds.empty()) {
    const auto cpus = static_cast<unsigned>(os::allowed_cpus());
    options.kinds.push_back({.name = "cpu", .threads = cpus - 1, .callers = 1});
  }
  if (options.window == 0 || options.window > TaskWindow::kMaxCapacity) {
    throw InvalidArgument(options.window_setting + " is " + std::to_string(options.window) +
                          "; it must be between 1 and " + std::to_string(TaskWindow::kMaxCapacity));
  }
  if (options.heap < Heap::kAlignment) {
    throw InvalidArgument(options.heap_setting + " is " + std::to_string(options.heap) +
                          " bytes; it must be at least " + std::to_string(Heap::kAlignment));
  }
  if (reinterpret_cast<std::uintptr_t>(options.heap_memory) % Heap::kAlignment != 0) {
    throw InvalidArgument("EngineOptions::heap_memory is not at a multiple of " +
                          std::to_string(Heap::kAlignment) + " bytes");
  }
  if (options.max_open_runs == 0) {
    throw InvalidArgument("EngineOptions::max_open_runs is 0: no run could ever start");
  }
  for (std::size_t i = 0; i < options.kinds.size(); ++i) {
    const KindOptions& kind = options.kinds[i];
    const std::string at = "EngineOptions::kinds[" + std::to_string(i) + "] '" + kind.name + "'";
    const bool own = kind.threads != 0 || kind.callers != 0;
    if (own == !kind.external.empty()) {
      throw InvalidArgument(at + " must have either thread and caller lanes or external lanes" +
                            (own ? ", not both" : "; it has none"));
    }
    if (kind.callers > 1) {
      throw InvalidArgument(at + " asks for " + std::to_string(kind.callers) +
                            " caller lanes; at most one is driven by the threads that wait");
    }
    if (kind.depth == 0) throw InvalidArgument(at + " has depth 0: its lanes could hold no task");
    for (const auto& lane : kind.external) {
      if (lane == nullptr) throw InvalidArgument(at + " has a null external lane");
    }
    for (std::size_t k = 0; k < i; ++k) {
      if (options.kinds[k].name == kind.name)
        throw InvalidArgument(at + ": the name is used twice");
    }
  }
  return options;
}

}  // namespace

// ---- OrchestrationState -------------------------------------------------------------------------

OrchestrationState::OrchestrationState(EngineState& its_engine, std::shared_ptr<RunState> its_run)
    : engine(its_engine), run(std::move(its_run)), thread(std::this_thread::get_id()) {
  open_scope("root", false);
}

OrchestrationState::~OrchestrationState() { close_scopes_to(0); }

void OrchestrationState::open_scope(std::string_view name, bool manual) {
  auto scope = std::make_unique<ScopeState>();
  const std::string own =
      name.empty() ? "scope " + std::to_string(scopes.size()) : std::string(name);
  scope->path = scopes.empty() ? own : scopes.back()->path + "/" + own;
  scope->manual = manual || (!scopes.empty() && scopes.back()->manual);
  scope->owner = this;
  scopes.push_back(std::move(scope));
}

void OrchestrationState::close_scopes_to(std::size_t depth) {
  bool freed = false;
  while (scopes.size() > depth) {
    freed = engine.storage.end_scope(*scopes.back()) || freed;
    scopes.pop_back();
  }
  if (freed) engine.room_changed();
}

// ---- Life of the engine -------------------------------------------------------------------------

EngineState::EngineState(EngineOptions engine_options)
    : options(checked(std::move(engine_options))),
      window(options.window),
      storage(options.heap, options.heap_memory, options.heap_setting),
      scheduler(*this, options.kinds, options.window) {
  handles->engine = this;
  kind_count = scheduler.kinds().size();
  lane_count = scheduler.lanes().size();
  report_entry = trace::StateBoard::of_process().add("engine", [this] { return describe(); });
}

EngineState::~EngineState() {
  report_entry.remove();
  {
    std::unique_lock lock(runs_mutex);
    closing_ = true;
    jobs_changed_.notify_all();
    deadlines_changed_.notify_all();
  }
  // Orchestration threads end when no job is left and the run of each has ended.
  for (std::thread& thread : orchestration_threads_)
    thread.join();
  if (deadline_thread_.joinable()) deadline_thread_.join();
  for (const auto& weak : runs_) {
    if (const auto run = weak.lock()) {
      const std::lock_guard lock(run->mutex);
      run->engine = nullptr;
    }
  }
  {
    const std::lock_guard lock(handles->mutex);
    handles->engine = nullptr;
  }
  // All runs have ended, so whoever waits is on the way out.
  while (presence.any_guest())
    std::this_thread::yield();
  scheduler.stop();
  window.for_each_slot([](TaskNode& task) { release_binding(task); });
}

// ---- Runs ---------------------------------------------------------------------------------------

/// Takes a place among the open runs.
void EngineState::open_place(const char* caller) {
  const auto take = [this] {
    const std::lock_guard lock(runs_mutex);
    if (open_runs_ >= options.max_open_runs) return false;
    ++open_runs_;
    return true;
  };
  if (take()) return;
  if (current_orchestration != nullptr && &current_orchestration->engine == this) {
    throw InvalidState(std::string(caller) + ": called from the orchestration of " +
                       current_orchestration->run->name + " while " +
                       std::to_string(options.max_open_runs) +
                       " runs are open: it would wait for itself; raise "
                       "EngineOptions::max_open_runs");
  }
  os::Parker& parker = thread_parker();
  {
    const std::lock_guard lock(runs_mutex);
    place_waiters_.push_back(&parker);
  }
  wait_until(take, std::chrono::steady_clock::time_point::max());
  const std::lock_guard lock(runs_mutex);
  std::erase(place_waiters_, &parker);
}

/// Opens a run. Takes a place first.
std::shared_ptr<RunState> EngineState::open_run(const char* caller, RunOptions run_options) {
  open_place(caller);
  {
    // What failed in runs that nobody can ask about any more is forgotten.
    const std::lock_guard lock(graph_mutex);
    std::erase_if(failures, [](const auto& known) { return known.second->run.expired(); });
  }
  const std::lock_guard lock(runs_mutex);
  auto run = std::make_shared<RunState>(this, next_run_++, std::move(run_options));
  std::erase_if(runs_, [](const auto& weak) { return weak.expired(); });
  runs_.push_back(run);
  return run;
}

std::shared_ptr<RunState> EngineState::submit_run(Engine::OrchestrationFn orchestration,
                                                  RunOptions run_options) {
  std::shared_ptr<RunState> run = open_run("Engine::submit", std::move(run_options));
  {
    const std::lock_guard lock(runs_mutex);
    jobs_.push_back({run, std::move(orchestration)});
    if (idle_threads_ < jobs_.size()) {
      orchestration_threads_.emplace_back([this] { orchestration_main(); });
    } else {
      jobs_changed_.notify_one();
    }
  }
  watch_deadline(run);
  return run;
}

std::shared_ptr<RunState> EngineState::run_here(const Engine::OrchestrationFn& orchestration,
                                                RunOptions run_options) {
  std::shared_ptr<RunState> run = open_run("Engine::run", std::move(run_options));
  watch_deadline(run);
  run_orchestration(run, orchestration);
  return run;
}

void EngineState::orchestration_main() {
  std::unique_lock lock(runs_mutex);
  for (;;) {
    if (!jobs_.empty()) {
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      run_orchestration(job.run, job.orchestration);
      lock.lock();
      continue;
    }
    if (closing_) return;
    ++idle_threads_;
    jobs_changed_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
    --idle_threads_;
  }
}

void EngineState::run_orchestration(const std::shared_ptr<RunState>& run,
                                    const Engine::OrchestrationFn& orchestration) {
  if (run->options.keep_graph) {
    const std::lock_guard lock(graph_mutex);
    tracker.hold_entries(true);
  }
  std::exception_ptr error;
  {
    OrchestrationState state(*this, run);
    OrchestrationState* const outer = std::exchange(current_orchestration, &state);
    state.outer = outer;
    try {
      Orchestration handle(state);
      orchestration(handle);
    } catch (...) {
      error = std::current_exception();
    }
    current_orchestration = outer;
    state.close_scopes_to(0);
  }
  run->close(std::move(error));
  (void)wait_for_end(*run, std::chrono::steady_clock::time_point::max());
  if (run->options.keep_graph) {
    const std::lock_guard lock(graph_mutex);
    tracker.hold_entries(false);
  }
  const std::lock_guard lock(runs_mutex);
  --open_runs_;
  if (std::erase(deadlines_, run) != 0) deadlines_changed_.notify_all();
  for (os::Parker* waiter : place_waiters_)
    waiter->unpark();
}

// ---- Deadlines ----------------------------------------------------------------------------------

void EngineState::watch_deadline(const std::shared_ptr<RunState>& run) {
  if (run->options.deadline == std::chrono::steady_clock::time_point::max()) return;
  const std::lock_guard lock(runs_mutex);
  if (run->done()) return;
  deadlines_.push_back(run);
  if (!deadline_thread_.joinable()) deadline_thread_ = std::thread([this] { deadline_main(); });
  deadlines_changed_.notify_all();
}

void EngineState::deadline_main() {
  std::unique_lock lock(runs_mutex);
  while (!(closing_ && open_runs_ == 0)) {
    if (deadlines_.empty()) {
      if (closing_) return;
      deadlines_changed_.wait(lock);
      continue;
    }
    const auto first = *std::min_element(
        deadlines_.begin(), deadlines_.end(),
        [](const auto& a, const auto& b) { return a->options.deadline < b->options.deadline; });
    if (std::chrono::steady_clock::now() < first->options.deadline) {
      deadlines_changed_.wait_until(lock, first->options.deadline);
      continue;
    }
    std::erase(deadlines_, first);
    lock.unlock();
    cancel(*first, RunState::Ending::deadline);
    lock.lock();
  }
}

void EngineState::cancel(RunState& run, RunState::Ending why) {
  if (!run.cancel(why)) return;
  const auto guest = visit(run);
  if (!guest) return;
  guest->engine().wake_blocked();
  guest->engine().drop_cancelled();
}

// ---- Waiting ------------------------------------------------------------------------------------

bool EngineState::wait_until(const std::function<bool()>& ready,
                             std::chrono::steady_clock::time_point deadline) {
  if (ready()) return true;
  const bool bounded = deadline != std::chrono::steady_clock::time_point::max();
  os::Parker& parker = thread_parker();
  const bool helps = scheduler.has_callers();
  if (helps) {
    const std::lock_guard lock(waiters_mutex_);
    waiters_.push_back(&parker);
  }
  bool came = true;
  {
    Poller poller(options.progress.get());
    CallerDriver driver(scheduler, parker, &poller);
    std::uint64_t idle_since = os::cycle_count();
    while (!ready()) {
      if (helps && driver.step()) {
        idle_since = os::cycle_count();
        continue;
      }
      const bool found = poller.look();
      if (bounded && std::chrono::steady_clock::now() >= deadline) {
        came = ready();
        break;
      }
      if (found) continue;
      // With a source, who doesn't poll doesn't spin either: one spinner is enough.
      const bool again = poller.has_source()
                             ? poller.looks_again()
                             : os::spinning_pays() && os::cycle_count() - idle_since < kSpinCycles;
      if (again) {
        os::cpu_relax();
        continue;
      }
      driver.sleep_until(deadline);
      idle_since = os::cycle_count();
    }
  }
  if (helps) {
    const std::lock_guard lock(waiters_mutex_);
    waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &parker));
  }
  return came;
}

void EngineState::caller_lanes_free() {
  const std::lock_guard lock(waiters_mutex_);
  for (os::Parker* parker : waiters_)
    parker->unpark();
}

bool EngineState::wait_for_run(RunState& run, std::chrono::steady_clock::time_point deadline) {
  const auto guest = visit(run);
  return !guest || guest->engine().wait_for_end(run, deadline);
}

bool EngineState::wait_for_end(RunState& run, std::chrono::steady_clock::time_point deadline) {
  os::Parker& parker = thread_parker();
  RoomRequest request{.who = current_orchestration,
                      .need = RoomRequest::Need::run_end,
                      .run = &run,
                      .parker = &parker};
  // A wait with a deadline ends by itself.
  const bool blocks = current_orchestration != nullptr && &current_orchestration->engine == this &&
                      deadline == std::chrono::steady_clock::time_point::max() && !run.done();
  if (blocks) {
    enter_blocked(request);
    prove_blocked();
  }
  run.add_waiter(parker);
  const bool came = wait_until([&] { return run.done(); }, deadline);
  run.remove_waiter(parker);
  if (blocks) leave_blocked(request);
  return came;
}

// ---- Looking ------------------------------------------------------------------------------------

/// The engine of a run, kept from going away, or nothing if it is gone.
std::optional<EngineState::Guest> EngineState::visit(const RunState& run) {
  const std::lock_guard lock(run.mutex);
  std::optional<Guest> guest;
  if (run.engine != nullptr) guest.emplace(*run.engine);
  return guest;
}

std::vector<GraphEdge> EngineState::edges_in_window(const RunState& run, TaskId task) {
  const auto guest = visit(run);
  if (!guest) {
    throw InvalidState("Run::why: the engine of " + run.name +
                       " is gone; set RunOptions::keep_graph");
  }
  EngineState& engine = guest->engine();
  const std::lock_guard lock(engine.graph_mutex);
  TaskNode* const node = engine.window.at(task);
  if (node == nullptr || node->id != task.value || node->run != &run) {
    throw InvalidState("Run::why: task " + std::to_string(task.number()) +
                       " is not, or not any more, in the window for " + run.name +
                       "; set RunOptions::keep_graph");
  }
  std::vector<GraphEdge> edges;
  const Edge* const last = node->last_edge.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < node->edge_count; ++i) {
    const Edge& edge = node->edge(i);
    if (is_join(edge.from)) continue;  // An epoch of readers; only a kept graph names them.
    edges.push_back({.from = TaskId{edge.from},
                     .to = task,
                     .hazard = edge.hazard,
                     .argument = edge.argument,
                     .assumed = edge.assumed,
                     .waited = edge.waited,
                     .last = &edge == last});
  }
  return edges;
}

EngineStats EngineState::stats() {
  EngineStats stats;
  const std::lock_guard lock(graph_mutex);
  reap_dead_buffers();
  const TrackerStats& tracked = tracker.stats();
  stats.tasks = tasks_submitted;
  stats.window_used = window.in_flight();
  stats.heap_used = storage.used();
  stats.heap_peak = storage.peak();
  stats.live_regions = tracker.live_regions();
  stats.live_buffers = buffers.live();
  stats.same_region = tracked.same_region;
  stats.new_region = tracked.new_region;
  stats.overlap_by_bounds = tracked.by_bounds;
  stats.overlap_by_boxes = tracked.by_boxes;
  stats.overlap_by_search = tracked.by_search;
  stats.overlap_assumed = tracked.assumed;
  stats.reader_epochs = tracked.epochs;
  stats.blocked_submits = blocked_submits;
  return stats;
}

}  // namespace strata::graph
