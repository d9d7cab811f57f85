// How threads serve lanes: a thread lane's own thread, and threads that wait and drive caller
// lanes.

#include <algorithm>
#include <mutex>
#include <thread>

#include "graph/engine_state.hpp"
#include "graph/scheduler.hpp"
#include "os/cpu.hpp"

namespace strata::graph {

namespace {

/// Most lanes of one kind that spin at once.
int spinner_limit() noexcept {
  static const int limit = std::max(1, os::allowed_cpus() / 2);
  return limit;
}

}  // namespace

void Scheduler::wake_one(Kind& kind) {
  // Sequentially consistent, after the push's: a lane that goes to sleep first announces it and
  // then looks at the queue, so one of the two sees the other.
  if (kind.sleeping.load(std::memory_order_seq_cst) == 0) return;
  if (kind.spinning.load(std::memory_order_seq_cst) != 0) return;
  os::Parker* parker = nullptr;
  {
    const std::lock_guard lock(kind.sleep_mutex);
    if (kind.sleepers.empty()) return;
    parker = kind.sleepers.back();
    kind.sleepers.pop_back();
    kind.sleeping.store(static_cast<int>(kind.sleepers.size()), std::memory_order_seq_cst);
    // Inside the lock: the sleeper takes itself off the list under it before it can go away.
    parker->unpark();
  }
}

namespace {

void enter_sleepers(Kind& kind, os::Parker& parker) {
  const std::lock_guard lock(kind.sleep_mutex);
  kind.sleepers.push_back(&parker);
  kind.sleeping.store(static_cast<int>(kind.sleepers.size()), std::memory_order_seq_cst);
}

void leave_sleepers(Kind& kind, os::Parker& parker) {
  const std::lock_guard lock(kind.sleep_mutex);
  std::erase(kind.sleepers, &parker);
  kind.sleeping.store(static_cast<int>(kind.sleepers.size()), std::memory_order_seq_cst);
}

}  // namespace

void Scheduler::lane_main(Lane& lane) {
  os::Parker& parker = thread_parker();
  {
    const std::lock_guard lock(mutex_);
    lane.parker = &parker;
  }
  for (;;) {
    if (lane.attention.load(std::memory_order_acquire)) {
      switch (serve_attention(lane)) {
        case Served::ran:
          continue;
        case Served::stop:
          return;
        case Served::nothing:
          parker.park();
          continue;  // Reserved or held: update_attention unparks.
      }
    }
    if (TaskNode* task = take_from_queue(lane)) {
      run_queue(lane, task);
      continue;
    }
    if (!spin_for_work(lane)) sleep(lane, parker);
  }
}

/// Takes from the ready queue unless the lane is wanted elsewhere. Leaves `working` set if it did.
TaskNode* Scheduler::take_from_queue(Lane& lane) {
  if (!lane.working.load(std::memory_order_relaxed)) {
    if (lane.kind->queue.empty()) {
      leave_run(lane);
      return nullptr;
    }
    lane.working.store(true, std::memory_order_seq_cst);
  }
  TaskNode* task = nullptr;
  if (!lane.attention.load(std::memory_order_seq_cst)) task = lane.kind->queue.pop();
  if (task == nullptr) {
    lane.working.store(false, std::memory_order_seq_cst);
    // A group may have found this lane working in between; it left its attention up.
    leave_run(lane);
  } else if (lane.was_idle) [[unlikely]] {
    lane.was_idle = false;
    // Sequentially consistent, after this lane's last change of `spinning` or `sleeping`: a push
    // that relied on it is seen here, or was taken by another lane.
    if (!lane.kind->queue.empty()) wake_one(*lane.kind);
  }
  return task;
}

void Scheduler::run_queue(Lane& lane, TaskNode* task) {
  while (task != nullptr) {
    if (task->run != lane.last_run.get()) [[unlikely]] {
      leave_run(lane);
      lane.last_run = task->run->shared_from_this();
    }
    task = engine_.execute(*task, lane);
  }
}

/// The lane has nothing more of its last run at hand: perhaps that has ended.
void Scheduler::leave_run(Lane& lane) {
  if (lane.last_run == nullptr) return;
  lane.last_run->check_end();
  lane.last_run.reset();
}

/// Does what the mutex's side wants of the lane. `poller`: of the thread, if it has one.
Scheduler::Served Scheduler::serve_attention(Lane& lane, Poller* poller) {
  leave_run(lane);
  Placed part;
  Handover handover;
  {
    const std::lock_guard lock(mutex_);
    lane.working.store(false, std::memory_order_seq_cst);
    if (lane.inbox.empty()) {
      if (lane.reserved)
        advance(lane, handover);  // It may be the last lane that the group waits for.
    }
    if (lane.inbox.empty()) {
      if (stopping_) return Served::stop;
      if (lane.reserved || holds_ != 0) {
        part.task = nullptr;
      } else {
        update_attention(lane);
        return Served::ran;
      }
    } else {
      part = lane.inbox.front();
      lane.inbox.pop_front();
      update_attention(lane);
    }
  }
  hand_over(handover);
  // A push may have woken just this lane, which has other things to do.
  if (!lane.kind->queue.empty()) wake_one(*lane.kind);
  if (part.task == nullptr) {
    engine_.room_changed();  // A held lane has come to rest: blocked submitters prove anew.
    return Served::nothing;
  }
  if (poller != nullptr) poller->leave();
  engine_.execute_part(part, lane);
  return Served::ran;
}

/// True if there is something to do.
bool Scheduler::spin_for_work(Lane& lane) {
  Kind& kind = *lane.kind;
  if (!os::spinning_pays()) {
    std::this_thread::yield();
    return !kind.queue.empty() || lane.attention.load(std::memory_order_acquire);
  }
  if (kind.spinning.fetch_add(1, std::memory_order_seq_cst) >= spinner_limit()) {
    kind.spinning.fetch_sub(1, std::memory_order_seq_cst);
    return false;
  }
  lane.was_idle = true;
  const std::uint64_t begin = os::cycle_count();
  bool found = false;
  while (!(found = !kind.queue.empty() || lane.attention.load(std::memory_order_acquire))) {
    if (os::cycle_count() - begin > kSpinCycles) break;
    os::cpu_relax();
  }
  kind.spinning.fetch_sub(1, std::memory_order_seq_cst);
  return found;
}

void Scheduler::sleep(Lane& lane, os::Parker& parker) {
  Kind& kind = *lane.kind;
  lane.was_idle = true;
  enter_sleepers(kind, parker);
  if (kind.queue.empty() && !lane.attention.load(std::memory_order_seq_cst)) parker.park();
  leave_sleepers(kind, parker);
}

// ---- Caller lanes -------------------------------------------------------------------------------

void CallerDriver::claim() {
  if (!scheduler_.has_callers_) return;
  Handover handover;
  std::unique_lock lock(scheduler_.mutex_);
  for (const auto& kind : scheduler_.kinds_) {
    if (std::any_of(driven_.begin(), driven_.end(),
                    [&](const Lane* lane) { return lane->kind == kind.get(); })) {
      continue;
    }
    for (Lane* lane : kind->lanes) {
      if (lane->type != Lane::Type::caller || lane->driven) continue;
      lane->driven = true;
      lane->parker = &parker_;
      driven_.push_back(lane);
      // A group waited for a driver.
      if (lane->reserved) scheduler_.advance(*lane, handover);
      break;
    }
  }
  lock.unlock();
  scheduler_.hand_over(handover);
}

CallerDriver::~CallerDriver() {
  if (driven_.empty()) return;
  for (Lane* lane : driven_) {
    scheduler_.leave_run(*lane);
    for (;;) {
      {
        const std::lock_guard lock(scheduler_.mutex_);
        if (lane->inbox.empty()) {  // What was started here must not be left behind.
          lane->driven = false;
          lane->parker = nullptr;
          break;
        }
      }
      (void)scheduler_.serve_attention(*lane, poller_);
    }
  }
  // A push may have woken just this thread, which leaves: somebody else must see to it.
  for (const Lane* lane : driven_) {
    if (!lane->kind->queue.empty()) scheduler_.wake_one(*lane->kind);
  }
  // Whoever waits without a lane may take these over.
  scheduler_.engine_.caller_lanes_free();
}

bool CallerDriver::step() {
  if (driven_.size() < scheduler_.kinds_.size()) claim();
  for (Lane* lane : driven_) {
    if (lane->attention.load(std::memory_order_acquire)) {
      if (scheduler_.serve_attention(*lane, poller_) == Scheduler::Served::ran) return true;
      continue;
    }
    if (TaskNode* task = scheduler_.take_from_queue(*lane)) {
      if (poller_ != nullptr) poller_->leave();
      scheduler_.run_queue(*lane, task);
      // Not working between steps: the thread may have what it waited for and go away.
      lane->working.store(false, std::memory_order_seq_cst);
      return true;
    }
  }
  return false;
}

void CallerDriver::sleep_until(std::chrono::steady_clock::time_point deadline) {
  for (Lane* lane : driven_) {
    lane->was_idle = true;
    enter_sleepers(*lane->kind, parker_);
  }
  const bool work = std::any_of(driven_.begin(), driven_.end(), [](const Lane* lane) {
    return !lane->attention.load(std::memory_order_seq_cst) && !lane->kind->queue.empty();
  });
  if (!work) {
    if (deadline == std::chrono::steady_clock::time_point::max()) {
      parker_.park();
    } else {
      (void)parker_.park_until(deadline);
    }
  }
  for (Lane* lane : driven_)
    leave_sleepers(*lane->kind, parker_);
}

}  // namespace strata::graph
