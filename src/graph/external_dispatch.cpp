// External lanes: handing over, ends, lanes that come and go, cancellation.

#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "graph/engine_state.hpp"
#include "graph/execution.hpp"
#include "graph/scheduler.hpp"

namespace strata::graph {

/// Hands over what was started on external lanes. Without the mutex.
void Scheduler::hand_over(Handover handover) {
  while (Lane* const lane = handover.lanes) {
    handover.lanes = lane->next_handover;
    for (Dispatch* dispatch = lane->first; dispatch != nullptr;) {
      engine_.dispatch_external(*lane, *dispatch);
      dispatch = nullptr;
      Lane::Handing state = Lane::Handing::at_it;
      // Release: who is at the lane next comes after this.
      if (lane->handing.compare_exchange_strong(
              state, Lane::Handing::idle, std::memory_order_release, std::memory_order_relaxed)) {
        break;
      }
      const std::lock_guard lock(mutex_);
      dispatch = lane->outbox.front();
      lane->outbox.pop_front();
      if (lane->outbox.empty()) {
        lane->handing.store(Lane::Handing::at_it, std::memory_order_relaxed);
      }
    }
  }
}

Dispatch* Scheduler::live_dispatch(DispatchId id) noexcept {
  const auto index = static_cast<std::uint32_t>(id.value);
  if (index >= dispatches_.size()) return nullptr;
  Dispatch& dispatch = dispatches_[index];
  return dispatch.live && dispatch.generation == id.value >> 32 ? &dispatch : nullptr;
}

void Scheduler::free_dispatch(Dispatch& dispatch) {
  dispatch.live = false;
  dispatch.failure = nullptr;
  free_dispatches_.push_back(&dispatch);  // Has room: see start_part.
}

std::optional<Placed> Scheduler::end_dispatch(DispatchId id, Handover& handover) {
  const std::lock_guard lock(mutex_);
  Dispatch* const dispatch = live_dispatch(id);
  if (dispatch == nullptr) return std::nullopt;
  const Placed part = dispatch->part;
  Lane& lane = *dispatch->lane;
  free_dispatch(*dispatch);
  --lane.in_flight;
  advance(lane, handover);
  pump(*lane.kind, handover);
  return part;
}

void Scheduler::give_back(DispatchId id) {
  Handover handover;
  {
    const std::lock_guard lock(mutex_);
    Dispatch* const dispatch = live_dispatch(id);
    if (dispatch == nullptr) {
      throw InvalidArgument("Engine::give_back: no dispatch with id " + std::to_string(id.value) +
                            " is at a lane: it was completed before, or is of another engine");
    }
    TaskNode& task = *dispatch->part.task;
    Lane& lane = *dispatch->lane;
    if (task.type == NodeType::group || task.exact_lane) {
      throw InvalidArgument("Engine::give_back: task " + std::to_string(TaskId{task.id}.number()) +
                            " named lane " + std::to_string(lane.id.value) +
                            ": no other may run it; complete it with an error");
    }
    free_dispatch(*dispatch);
    --lane.in_flight;
    if (task.log != nullptr) task.log->state.store(TaskState::ready, std::memory_order_relaxed);
    lane.kind->queue.push_front(&task);
    advance(lane, handover);
    pump(*lane.kind, handover);
  }
  hand_over(handover);
}

// ---- Lanes that come and go ---------------------------------------------------------------------

Lane& Scheduler::external_lane(LaneId lane, const char* caller) const {
  if (lane.value < lanes_.size() && lanes_[lane.value]->type == Lane::Type::external) {
    return *lanes_[lane.value];
  }
  throw InvalidArgument(std::string("Engine::") + caller + ": lane " + std::to_string(lane.value) +
                        " is not an external lane of this engine");
}

void Scheduler::suspend(LaneId id) {
  Lane& lane = external_lane(id, "suspend_lane");
  const std::lock_guard lock(mutex_);
  lane.suspended = true;
}

void Scheduler::resume(LaneId id) {
  Lane& lane = external_lane(id, "resume_lane");
  Handover handover;
  {
    const std::lock_guard lock(mutex_);
    lane.suspended = false;
    pump(*lane.kind, handover);
  }
  hand_over(handover);
}

bool Scheduler::suspended(LaneId id) {
  const Lane& lane = external_lane(id, "lane_is_suspended");
  const std::lock_guard lock(mutex_);
  return lane.suspended;
}

void Scheduler::fail_kind(KindId id, std::exception_ptr error) {
  if (id.value >= kinds_.size() || !kinds_[id.value]->external) {
    throw InvalidArgument("Engine::fail_kind: kind " + std::to_string(id.value) +
                          " is not one of external lanes");
  }
  Kind& kind = *kinds_[id.value];
  Handover handover;
  {
    const std::lock_guard lock(mutex_);
    kind.failure = std::move(error);
    pump(kind, handover);
  }
  hand_over(handover);
}

// ---- Cancellation -------------------------------------------------------------------------------

std::vector<TaskNode*> Scheduler::take_cancelled() {
  std::vector<TaskNode*> taken;
  const std::lock_guard lock(mutex_);
  for (const auto& kind : kinds_) {
    if (!kind->external) continue;
    std::vector<TaskNode*> kept;
    while (TaskNode* const task = kind->queue.pop())
      (must_skip(*task) ? taken : kept).push_back(task);
    for (TaskNode* const task : kept)
      kind->queue.push_front(task);
  }
  return taken;
}

void Scheduler::tell_cancellation(const TaskNode* group) {
  if (group == nullptr) {
    for (const auto& lane : lanes_) {
      if (lane->external != nullptr) lane->external->cancellation();
    }
    return;
  }
  for (std::size_t i = 0; i < group->group->size; ++i) {
    const Lane& lane = *lanes_[group->group->parts[i]->lane.value];
    if (lane.external != nullptr) lane.external->cancellation();
  }
}

// ---- The engine's side
// ---------------------------------------------------------------------------

/// A dispatch has ended: carries that out and hands over what the lane
/// gets next. False if the dispatch had ended before.
template <class FailureOf>
bool EngineState::end_dispatch(DispatchId id, std::string* value, const FailureOf& failure) {
  // The run may end with this, and its engine with it: not before this thread has left.
  struct Inside {
    explicit Inside(EngineState& its_engine) : engine(its_engine) {
      engine.presence.enter_completion();
    }
    ~Inside() {
      // Blocked submitters prove anew.
      engine.presence.leave_completion([this] { engine.room_changed(); });
    }
    EngineState& engine;
  };
  const Inside inside(*this);
  Handover handover;
  const std::optional<Placed> part = scheduler.end_dispatch(id, handover);
  if (!part) return false;
  TaskNode& task = *part->task;
  const std::shared_ptr<const Failure> what = failure(task);
  if (value != nullptr && what == nullptr) {
    task.run->add_value(TaskId{task.id}, part->member, std::move(*value));
  }
  part_done(task, what);
  scheduler.hand_over(handover);
  return true;
}

void EngineState::dispatch_external(Lane& lane, Dispatch& dispatch) {
  const DispatchId id = dispatch.id();
  TaskNode& task = *dispatch.part.task;
  if (dropped(task)) {
    (void)end_dispatch(id, nullptr, [](const TaskNode& of) { return skip_of(of); });
    return;
  }
  if (dispatch.failure != nullptr) {
    (void)end_dispatch(id, nullptr, [error = dispatch.failure](const TaskNode& of) {
      return failure_of(of, error);
    });
    return;
  }
  if (task.log != nullptr) [[unlikely]]
    log_start(task, lane);
  auto* context = ::new (static_cast<void*>(dispatch.context))
      TaskContext(context_of(task, dispatch.part.member, lane));
  try {
    lane.external->dispatch(id, *context, *task.part_at(dispatch.part.member).body);
  } catch (...) {
    // If the lane has completed it, or given it back, before it threw, then that stands.
    (void)end_dispatch(id, nullptr,
                       [](const TaskNode& of) { return failure_of(of, std::current_exception()); });
  }
}

void EngineState::complete_external(DispatchId id, const std::exception_ptr& error,
                                    std::string* value) {
  const bool was_there = end_dispatch(id, value, [&](const TaskNode& task) {
    return error == nullptr ? nullptr : failure_of(task, error);
  });
  if (was_there) return;
  throw InvalidArgument("Engine::complete: no dispatch with id " + std::to_string(id.value) +
                        " is at a lane: it was completed before, or is of another engine");
}

/// Some run was cancelled: what of it waits for external lanes ends now, whether or not those ever
/// take a task again, and they look at what they have.
void EngineState::drop_cancelled() {
  for (TaskNode* const task : scheduler.take_cancelled())
    (void)finish(*task, skip_of(*task), nullptr);
  scheduler.tell_cancellation(nullptr);
}

}  // namespace strata::graph
