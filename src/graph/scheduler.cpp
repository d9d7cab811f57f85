#include "graph/scheduler.hpp"

#include <algorithm>
#include <mutex>
#include <new>

#include "base/planted_fault.hpp"
#include "graph/engine_state.hpp"
#include "os/cpu.hpp"

namespace strata::graph {

const std::shared_ptr<os::Parker>& shared_thread_parker() {
  thread_local const auto parker = std::make_shared<os::Parker>();
  return parker;
}

os::Parker& thread_parker() { return *shared_thread_parker(); }

Scheduler::Scheduler(EngineState& engine, const std::vector<KindOptions>& kinds, std::size_t window)
    : engine_(engine) {
  for (const KindOptions& options : kinds) {
    Kind& kind = *kinds_.emplace_back(std::make_unique<Kind>(options.name, window));
    kind.id = KindId{static_cast<std::uint32_t>(kinds_.size() - 1)};
    kind.depth = options.depth;
    kind.external = !options.external.empty();
    const auto add_lane = [&](Lane::Type type) -> Lane& {
      Lane& lane = *lanes_.emplace_back(std::make_unique<Lane>());
      lane.id = LaneId{static_cast<std::uint32_t>(lanes_.size() - 1)};
      lane.kind = &kind;
      lane.type = type;
      lane.driven = type != Lane::Type::caller;
      kind.lanes.push_back(&lane);
      return lane;
    };
    for (unsigned i = 0; i < options.threads; ++i)
      add_lane(Lane::Type::thread);
    for (unsigned i = 0; i < options.callers; ++i)
      add_lane(Lane::Type::caller);
    has_callers_ = has_callers_ || options.callers != 0;
    for (const auto& external : options.external) {
      add_lane(Lane::Type::external).external = external;
    }
  }
  for (auto& lane : lanes_) {
    if (lane->type == Lane::Type::thread) {
      threads_.emplace_back([this, l = lane.get()] { lane_main(*l); });
    }
  }
}

Scheduler::~Scheduler() { stop(); }

void Scheduler::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    for (auto& lane : lanes_)
      update_attention(*lane);
  }
  for (std::thread& thread : threads_)
    thread.join();
  threads_.clear();
}

// ---- From submission and completion -------------------------------------------------------------

void Scheduler::enlist(TaskNode& task) {
  if (task.type == NodeType::group) {
    const std::lock_guard lock(mutex_);
    for (std::uint32_t i = 0; i < task.group->size; ++i) {
      lanes_[task.group->parts[i]->lane.value]->order.push_back({&task, i});
    }
  } else if (task.exact_lane && !task.unordered && !base::planted("lane_order_ignored")) {
    const std::lock_guard lock(mutex_);
    lanes_[task.place]->order.push_back({&task, 0});
  }
}

void Scheduler::make_ready(TaskNode& task) {
  Handover handover;
  if (task.type == NodeType::group) {
    {
      const std::lock_guard lock(mutex_);
      task.order_ready = true;
      (void)try_start_group(task, handover);
    }
    hand_over(handover);
    return;
  }
  if (task.exact_lane) {
    {
      const std::lock_guard lock(mutex_);
      Lane& lane = *lanes_[task.place];
      task.order_ready = true;
      if (task.unordered || base::planted("lane_order_ignored")) lane.loose.push_back({&task, 0});
      advance(lane, handover);
    }
    hand_over(handover);
    return;
  }
  Kind& kind = *kinds_[task.place];
  if (kind.external) {
    {
      const std::lock_guard lock(mutex_);
      Lane* lane = nullptr;
      if (holds_ == 0 && kind.failure == nullptr && kind.queue.empty()) lane = lane_with_room(kind);
      if (lane != nullptr) {
        start_part(*lane, {&task, 0}, handover);
      } else {
        kind.queue.push(&task);
        pump(kind, handover);
      }
    }
    hand_over(handover);
    return;
  }
  kind.queue.push(&task);
  wake_one(kind);
}

void Scheduler::withdraw(TaskNode& task) {
  Handover handover;
  {
    const std::lock_guard lock(mutex_);
    const auto leave = [&](Lane& lane) {
      std::erase_if(lane.order, [&](const Placed& p) { return p.task == &task; });
    };
    if (task.type == NodeType::group) {
      for (std::size_t i = 0; i < task.group->size; ++i)
        leave(*lanes_[task.group->parts[i]->lane.value]);
      for (std::size_t i = 0; i < task.group->size; ++i)
        advance(*lanes_[task.group->parts[i]->lane.value], handover);
    } else if (task.exact_lane) {
      leave(*lanes_[task.place]);
      advance(*lanes_[task.place], handover);
    }
  }
  hand_over(handover);
}

void Scheduler::part_ended(Lane& lane) {
  bool held = false;
  Handover handover;
  {
    const std::lock_guard lock(mutex_);
    --lane.in_flight;
    advance(lane, handover);
    held = holds_ != 0;
  }
  hand_over(handover);
  if (held) engine_.room_changed();  // Blocked submitters prove anew.
}

// ---- The orders; mutex held ---------------------------------------------------------------------

bool Scheduler::idle(const Lane& lane) const noexcept {
  // Sequentially consistent: see Lane::working.
  return lane.in_flight == 0 && lane.driven && !lane.working.load(std::memory_order_seq_cst);
}

void Scheduler::update_attention(Lane& lane) {
  const bool up = stopping_ || holds_ != 0 || lane.reserved || !lane.inbox.empty();
  lane.attention.store(up, std::memory_order_seq_cst);
  if (lane.parker != nullptr && lane.type != Lane::Type::external) lane.parker->unpark();
}

/// Starts what may start on the lane, in its order.
void Scheduler::advance(Lane& lane, Handover& handover) {
  const std::uint32_t room = lane.type == Lane::Type::external ? lane.kind->depth : 1;
  while (holds_ == 0 && !lane.reserved && lane.in_flight < room) {
    if (!lane.order.empty() && lane.order.front().task->order_ready) {
      const Placed first = lane.order.front();
      if (first.task->type == NodeType::group) {
        if (base::planted("group_not_atomic")) {
          lane.order.pop_front();
          start_part(lane, first, handover);
          continue;
        }
        if (try_start_group(*first.task, handover)) continue;
        if (lane.reserved) return;
      } else {
        lane.order.pop_front();
        start_part(lane, first, handover);
        continue;
      }
    }
    if (lane.loose.empty()) return;
    const Placed next = lane.loose.front();
    lane.loose.pop_front();
    start_part(lane, next, handover);
  }
  if (lane.reserved && !lane.order.empty())
    (void)try_start_group(*lane.order.front().task, handover);
}

/// Reserves the group's lanes once it is first on all of them, and starts it once they are idle.
bool Scheduler::try_start_group(TaskNode& group, Handover& handover) {
  if (base::planted("group_not_atomic")) {
    for (std::size_t i = 0; i < group.group->size; ++i) {
      Lane& lane = *lanes_[group.group->parts[i]->lane.value];
      if (lane.order.empty() || lane.order.front().task != &group || lane.in_flight != 0) continue;
      const Placed part = lane.order.front();
      lane.order.pop_front();
      start_part(lane, part, handover);
    }
    return false;
  }
  if (!group.order_ready || holds_ != 0) return false;
  const auto each_lane = [&](auto&& visit) {
    for (std::size_t i = 0; i < group.group->size; ++i)
      visit(*lanes_[group.group->parts[i]->lane.value]);
  };
  bool first = true;
  each_lane([&](Lane& lane) {
    first = first && !lane.order.empty() && lane.order.front().task == &group;
  });
  if (!first) return false;
  each_lane([&](Lane& lane) {
    lane.reserved = true;
    update_attention(lane);
  });
  bool all_idle = true;
  each_lane([&](Lane& lane) { all_idle = all_idle && idle(lane); });
  if (!all_idle) return false;  // The last lane to become idle comes here again.
  group.group->dropped = group.run->cancelled() && !base::planted("cancel_runs_waiting");
  each_lane([&](Lane& lane) {
    const Placed part = lane.order.front();
    lane.order.pop_front();
    lane.reserved = false;
    start_part(lane, part, handover);
  });
  return true;
}

void Scheduler::start_part(Lane& lane, Placed part, Handover& handover,
                           std::exception_ptr failure) {
  ++lane.in_flight;
  if (lane.type != Lane::Type::external) {
    lane.inbox.push_back(part);
    update_attention(lane);
    return;
  }
  Dispatch* dispatch = nullptr;
  if (free_dispatches_.empty()) {
    dispatch = &dispatches_.emplace_back();
    dispatch->index = static_cast<std::uint32_t>(dispatches_.size() - 1);
    free_dispatches_.reserve(dispatches_.size());
  } else {
    dispatch = free_dispatches_.back();
    free_dispatches_.pop_back();
  }
  ++dispatch->generation;
  dispatch->live = true;
  dispatch->part = part;
  dispatch->lane = &lane;
  dispatch->failure = std::move(failure);
  Lane::Handing state = lane.handing.load(std::memory_order_acquire);
  for (;;) {
    if (state == Lane::Handing::idle) {
      // Nobody else changes `idle`: the mutex is ours. Acquire, above and below: what the thread
      // that was at it before did comes before what this one does.
      lane.handing.store(Lane::Handing::at_it, std::memory_order_relaxed);
      lane.first = dispatch;
      lane.next_handover = handover.lanes;
      handover.lanes = &lane;
      return;
    }
    if (state == Lane::Handing::more ||
        lane.handing.compare_exchange_weak(state, Lane::Handing::more, std::memory_order_acquire)) {
      lane.outbox.push_back(dispatch);  // Who sees `more` takes the mutex to look.
      return;
    }
  }
}

/// The lane that is to get the next task of the kind's queue: an idle one first, or null.
Lane* Scheduler::lane_with_room(const Kind& kind) noexcept {
  Lane* best = nullptr;
  for (Lane* lane : kind.lanes) {
    if (lane->reserved || lane->suspended || lane->in_flight >= kind.depth) continue;
    if (best == nullptr || lane->in_flight < best->in_flight) best = lane;
  }
  return best;
}

/// Feeds external lanes from their kind's queue.
void Scheduler::pump(Kind& kind, Handover& handover) {
  while (holds_ == 0 && !kind.queue.empty()) {
    // Of a kind that has failed nothing reaches a lane: any will do.
    Lane* const lane = kind.failure != nullptr ? kind.lanes.front() : lane_with_room(kind);
    if (lane == nullptr) return;
    TaskNode* task = kind.queue.pop();
    if (task == nullptr) return;
    start_part(*lane, {task, 0}, handover, kind.failure);
  }
}

// ---- Holding ------------------------------------------------------------------------------------

void Scheduler::hold() {
  const std::lock_guard lock(mutex_);
  ++holds_;
  engine_.presence.begin_hold();
  for (auto& lane : lanes_)
    update_attention(*lane);
}

void Scheduler::release_hold() {
  Handover handover;
  {
    const std::lock_guard lock(mutex_);
    engine_.presence.end_hold();
    if (--holds_ != 0) return;
    for (auto& lane : lanes_)
      update_attention(*lane);
    for (auto& lane : lanes_)
      advance(*lane, handover);
    for (auto& kind : kinds_) {
      if (kind->external) pump(*kind, handover);
    }
  }
  hand_over(handover);
  for (auto& kind : kinds_) {
    if (!kind->external) wake_one(*kind);
  }
}

bool Scheduler::held_still() {
  const std::lock_guard lock(mutex_);
  if (holds_ == 0 || engine_.presence.completions() != 0) return false;
  return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
    return lane->in_flight == 0 && !lane->working.load(std::memory_order_seq_cst);
  });
}

}  // namespace strata::graph
