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
  if (task.type == NodeType::group) {
    {
      const std::lock_guard lock(mutex_);
      task.order_ready = true;
      (void)try_start_group(task);
    }
    drain_outboxes();
    return;
  }
  if (task.exact_lane) {
    {
      const std::lock_guard lock(mutex_);
      Lane& lane = *lanes_[task.place];
      task.order_ready = true;
      if (task.unordered || base::planted("lane_order_ignored")) lane.loose.push_back({&task, 0});
      advance(lane);
    }
    drain_outboxes();
    return;
  }
  Kind& kind = *kinds_[task.place];
  kind.queue.push(&task);
  if (kind.external) [[unlikely]] {
    {
      const std::lock_guard lock(mutex_);
      pump(kind);
    }
    drain_outboxes();
    return;
  }
  wake_one(kind);
}

void Scheduler::withdraw(TaskNode& task) {
  {
    const std::lock_guard lock(mutex_);
    const auto leave = [&](Lane& lane) {
      std::erase_if(lane.order, [&](const Placed& p) { return p.task == &task; });
    };
    if (task.type == NodeType::group) {
      for (std::size_t i = 0; i < task.group->size; ++i)
        leave(*lanes_[task.group->parts[i]->lane.value]);
      for (std::size_t i = 0; i < task.group->size; ++i)
        advance(*lanes_[task.group->parts[i]->lane.value]);
    } else if (task.exact_lane) {
      leave(*lanes_[task.place]);
      advance(*lanes_[task.place]);
    }
  }
  drain_outboxes();
}

void Scheduler::part_ended(Lane& lane) {
  bool held = false;
  {
    const std::lock_guard lock(mutex_);
    --lane.in_flight;
    advance(lane);
    if (lane.kind->external) pump(*lane.kind);
    held = holds_ != 0;
  }
  drain_outboxes();
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
void Scheduler::advance(Lane& lane) {
  const std::uint32_t room = lane.type == Lane::Type::external ? lane.kind->depth : 1;
  while (holds_ == 0 && !lane.reserved && lane.in_flight < room) {
    if (!lane.order.empty() && lane.order.front().task->order_ready) {
      const Placed first = lane.order.front();
      if (first.task->type == NodeType::group) {
        if (base::planted("group_not_atomic")) {
          lane.order.pop_front();
          start_part(lane, first);
          continue;
        }
        if (try_start_group(*first.task)) continue;
        if (lane.reserved) return;
      } else {
        lane.order.pop_front();
        start_part(lane, first);
        continue;
      }
    }
    if (lane.loose.empty()) return;
    const Placed next = lane.loose.front();
    lane.loose.pop_front();
    start_part(lane, next);
  }
  if (lane.reserved && !lane.order.empty()) (void)try_start_group(*lane.order.front().task);
}

/// Reserves the group's lanes once it is first on all of them, and starts it once they are idle.
bool Scheduler::try_start_group(TaskNode& group) {
  if (base::planted("group_not_atomic")) {
    for (std::size_t i = 0; i < group.group->size; ++i) {
      Lane& lane = *lanes_[group.group->parts[i]->lane.value];
      if (lane.order.empty() || lane.order.front().task != &group || lane.in_flight != 0) continue;
      const Placed part = lane.order.front();
      lane.order.pop_front();
      start_part(lane, part);
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
    start_part(lane, part);
  });
  return true;
}

void Scheduler::start_part(Lane& lane, Placed part) {
  ++lane.in_flight;
  if (lane.type != Lane::Type::external) {
    lane.inbox.push_back(part);
    update_attention(lane);
    return;
  }
  std::uint32_t index = 0;
  if (free_dispatches_.empty()) {
    index = static_cast<std::uint32_t>(dispatches_.size());
    dispatches_.emplace_back();
  } else {
    index = free_dispatches_.back();
    free_dispatches_.pop_back();
  }
  Dispatch& dispatch = dispatches_[index];
  ++dispatch.generation;
  dispatch.live = true;
  dispatch.part = part;
  dispatch.lane = &lane;
  lane.outbox.push_back(index);
  if (!lane.draining) {
    lane.draining = true;
    to_drain_.push_back(&lane);
  }
}

/// Feeds external lanes from their kind's queue: idle lanes first, then those with room.
void Scheduler::pump(Kind& kind) {
  while (holds_ == 0 && !kind.queue.empty()) {
    Lane* best = nullptr;
    for (Lane* lane : kind.lanes) {
      if (lane->reserved || lane->in_flight >= kind.depth) continue;
      if (best == nullptr || lane->in_flight < best->in_flight) best = lane;
    }
    if (best == nullptr) return;
    TaskNode* task = kind.queue.pop();
    if (task == nullptr) return;  // Its push is not complete; the pusher pumps next.
    start_part(*best, {task, 0});
  }
}

void Scheduler::drain_outboxes() {
  for (;;) {
    Lane* lane = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (to_drain_.empty()) return;
      lane = to_drain_.back();
      to_drain_.pop_back();
    }
    // One thread at a time hands over a lane's outbox, so its order is kept.
    for (;;) {
      Dispatch* dispatch = nullptr;
      DispatchId id;
      {
        const std::lock_guard lock(mutex_);
        if (lane->outbox.empty()) {
          lane->draining = false;
          break;
        }
        const std::uint32_t index = lane->outbox.front();
        lane->outbox.pop_front();
        dispatch = &dispatches_[index];
        id.value = (std::uint64_t{dispatch->generation} << 32) | index;
      }
      engine_.dispatch_external(*lane, dispatch->part, id, dispatch->context);
    }
  }
}

Scheduler::Ended Scheduler::end_dispatch(DispatchId id) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::uint32_t>(id.value);
  if (index >= dispatches_.size() || !dispatches_[index].live ||
      dispatches_[index].generation != id.value >> 32) {
    throw InvalidArgument("Engine::complete: no dispatch with id " + std::to_string(id.value) +
                          " is at a lane: it was completed before, or is of another engine");
  }
  Dispatch& dispatch = dispatches_[index];
  dispatch.live = false;
  free_dispatches_.push_back(index);
  return {dispatch.part, dispatch.lane};
}

// ---- Holding ------------------------------------------------------------------------------------

void Scheduler::hold() {
  const std::lock_guard lock(mutex_);
  ++holds_;
  for (auto& lane : lanes_)
    update_attention(*lane);
}

void Scheduler::release_hold() {
  {
    const std::lock_guard lock(mutex_);
    if (--holds_ != 0) return;
    for (auto& lane : lanes_)
      update_attention(*lane);
    for (auto& lane : lanes_)
      advance(*lane);
    for (auto& kind : kinds_) {
      if (kind->external) pump(*kind);
    }
  }
  drain_outboxes();
  for (auto& kind : kinds_) {
    if (!kind->external) wake_one(*kind);
  }
}

bool Scheduler::held_still() {
  const std::lock_guard lock(mutex_);
  if (holds_ == 0) return false;
  return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
    return lane->in_flight == 0 && !lane->working.load(std::memory_order_seq_cst);
  });
}

}  // namespace strata::graph
