// The threads of the pool: how they are made, woken, and go to sleep.

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <utility>

#include "chip/cores/core_pool_impl.hpp"
#include "chip/cores/kernel_services.hpp"
#include "os/cpu.hpp"
#include "os/futex.hpp"
#include "strata/error.hpp"
#include "trace/crash_handler.hpp"

namespace strata::chip {

namespace {

/// What kernels may use. Below two megabytes, so that no huge page fits in: only what is touched is
/// memory.
constexpr std::size_t kStackBytes = std::size_t{1792} << 10;

/// How long a thread looks for work before it sleeps, in cycle counts: some microseconds. A sleep
/// and a wake cost as much.
constexpr std::uint64_t kSpinCycles = 12'000;

/// How long no due lane is begun before one gets a thread beyond the limit.
constexpr std::chrono::milliseconds kDuePatience{2};

void add_to(std::atomic<unsigned>& count, unsigned by) noexcept {
  // Written under the mutex only: no read-modify-write is needed.
  count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

}  // namespace

CorePool::Impl::~Impl() {
  {
    const Lock lock(*this);
    stopping_ = true;
    for (Runner& runner : runners_)
      runner.parker.unpark();
  }
  for (std::size_t joined = 0;; ++joined) {
    pthread_t thread{};
    {
      // A carrier may have made another before it saw that it must stop.
      const Lock lock(*this);
      if (joined == threads_.size()) return;
      thread = threads_[joined];
    }
    pthread_join(thread, nullptr);
  }
}

// ---- Who is needed ------------------------------------------------------------------------------

/// With the mutex: counts in a thread if one is needed, which perform() then wakes or makes.
CorePool::Impl::Wake CorePool::Impl::someone_needed() {
  if (exploring() || looking_ != 0 || !schedule_.may_take()) return {};
  if (awake_.load(std::memory_order_relaxed) < limit_) {
    add_to(awake_, 1);
    ++looking_;
    return next_thread(false);
  }
  if (schedule_.first_due() == nullptr || watcher_) return {};
  watcher_ = true;
  return next_thread(true);
}

/// A carrier that sleeps, the last to go to sleep first; none if there is none, or if a new one
/// would have a CPU of its own where those that sleep share that of the caller, who goes on there.
Runner* CorePool::Impl::take_idle() {
  Runner** link = &idle_;
  if (!options_.pin_to.empty()) {
    const int here = sched_getcpu();
    while (*link != nullptr && (*link)->cpu == here)
      link = &(*link)->next_idle;
    if (*link == nullptr && free_cpus_.empty()) link = &idle_;
  }
  return *link == nullptr ? nullptr : unlink_idle(*link);
}

/// Takes a sleeping carrier out of the list, whose link to it this is.
Runner* CorePool::Impl::unlink_idle(Runner*& link) noexcept {
  Runner* const runner = std::exchange(link, link->next_idle);
  runner->idle = false;
  return runner;
}

Runner* CorePool::Impl::add_carrier() {
  Runner* const runner = &runners_.emplace_back();
  runner->pool = this;
  runner->number = carriers_++;
  if (free_cpus_.empty()) return runner;
  // The caller's CPU comes last.
  auto cpu = free_cpus_.begin();
  if (*cpu == sched_getcpu() && free_cpus_.size() > 1) ++cpu;
  runner->cpu = *cpu;
  free_cpus_.erase(cpu);
  return runner;
}

CorePool::Impl::Wake CorePool::Impl::next_thread(bool watches) {
  Wake wake = {.runner = take_idle()};
  if (wake.runner == nullptr) {
    wake.create = true;
    if (unborn_ != nullptr) {
      wake.runner = unborn_;
      unborn_ = unborn_->next_idle;
    } else {
      wake.runner = add_carrier();
    }
  }
  wake.runner->watches = watches;
  return wake;
}

/// Without the mutex.
void CorePool::Impl::perform(Wake wake) {
  if (wake.runner == nullptr) return;
  if (!wake.create) {
    wake.runner->parker.unpark();
    return;
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread{};
  const int error = pthread_create(&thread, &attributes, &Impl::thread_main, wake.runner);
  pthread_attr_destroy(&attributes);
  const Lock lock(*this);
  if (error == 0) {
    threads_.push_back(thread);
    return;
  }
  const bool watches = std::exchange(wake.runner->watches, false);
  wake.runner->next_idle = unborn_;
  unborn_ = wake.runner;
  if (idle_ != nullptr) {
    // One that would share the caller's CPU is better than none.
    Runner* const other = unlink_idle(idle_);
    other->watches = watches;
    other->parker.unpark();
    return;
  }
  if (watches) {
    watcher_ = false;
  } else {
    add_to(awake_, -1U);
    --looking_;
  }
  throw SystemError("can't make a thread for the cores of a chip; is there a limit on threads?",
                    error);
}

/// For those who can't tell anybody: whoever waits or ends a block asks for the thread again.
void CorePool::Impl::perform_if_possible(Wake wake) noexcept {
  try {
    perform(wake);
  } catch (const SystemError&) {
    return;
  }
}

Runner& CorePool::Impl::borrow_runner() {
  Runner* runner = lent_;
  if (runner != nullptr) {
    lent_ = runner->next_idle;
  } else {
    runner = &runners_.emplace_back();
    runner->pool = this;
  }
  static thread_local const int thread = static_cast<int>(syscall(SYS_gettid));
  runner->thread.store(thread, std::memory_order_relaxed);
  return *runner;
}

// ---- Carriers -----------------------------------------------------------------------------------

void* CorePool::Impl::thread_main(void* runner) {
  auto& self = *static_cast<Runner*>(runner);
  self.pool->carry(self);
  return nullptr;
}

/// The first carriers have a CPU of their own each, if CPUs are given; the others, of which some
/// run while those wait, any of them.
void CorePool::Impl::pin(const Runner& runner) const noexcept {
  if (options_.pin_to.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (runner.cpu >= 0) {
    CPU_SET(runner.cpu, &set);
  } else {
    for (const int cpu : options_.pin_to)
      CPU_SET(cpu, &set);
  }
  // Where it is refused, the thread runs where it may.
  (void)sched_setaffinity(0, sizeof set, &set);
}

void CorePool::Impl::carry(Runner& runner) {
  char name[16];
  (void)std::snprintf(name, sizeof name, "core carrier %u", runner.number % 100);
  (void)pthread_setname_np(pthread_self(), name);
  pin(runner);
  std::optional<trace::AlternateStack> stack;
  try {
    stack.emplace();
  } catch (const SystemError&) {
    stack.reset();  // A crash by stack overflow will not be explained; all else works.
  }
  current_runner = &runner;
  runner.thread.store(static_cast<int>(syscall(SYS_gettid)), std::memory_order_relaxed);
  Lock lock(*this);
  bool has_spun = false;
  while (!stopping_) {
    if (runner.watches) {
      watch(runner, lock);
      continue;
    }
    Place* place = std::exchange(runner.given, nullptr);
    if (place == nullptr && !exploring() && awake_.load(std::memory_order_relaxed) <= limit_) {
      place = schedule_.take();
    }
    if (place != nullptr) {
      // A task that this one makes ready may go on here, save where tasks are drawn.
      runner.offered = exploring() ? nullptr : place;
      act(runner, *place, lock);
      has_spun = false;
    } else if (has_spun || !spin(lock)) {
      rest(runner, lock);
      has_spun = false;
    } else {
      has_spun = true;
    }
  }
}

/// Looks for work for a while, if that may pay. Comes and leaves with the mutex held.
bool CorePool::Impl::spin(Lock& lock) {
  if (!os::spinning_pays() || exploring() || stopping_) return false;
  if (spinning_ >= std::max(1U, limit_ / 2) || awake_.load(std::memory_order_relaxed) > limit_) {
    return false;
  }
  ipc::SpinnerBudget::Place place;
  if (options_.budget != nullptr) {
    place = options_.budget->try_begin();
    if (!place) return false;
  }
  ++spinning_;
  lock.unlock();
  const std::uint64_t begin = os::cycle_count();
  while ((work_.load(std::memory_order_relaxed) & kMayTake) == 0 &&
         os::cycle_count() - begin < kSpinCycles) {
    os::cpu_relax();
  }
  if (place) options_.budget->end(place);
  lock.lock();
  --spinning_;
  return true;
}

void CorePool::Impl::rest(Runner& runner, Lock& lock) {
  add_to(awake_, -1U);
  --looking_;
  go_idle(runner, lock);
}

/// Sleeps until next_thread() has chosen it. Comes and leaves with the mutex held.
void CorePool::Impl::go_idle(Runner& runner, Lock& lock) {
  runner.idle = true;
  runner.next_idle = idle_;
  idle_ = &runner;
  // There may be something for a thread to do that is not for one that runs blocks: to watch. It
  // may be this one that is chosen.
  const Wake wake = someone_needed();
  if (wake.runner != nullptr) {
    lock.unlock();
    perform_if_possible(wake);
    lock.lock();
  }
  while (runner.idle && !stopping_) {
    lock.unlock();
    runner.parker.park();
    lock.lock();
  }
}

/// Sleeps as long as lanes are due and others begin them; begins one if nobody does.
void CorePool::Impl::watch(Runner& runner, Lock& lock) {
  while (schedule_.first_due() != nullptr && !stopping_) {
    const std::uint64_t taken = schedule_.dues_taken();
    lock.unlock();
    (void)runner.parker.park_until(std::chrono::steady_clock::now() + kDuePatience);
    lock.lock();
    Place* const due = schedule_.dues_taken() == taken ? schedule_.take_due() : nullptr;
    if (due == nullptr) continue;
    runner.watches = false;
    watcher_ = false;
    add_to(awake_, 1);
    ++looking_;
    runner.offered = nullptr;
    act(runner, *due, lock);
    return;
  }
  runner.watches = false;
  watcher_ = false;
  go_idle(runner, lock);
}

// ---- Waits --------------------------------------------------------------------------------------

void CorePool::Impl::enter_wait(Runner& /*runner*/) {
  Lock lock(*this);
  add_to(awake_, -1U);
  const Wake wake = someone_needed();
  lock.unlock();
  try {
    perform(wake);
  } catch (...) {
    lock.lock();
    add_to(awake_, 1);
    throw;
  }
}

void CorePool::Impl::leave_wait(Runner& /*runner*/) noexcept {
  const Lock lock(*this);
  add_to(awake_, 1);
}

void CorePool::Impl::await_turn(Runner& runner) {
  runner.stirred.store(true, std::memory_order_relaxed);
  explorer_->await_turn(runner);
}

void CorePool::Impl::sleep(Runner& runner) {
  if (!exploring()) {
    runner.parker.park();
    return;
  }
  explorer_->stand(runner);
  explorer_->await_turn(runner);
}

bool CorePool::Impl::may_spin() const noexcept {
  return os::spinning_pays() && !exploring() && awake_.load(std::memory_order_relaxed) <= limit_ &&
         (work_.load(std::memory_order_relaxed) & kMayTake) == 0;
}

void CorePool::Impl::wake_waits(const Job* job) {
  (void)cancellations_.fetch_add(1, std::memory_order_acq_rel);  // See look_for_cancellation().
  os::futex_wake_all(cancellations_);
  for (Place& place : schedule_.places()) {
    // A lane that is being looked at by a report may be about to wait: so it is tried until the
    // look is over.
    while (place.state.load(std::memory_order_relaxed) != Place::State::idle) {
      if (!place.gate.begin_view()) {
        if (!place.gate.is_viewed()) break;
        sched_yield();
        continue;
      }
      Runner* const runner = place.runner.load(std::memory_order_acquire);
      if ((job == nullptr || place.job == job) && runner != nullptr) {
        wake_signal_wait(place);
        runner->wake();
      }
      place.gate.end_view();
      break;
    }
  }
}

unsigned CorePool::Impl::thread_count() const {
  const Lock lock(*this);
  return static_cast<unsigned>(threads_.size());
}

}  // namespace strata::chip
