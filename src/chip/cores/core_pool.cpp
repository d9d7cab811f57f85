#include "chip/cores/core_pool.hpp"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "chip/check/check.hpp"
#include "chip/cores/core_pool_impl.hpp"
#include "chip/cores/core_text.hpp"
#include "chip/cores/kernel_services.hpp"
#include "comm/signal.hpp"
#include "os/cpu.hpp"
#include "strata/error.hpp"

namespace strata::chip {

thread_local constinit Runner* current_runner = nullptr;

namespace {

/// The pool for which the calling thread is the helper, if any.
thread_local constinit CorePool::Impl* helping_pool = nullptr;

unsigned threads_of(const CorePoolOptions& options) {
  if (options.threads != 0) return options.threads;
  return static_cast<unsigned>(os::allowed_cpus());
}

// ---- Predicates ---------------------------------------------------------------------------------

/// Whether the condition of the task, its last tensor argument, is true.
bool condition_holds(const detail::ArgumentBlock& arguments, const Launch& launch) {
  const detail::TensorRecord& tensor = arguments.tensors[arguments.tensor_count - 1];
  const auto with = [&]<class T>(T) {
    T value;
    std::memcpy(&value, tensor.data, sizeof value);
    return comm::holds(value, launch.compare(), launch.operand());
  };
  switch (tensor.dtype) {
    case DType::boolean:
    case DType::uint8:
      return with(std::uint8_t{});
    case DType::int8:
      return with(std::int8_t{});
    case DType::int16:
      return with(std::int16_t{});
    case DType::uint16:
      return with(std::uint16_t{});
    case DType::int32:
      return with(std::int32_t{});
    case DType::uint32:
      return with(std::uint32_t{});
    case DType::int64:
      return with(std::int64_t{});
    case DType::uint64:
      return with(std::uint64_t{});
    default:
      throw ChipError(ErrorCode::wrong_argument_dtype,
                      fmt::format("the condition of a task is an integer, and not {}; give when() "
                                  "a tensor of integers or bool",
                                  name_of(tensor.dtype)));
  }
}

/// Ends a task that does not run. Its end may make others ready that don't run either, and so on:
/// those end in the call that is the outermost on this thread, one after the other.
void end_at_once(DispatchId dispatch, TaskSink& sink) {
  struct Ending {
    DispatchId dispatch;
    TaskSink* sink;
  };
  thread_local std::vector<Ending>* outer = nullptr;
  if (outer != nullptr) {
    outer->push_back({dispatch, &sink});
    return;
  }
  std::vector<Ending> endings = {{dispatch, &sink}};
  struct Scope {
    explicit Scope(std::vector<Ending>* mine) { outer = mine; }
    ~Scope() { outer = nullptr; }
  };
  const Scope scope(&endings);
  while (!endings.empty()) {
    const Ending ending = endings.back();
    endings.pop_back();
    ending.sink->ended(ending.dispatch, nullptr);
  }
}

}  // namespace

CorePool::Impl::Impl(const CorePoolOptions& options)
    : options_(options),
      schedule_(options.platform, this),
      limit_(threads_of(options)),
      free_cpus_(options.pin_to) {}

// ---- Tasks --------------------------------------------------------------------------------------

void CorePool::Impl::init(Job& job, DispatchId dispatch, TaskContext& context, const Launch& launch,
                          TaskSink& sink) const {
  job.dispatch = dispatch;
  job.context = &context;
  job.sink = &sink;
  job.set = launch.set();
  job.launch = launch;
  job.lanes = 0;
  job.lane_count = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    job.kernels[lane] = launch.kernels()[lane];
    if (job.kernels[lane] == KernelId::kNone) continue;
    job.lanes |= static_cast<LaneMask>(1U << lane);
    ++job.lane_count;
  }
  job.blocks = launch.block_count();
  job.together = launch.starts_together() && job.blocks > 1;
  job.simple = job.blocks == 1 && job.lane_count == 1;
  job.meets = job.lane_count > 1 || job.together;
  job.shape = job.together                              ? Shape::together
              : job.lane_count > 1                      ? Shape::mixed
              : (job.lanes & mask_of(ClusterLane::aic)) ? Shape::aic
                                                        : Shape::aiv;
  job.arguments = context.arguments();
  if (launch.predicated()) --job.arguments.tensor_count;
  job.next_block = 0;
  job.live = 0;
  job.reserved_cluster = -1;
  job.failed.store(false, std::memory_order_relaxed);
  if (job.simple) return;
  job.error = nullptr;
  job.meeting.arrived = 0;
  job.meeting.returned = 0;
}

/// With the mutex.
Job& CorePool::Impl::new_job(const Launch& launch) {
  Job* const job = free_jobs_;
  if (job == nullptr) return jobs_.emplace_back(launch);
  free_jobs_ = job->next;
  return *job;
}

void CorePool::Impl::free_job(Job& job) noexcept {
  job.next = free_jobs_;
  free_jobs_ = &job;
}

void CorePool::Impl::check_room(const Job& job) const {
  if (job.lanes == 0) {
    throw ChipError(ErrorCode::unknown_kernel, "a task was started that names no kernel");
  }
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((job.lanes >> lane & 1) != 0 && job.kernels[lane] >= job.set->kernels.size()) {
      throw ChipError(ErrorCode::unknown_kernel,
                      fmt::format("program '{}' has {} kernels, and none with id {}",
                                  job.set->program, job.set->kernels.size(), job.kernels[lane]));
    }
  }
  const std::uint32_t room = schedule_.room_for(job);
  if (room != 0 && (!job.together || job.blocks <= room)) return;
  throw ChipError(
      ErrorCode::too_many_blocks,
      fmt::format("task {} '{}' needs {} of {} at the same time, and platform '{}' has room for {}",
                  job.context->task().number(), job.context->name(), job.together ? job.blocks : 1,
                  lanes_text(job.lanes), options_.platform.to_string(), room));
}

/// A thread that has just ended a task may run this one next, on the same core: if nothing waits,
/// and the core is of that sort.
bool CorePool::Impl::take_over(Runner& runner, const Job& job) {
  if (!job.simple) return false;
  if (options_.platform.single_core_clusters) return true;
  return (runner.offered->lane == ClusterLane::aic) == (job.shape == Shape::aic);
}

void CorePool::Impl::start(DispatchId dispatch, TaskContext& context, const Launch& launch,
                           TaskSink& sink) {
  if (launch.block_count() == 0 ||
      (launch.predicated() && !condition_holds(context.arguments(), launch))) {
    end_at_once(dispatch, sink);
    return;
  }
  Runner* runner = current_runner;
  if (runner != nullptr && runner->pool != this) runner = nullptr;
  if (runner != nullptr && runner->spare != nullptr && runner->offered != nullptr &&
      work_.load(std::memory_order_relaxed) == 0) {
    Job& job = *runner->spare;
    init(job, dispatch, context, launch, sink);
    check_room(job);
    if (take_over(*runner, job)) {
      runner->spare = nullptr;
      runner->next = &job;
      return;
    }
  }
  Lock lock(*this);
  Job& job = new_job(launch);
  try {
    init(job, dispatch, context, launch, sink);
    check_room(job);
  } catch (...) {
    free_job(job);
    throw;
  }
  schedule_.add(job);
  // A thread that is about to look again needs no other to do so.
  if (runner != nullptr && runner->completing) return;
  const Wake wake = someone_needed();
  lock.unlock();
  try {
    perform(wake);
  } catch (...) {
    lock.lock();
    if (awake_ != 0 || !job.queued || job.next_block != 0) return;  // Somebody will come to it.
    schedule_.drop(job);
    free_job(job);
    throw;
  }
}

// ---- Running ------------------------------------------------------------------------------------

std::exception_ptr CorePool::Impl::execute(Runner& runner, Place& place) {
  const Job& job = *place.job;
  // Release: who finds the runner here finds it made.
  place.runner.store(&runner, std::memory_order_release);
  place.set_state(Place::State::running);
  runner.place = &place;
  if (job.failed.load(std::memory_order_acquire)) return nullptr;
  if (job.context->cancelled()) {
    return std::make_exception_ptr(Cancelled("the run was cancelled before the kernel began"));
  }
  const KernelEntry& entry = kernel_of(place);
  try {
    const Kernel kernel(place);
    const CheckedBlock checked(check_.load(std::memory_order_relaxed), *job.context, job.launch,
                               entry, kernel);
    entry.function(kernel);
    return nullptr;
  } catch (...) {
    return kernel_error(place, std::current_exception());
  }
}

/// Runs the block at `place`, and what follows from it on the same core. Comes with the mutex held
/// and the runner counted as one that looks, and leaves so.
void CorePool::Impl::act(Runner& runner, Place& place, Lock& lock) {
  --looking_;
  const Wake wake = someone_needed();
  lock.unlock();
  perform_if_possible(wake);
  for (Place* at = &place; at != nullptr;) {
    std::exception_ptr error = execute(runner, *at);
    if (at->job->simple) {
      at = end_simple(runner, *at, error, lock);
    } else {
      end_lane(runner, *at, std::move(error), lock);
      at = nullptr;
    }
  }
  if (exploring()) explorer_->lane_returned(runner);
  ++looking_;
}

/// Tells of the end of a task that was this one block. Returns the place if the thread goes on
/// there with another, which the end made ready; otherwise null, with the mutex held.
Place* CorePool::Impl::end_simple(Runner& runner, Place& place, const std::exception_ptr& error,
                                  Lock& lock) {
  Job& job = *place.job;
  runner.place = nullptr;
  place.gate.close();
  place.state.store(Place::State::idle, std::memory_order_relaxed);
  runner.completing = true;
  runner.spare = &job;
  job.sink->ended(job.dispatch, error);
  runner.completing = false;
  if (Job* const next = std::exchange(runner.next, nullptr)) {
    Schedule::pass_on(place, *next);
    // It does not look for what else was made ready: so another must.
    if ((work_.load(std::memory_order_relaxed) & kMayTake) != 0) {
      lock.lock();
      const Wake wake = someone_needed();
      lock.unlock();
      perform_if_possible(wake);
    }
    return &place;
  }
  lock.lock();
  free_job(job);
  runner.spare = nullptr;
  schedule_.release(place);
  return nullptr;
}

/// The lane of a task of several has returned. Leaves with the mutex held.
void CorePool::Impl::end_lane(Runner& runner, Place& place, std::exception_ptr error, Lock& lock) {
  Job& job = *place.job;
  if (error != nullptr) {
    // The first error counts: what others meet since this lane gave up is no cause.
    lock.lock();
    if (job.error == nullptr && !job.failed.load(std::memory_order_relaxed)) job.error = error;
    lock.unlock();
    job.failed.store(true, std::memory_order_release);
    wake_waits(&job);
  }
  if (job.meets) lane_has_returned(place);
  runner.place = nullptr;
  place.gate.close();
  place.state.store(Place::State::idle, std::memory_order_relaxed);
  lock.lock();
  if (job.failed.load(std::memory_order_relaxed)) schedule_.drop(job);
  schedule_.release(place);
  if (--job.live != 0 || job.queued) return;
  error = std::exchange(job.error, nullptr);
  lock.unlock();
  runner.completing = true;
  job.sink->ended(job.dispatch, error);
  runner.completing = false;
  lock.lock();
  free_job(job);
}

bool CorePool::Impl::run_one() {
  if (exploring()) return explorer_->run();
  if ((work_.load(std::memory_order_relaxed) & kMayTake) == 0) return false;
  Lock lock(*this);
  if (awake_.load(std::memory_order_relaxed) >= limit_) return false;
  Place* const place = schedule_.take();
  if (place == nullptr) return false;
  Runner& runner = borrow_runner();
  awake_.store(awake_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  // A helper is counted as looking between its blocks; act() expects that of any.
  const bool helps = helping_pool == this;
  if (!helps) ++looking_;
  Runner* const outer = std::exchange(current_runner, &runner);
  act(runner, *place, lock);
  current_runner = outer;
  awake_.store(awake_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  runner.next_idle = lent_;
  lent_ = &runner;
  if (helps) return true;
  --looking_;
  const Wake wake = someone_needed();
  lock.unlock();
  perform_if_possible(wake);
  return true;
}

// ---- Control ------------------------------------------------------------------------------------

bool CorePool::Impl::try_become_helper() {
  const Lock lock(*this);
  if (helper_) return false;
  helper_ = true;
  ++looking_;
  helping_pool = this;
  return true;
}

void CorePool::Impl::stop_helping() {
  Lock lock(*this);
  helper_ = false;
  --looking_;
  helping_pool = nullptr;
  const Wake wake = someone_needed();
  lock.unlock();
  perform_if_possible(wake);
}

void CorePool::Impl::set_held(bool held) {
  Lock lock(*this);
  held_ = held;
  schedule_.set_held(held);
  const Wake wake = someone_needed();
  lock.unlock();
  perform_if_possible(wake);
}

void CorePool::Impl::set_threads(unsigned threads) {
  Lock lock(*this);
  limit_ = threads != 0 ? threads : threads_of(options_);
  const Wake wake = someone_needed();
  lock.unlock();
  perform_if_possible(wake);
}

/// Whoever ran the last task may still be on the way out. With the mutex.
void CorePool::Impl::wait_until_empty(Lock& lock) {
  const auto empty = [this] {
    return std::all_of(schedule_.places().begin(), schedule_.places().end(),
                       [](const Place& place) { return place.job == nullptr; });
  };
  while (!empty()) {
    lock.unlock();
    sched_yield();
    lock.lock();
  }
}

void CorePool::Impl::explore(std::uint64_t seed) {
  Lock lock(*this);
  wait_until_empty(lock);
  explorer_.emplace(*this, seed);
  exploring_.store(true, std::memory_order_relaxed);
}

void CorePool::Impl::stop_exploring() {
  Lock lock(*this);
  wait_until_empty(lock);
  exploring_.store(false, std::memory_order_relaxed);
  explorer_.reset();
}

void CorePool::Impl::log(std::string_view text) const {
  if (options_.log) options_.log(text);
}

// ---- CorePool -----------------------------------------------------------------------------------

CorePool::CorePool(const CorePoolOptions& options) : impl_(std::make_unique<Impl>(options)) {}
CorePool::~CorePool() = default;
void CorePool::start(DispatchId dispatch, TaskContext& context, const Launch& launch,
                     TaskSink& sink) {
  impl_->start(dispatch, context, launch, sink);
}
bool CorePool::run_one() { return impl_->run_one(); }
bool CorePool::try_become_helper() { return impl_->try_become_helper(); }
void CorePool::stop_helping() { impl_->stop_helping(); }
void CorePool::hold() { impl_->set_held(true); }
void CorePool::release() { impl_->set_held(false); }
void CorePool::set_threads(unsigned threads) { impl_->set_threads(threads); }
void CorePool::explore(std::uint64_t seed) { impl_->explore(seed); }
void CorePool::stop_exploring() { impl_->stop_exploring(); }
void CorePool::set_check(CheckSession* session) { impl_->set_check(session); }
void CorePool::wake_waits() { impl_->wake_waits(); }
std::vector<CoreStatus> CorePool::status() const { return impl_->status(); }
unsigned CorePool::thread_count() const { return impl_->thread_count(); }

}  // namespace strata::chip
