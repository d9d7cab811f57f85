#include "chip/chip_runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/duration_text.hpp"
#include "chip/argument_dump.hpp"
#include "chip/check/check.hpp"
#include "chip/chip_engine.hpp"
#include "chip/cores/core_text.hpp"
#include "chip/current_orchestration.hpp"
#include "chip/orchestration_state.hpp"
#include "chip/run_failure.hpp"
#include "chip/run_overrun.hpp"
#include "chip/run_settings.hpp"
#include "chip/run_thread.hpp"
#include "chip/run_watch.hpp"
#include "chip/staging.hpp"
#include "trace/state_board.hpp"

namespace strata::chip {

namespace {

using Clock = std::chrono::steady_clock;

/// How a run of the engine ended.
struct Outcome {
  Run run = {};
  std::exception_ptr error = {};
};

/// However long that is.
Clock::time_point later(Clock::time_point start, std::chrono::nanoseconds time) {
  return start + std::min(time, std::chrono::nanoseconds(Clock::time_point::max() - start));
}

CorePoolOptions pool_options(const ChipRuntimeOptions& options) {
  return {.platform = options.platform,
          .threads = static_cast<unsigned>(options.cpus.size()),
          .pin_to = options.cpus,
          .budget = options.budget,
          .log = options.log};
}

}  // namespace

class ChipRuntime::Impl {
 public:
  explicit Impl(const ChipRuntimeOptions& options)
      : options_(options),
        environment_(options_of_environment()),
        pool_(pool_options(options)),
        staging_(options.platform.memory) {
    validate(environment_, options_.platform);
    report_entry_ = trace::StateBoard::of_process().add("chip", [this] { return describe_chip(); });
  }

  ChipRunResult run(const ChipRunRequest& request);
  void forget(const Program& program) {
    for (const auto& engine : engines_)
      engine->forget(program);
  }
  [[nodiscard]] const Platform& platform() const noexcept { return options_.platform; }
  [[nodiscard]] const CorePool& pool() const noexcept { return pool_; }
  /// Threads of it go on for ever: it must not be destroyed.
  [[nodiscard]] bool stuck() const noexcept { return stuck_ != ErrorCode::none; }

 private:
  /// Engines that are kept: their sizes are those of the runs that were last.
  static constexpr std::size_t kMaxEngines = 2;

  [[nodiscard]] ChipEngine& engine_for(const RunSettings& settings);
  void set_scene(const ChipRunRequest& request, ChipEngine& engine);
  void clear_scene() noexcept;
  [[nodiscard]] Outcome run_here(const std::function<void(const Run&)>& begin);
  [[nodiscard]] Outcome run_watched(const ChipRunRequest& request);
  [[nodiscard]] Outcome run_until(const ChipRunRequest& request, Clock::time_point deadline);
  [[nodiscard]] std::vector<NamedBuffer> names_of_memory() const;
  void begin_dump(const ChipRunRequest& request);
  void begin_special(const ChipRunRequest& request);
  void end_special(const ChipRunRequest& request, Outcome& outcome);
  [[nodiscard]] std::string busy_text() const;
  [[nodiscard]] nlohmann::json describe_chip() const;
  [[noreturn]] void throw_stuck(const ChipRunRequest& request, const std::string& limit);

  const ChipRuntimeOptions options_;
  const ChipRunOptions environment_;
  CorePool pool_;
  Gathering gathering_{pool_};
  unsigned threads_ = 0;  ///< What the pool was told.
  Staging staging_;
  ArgumentRanges ranges_;
  RunScene scene_;
  OrchestrationMode mode_ = OrchestrationMode::device;
  std::unique_ptr<CheckSession> check_;
  std::unique_ptr<ArgumentDump> dump_;
  std::uint64_t runs_ = 0;
  ErrorCode stuck_ = ErrorCode::none;  ///< Why no more runs are taken.
  OrchestrationClock clock_;
  std::vector<std::unique_ptr<ChipEngine>> engines_;  ///< The one used last comes first.
  RunOptions run_options_;
  RunWatch watch_;
  Outcome timed_;  ///< Of the run on thread_.
  RunThread thread_;
  trace::StateBoard::Entry report_entry_;  ///< Last: asks for what is above.
};

ChipEngine& ChipRuntime::Impl::engine_for(const RunSettings& settings) {
  const auto fits = [&](const std::unique_ptr<ChipEngine>& engine) {
    return engine->window() == settings.window && engine->heap() == settings.heap;
  };
  const auto found = std::find_if(engines_.begin(), engines_.end(), fits);
  if (found != engines_.end()) {
    std::rotate(engines_.begin(), found, found + 1);
  } else {
    if (engines_.size() == kMaxEngines) engines_.pop_back();
    engines_.insert(engines_.begin(),
                    std::make_unique<ChipEngine>(pool_, gathering_, settings.window, settings.heap,
                                                 options_.budget));
  }
  return *engines_.front();
}

/// Makes the arguments known to the engine.
void ChipRuntime::Impl::set_scene(const ChipRunRequest& request, ChipEngine& engine) {
  const std::string& program = request.program->info().name;
  scene_.program = request.program;
  scene_.platform = &options_.platform;
  scene_.engine = &engine;
  scene_.gathering = &gathering_;
  scene_.log = &options_.log;
  scene_.log_level = options_.log_level;
  scene_.number = ++runs_;
  scene_.check = request.options.check;
  const detail::ArgumentBlock& arguments = request.arguments;
  scene_.scalars.assign(arguments.scalars, arguments.scalars + arguments.scalar_count);
  ranges_.assign(arguments, program);
  const bool staged = !options_.platform.shares_host_memory;
  if (staged) staging_.copy_in(arguments, ranges_, request.on_chip, program);
  for (std::size_t r = 0; r < ranges_.ranges().size(); ++r) {
    const AddressRange& range = ranges_.ranges()[r];
    std::byte* const place = staged ? staging_.place(r) : range.data();
    const auto begin = reinterpret_cast<std::uintptr_t>(place);
    scene_.memory.push_back(
        {range, place, engine.buffer({begin, begin + range.bytes()}, scene_.number)});
  }
  for (std::uint32_t i = 0; i < arguments.tensor_count; ++i) {
    const detail::TensorRecord& tensor = arguments.tensors[i];
    BufferId buffer = engine.empty_buffer();
    std::int64_t offset = 0;
    if (const std::int32_t r = ranges_.range_of(i); r != ArgumentRanges::kNone) {
      const KnownMemory& memory = scene_.memory[static_cast<std::size_t>(r)];
      buffer = memory.buffer;
      offset = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.data) -
                                         memory.range.begin);
    }
    const auto rank = std::size_t{tensor.rank};
    scene_.tensors.emplace_back(buffer, offset, tensor.dtype, std::span(tensor.dims, rank),
                                std::span(tensor.dims + rank, rank));
  }
}

/// What the user calls the memory of this run.
std::vector<NamedBuffer> ChipRuntime::Impl::names_of_memory() const {
  const auto& parameters = scene_.program->info().signature.tensors;
  std::vector<NamedBuffer> names;
  names.reserve(scene_.memory.size());
  for (const KnownMemory& memory : scene_.memory) {
    std::string arguments;
    std::size_t count = 0;
    for (std::size_t i = 0; i < scene_.tensors.size(); ++i) {
      if (scene_.tensors[i].buffer() != memory.buffer) continue;
      const std::string name =
          i < parameters.size() ? fmt::format("'{}'", parameters[i].name) : fmt::format("{}", i);
      arguments += (count++ == 0 ? "" : " and ") + name;
    }
    names.push_back(
        {memory.buffer, count == 0   ? fmt::format("external memory at {:#x}", memory.range.begin)
                        : count == 1 ? "argument " + arguments
                                     : "the memory of arguments " + arguments});
  }
  return names;
}

void ChipRuntime::Impl::clear_scene() noexcept {
  scene_.program.reset();
  scene_.tensors.clear();
  scene_.scalars.clear();
  scene_.memory.clear();
  scene_.given_up = nullptr;
}

/// Runs on the calling thread, which acts as a core while it waits. `begin` is told of the run.
Outcome ChipRuntime::Impl::run_here(const std::function<void(const Run&)>& begin) {
  struct Call {
    Impl& runtime;
    const std::function<void(const Run&)>& begin;
    Outcome outcome = {};
  } call{*this, begin};
  try {
    (void)scene_.engine->engine().run(
        [&call](Orchestration& live) {
          call.outcome.run = live.run();
          call.begin(call.outcome.run);
          const OrchestrationMark mark(call.runtime.scene_.program->info().name,
                                       call.runtime.run_options_.name, call.runtime.clock_);
          orchestrate(call.runtime.scene_, live, call.runtime.mode_);
        },
        run_options_);
  } catch (...) {
    call.outcome.error = std::current_exception();
  }
  return std::move(call.outcome);
}

/// Without a bound.
Outcome ChipRuntime::Impl::run_watched(const ChipRunRequest& request) {
  Outcome outcome = run_here([this, &request](const Run& run) {
    if (request.cancelled != nullptr) watch_.begin(run, request.cancelled, request.token);
  });
  watch_.end();
  return outcome;
}

/// Runs on another thread, so that this one is free at the deadline. That one may never come back:
/// it refers to what this object owns only.
Outcome ChipRuntime::Impl::run_until(const ChipRunRequest& request, Clock::time_point deadline) {
  thread_.start([this] { timed_ = run_here([this](const Run& run) { thread_.began(run); }); });
  bool cancelled = false;
  for (;;) {
    const Clock::time_point look = request.cancelled != nullptr && !cancelled
                                       ? std::min(deadline, Clock::now() + RunWatch::kInterval)
                                       : deadline;
    if (thread_.wait_until(look)) return std::exchange(timed_, {});
    if (Clock::now() >= deadline) break;
    if (cancelled || !request.cancelled(request.token)) continue;
    cancelled = true;
    thread_.cancel();
    pool_.wake_waits();
  }
  const std::string limit = fmt::format("did not end within its time limit of {}",
                                        base::duration_text(*request.options.time_limit));
  const std::string busy = busy_text();
  thread_.cancel();
  pool_.wake_waits();
  if (!wait_for_cancelled(thread_, pool_)) throw_stuck(request, limit);
  Outcome outcome = std::exchange(timed_, {});
  if (outcome.error == nullptr) return outcome;  // It had ended before it was cancelled.
  outcome.error = std::make_exception_ptr(
      ChipError(ErrorCode::deadline_exceeded,
                fmt::format("chip program '{}' {}; it had submitted {} tasks. At the deadline{}",
                            request.program->info().name, limit, outcome.run.stats().tasks, busy)));
  return outcome;
}

/// What the run is at, behind "At the deadline".
std::string ChipRuntime::Impl::busy_text() const {
  const std::string cores = describe(pool_.status());
  const auto orchestration = clock_.running_for();
  if (!orchestration) {
    return cores.empty() ? " no core was busy, and the orchestration had returned" : ":" + cores;
  }
  const std::string since = base::duration_text(*orchestration);
  if (cores.empty()) {
    return fmt::format(" no core was busy: the orchestration itself was running, for {}", since);
  }
  return fmt::format(":{}\n  the orchestration has not returned either, for {}", cores, since);
}

/// For reports from outside, on the thread that answers them.
nlohmann::json ChipRuntime::Impl::describe_chip() const {
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  nlohmann::json report = {{"platform", options_.platform.name},
                           {"orchestration_for_s", nullptr},
                           {"cores", nlohmann::json::array()}};
  if (const auto orchestration = clock_.running_for()) {
    report["orchestration_for_s"] = seconds(*orchestration);
  }
  for (const CoreStatus& core : pool_.status()) {
    report["cores"].push_back({{"core", core.core},
                               {"cluster", core.cluster},
                               {"where", core_text(core.core, core.cluster, core.lane)},
                               {"lane", lane_text(core.lane)},
                               {"state", name_of(core.state)},
                               {"kernel", core.kernel},
                               {"task", core.task.number()},
                               {"task_name", core.task_name},
                               {"block", core.block},
                               {"blocks", core.blocks},
                               {"for_s", seconds(core.since)},
                               {"waits_for", core.waits_for},
                               {"thread", core.thread},
                               {"arguments", core.arguments}});
  }
  return report;
}

void ChipRuntime::Impl::throw_stuck(const ChipRunRequest& request, const std::string& limit) {
  const std::string busy = describe(pool_.status());
  stuck_ = busy.empty() ? ErrorCode::orchestration_overran : ErrorCode::kernel_overran;
  const std::string who =
      busy.empty()
          ? fmt::format(
                "its orchestration, which has been running for {}, does not "
                "return, though its run was cancelled. ",
                base::duration_text(clock_.running_for().value_or(std::chrono::nanoseconds())))
          : "these cores do not return, though their run was cancelled:" + busy + "\n";
  throw ChipStuck(
      stuck_, fmt::format("chip program '{}' {}, and {}The process of this chip can't be used any "
                          "more",
                          request.program->info().name, limit, who));
}

ChipRunResult ChipRuntime::Impl::run(const ChipRunRequest& request) {
  const Clock::time_point start = request.options.time_limit ? Clock::now() : Clock::time_point{};
  if (stuck()) {
    throw ChipStuck(stuck_, fmt::format("{} of an earlier run has not returned: this process can't "
                                        "be used for chips any more",
                                        stuck_ == ErrorCode::kernel_overran ? "a kernel"
                                                                            : "the orchestration"));
  }
  validate(request.options, options_.platform);
  const RunSettings settings = settings_of(request.options, environment_, options_.platform);
  const std::string& program = request.program->info().name;
  if (request.cancelled != nullptr && request.cancelled(request.token)) {
    throw Cancelled(
        fmt::format("the run of chip program '{}' was cancelled before it began", program));
  }
  if (settings.threads != threads_) pool_.set_threads(threads_ = settings.threads);
  clear_scene();
  set_scene(request, engine_for(settings));
  mode_ = settings.mode;
  run_options_.name = request.name.empty() ? program : std::string(request.name);
  run_options_.keep_graph = request.options.keep_graph;
  begin_special(request);
  Outcome outcome = request.options.time_limit
                        ? run_until(request, later(start, *request.options.time_limit))
                        : run_watched(request);
  if (scene_.given_up != nullptr) outcome.error = scene_.given_up;
  if (outcome.error != nullptr) {
    // What a failed task should have written is not to be missed by the next run.
    scene_.engine->forget_buffers();
    outcome.error = run_failure(outcome.error, program, names_of_memory());
  }
  end_special(request, outcome);
  clear_scene();
  if (outcome.error != nullptr) std::rethrow_exception(outcome.error);
  if (!options_.platform.shares_host_memory) staging_.copy_out(request.arguments, ranges_);
  ChipRunResult result{.stats = outcome.run.stats()};
  if (request.options.keep_graph) result.graph = outcome.run.graph().to_dot();
  return result;
}

void ChipRuntime::Impl::begin_dump(const ChipRunRequest& request) {
  const std::string& program = request.program->info().name;
  dump_ = std::make_unique<ArgumentDump>(
      ArgumentDump::Options{.folder = request.options.dump_to.string(),
                            .program = program,
                            .run = scene_.number,
                            .all = request.options.dump_all});
  scene_.engine->set_dump(dump_.get());
  if (options_.log) {
    options_.log(
        fmt::format("{}: arguments of tasks are written to {}", program, dump_->folder().string()));
  }
}

/// What not every run has: dumping, checking, exploring.
void ChipRuntime::Impl::begin_special(const ChipRunRequest& request) {
  if (!request.options.dump_to.empty()) begin_dump(request);
  if (request.options.check) {
    check_ = std::make_unique<CheckSession>(request.program->info());
    pool_.set_check(check_.get());
  }
  if (request.options.explore_seed) pool_.explore(*request.options.explore_seed);
}

void ChipRuntime::Impl::end_special(const ChipRunRequest& request, Outcome& outcome) {
  if (request.options.explore_seed) pool_.stop_exploring();
  const auto finish = [&outcome](auto& part) {
    try {
      part->finish(outcome.error);
    } catch (...) {
      outcome.error = std::current_exception();
    }
    part.reset();
  };
  if (dump_ != nullptr) {
    scene_.engine->set_dump(nullptr);
    finish(dump_);
  }
  if (check_ != nullptr) {
    pool_.set_check(nullptr);
    finish(check_);
  }
}

// ---- ChipRuntime --------------------------------------------------------------------------------

ChipRuntime::ChipRuntime(const ChipRuntimeOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}

ChipRuntime::~ChipRuntime() {
  if (impl_->stuck()) (void)impl_.release();
}

const Platform& ChipRuntime::platform() const noexcept { return impl_->platform(); }
ChipRunResult ChipRuntime::run(const ChipRunRequest& request) { return impl_->run(request); }
void ChipRuntime::forget(const Program& program) { impl_->forget(program); }
std::vector<CoreStatus> ChipRuntime::status() const { return impl_->pool().status(); }

}  // namespace strata::chip
