// Back-pressure: submitters that find no room wait, as long as waiting can help, and not longer.
//
// The proof. An orchestration may be blocked here for a slot of the window, for a block of the
// heap, or because it waits for another run. What each needs to get on:
//   - a slot: that tasks in flight end;
//   - a block: that one large enough is free when every block has gone that can go. A block is held
//     by a scope, by user handles, by tasks in flight. Handles never let go by themselves. A scope
//     is closed by its orchestration, if that gets on. Tasks let go when they end;
//   - another run: that the run's own orchestration gets on.
// Tasks in flight do end by themselves, since they depend on earlier tasks only, unless the lanes
// are held (Engine::hold_lanes), nothing runs, and every thread that holds them is blocked here.
//
// So the orchestrations that can get on are the smallest set that holds all that are not blocked,
// and each blocked one that gets what it needs from those in the set. Who asks for room and is
// outside the set can never be served, and one such is refused at once. Its orchestration then
// unwinds and closes its scopes, and whoever else is blocked looks again.
//
// The set can shrink only when an orchestration blocks, allocates or keeps a tensor, or when the
// lanes come to rest while held. Those are the times at which it is computed; no timer is involved.

#include <algorithm>
#include <mutex>

#include "graph/engine_state.hpp"

namespace strata::graph {

namespace {

/// Tasks that a submitter without room runs before it looks for room again.
constexpr std::uint64_t kHelpAtOnce = 64;

std::string amount(std::uint64_t value, CapacityError::Resource resource) {
  return std::to_string(value) + (resource == CapacityError::Resource::heap ? " bytes" : " tasks");
}

std::string message_of(const CapacityError::Facts& facts) {
  const bool heap = facts.resource == CapacityError::Resource::heap;
  std::string text = facts.run + ", scope '" + facts.scope + "': asked for " +
                     amount(facts.asked, facts.resource) + " of the " + (heap ? "heap" : "window") +
                     " (capacity " + std::to_string(facts.capacity) + ", used " +
                     std::to_string(facts.used) + "), and waiting can't end: ";
  if (!heap) {
    text += "the lanes are held (Engine::hold_lanes) by threads that wait themselves";
  } else if (facts.asked > facts.capacity) {
    text += "it is more than the whole heap";
  } else {
    text += "when all that can end has ended, the largest hole is " +
            std::to_string(facts.largest_hole) + " bytes";
    if (facts.fragmented) text += " (fragmentation: the holes together would be enough)";
    if (!facts.oldest_holder.empty()) text += "; oldest holder: " + facts.oldest_holder;
  }
  return text + ". Set " + facts.setting + " to " + std::to_string(facts.suggested) +
         (heap ? " or more, or close scopes and drop handles earlier"
               : " or more, or release the hold before");
}

}  // namespace

void EngineState::wake_blocked() noexcept {
  const std::lock_guard lock(blocked_mutex);
  // Release: who sees the new count sees what made the room.
  room_changes.fetch_add(1, std::memory_order_release);
  for (RoomRequest* request : blocked)
    request->parker->unpark();
}

void EngineState::enter_blocked(RoomRequest& request) {
  const std::lock_guard lock(blocked_mutex);
  blocked.push_back(&request);
  // Sequentially consistent, before the caller looks again: who makes room after that look sees it.
  blocked_count.fetch_add(1, std::memory_order_seq_cst);
}

void EngineState::leave_blocked(RoomRequest& request) {
  {
    const std::lock_guard lock(blocked_mutex);
    std::erase(blocked, &request);
    blocked_count.fetch_sub(1, std::memory_order_seq_cst);
  }
  // One that was refused is no longer in the way of another proof.
  if (request.hopeless) wake_blocked();
}

void EngineState::wait_for_room(OrchestrationState& who, CapacityError::Resource resource,
                                std::uint64_t asked, const std::function<bool()>& try_again) {
  // First of all it helps: on a caller lane, a task that it runs itself is a slot that it frees,
  // and several in a row are cheaper than one at a time.
  if (scheduler.has_callers()) {
    CallerDriver driver(scheduler, thread_parker());
    std::uint64_t ran = 0;
    const std::uint64_t most =
        resource == CapacityError::Resource::window ? std::max(asked, kHelpAtOnce) : kHelpAtOnce;
    while (ran < most && driver.step())
      ++ran;
    if (ran != 0 && try_again()) return;
  }
  // Likewise, completions that are there already make room at little cost.
  if (options.progress != nullptr) {
    Poller poller(options.progress.get());
    std::uint64_t looks = 0;
    while (looks < kHelpAtOnce && poller.look())
      ++looks;
    if (looks != 0 && try_again()) return;
  }
  RoomRequest request{.who = &who,
                      .need = resource == CapacityError::Resource::window
                                  ? RoomRequest::Need::slots
                                  : RoomRequest::Need::bytes,
                      .asked = asked,
                      .parker = &thread_parker()};
  enter_blocked(request);
  std::uint64_t seen = ~std::uint64_t{0};
  wait_until(
      [&] {
        if (who.run->cancelled()) return true;
        // Looks only when something has changed: this is asked again and again.
        const std::uint64_t now = room_changes.load(std::memory_order_acquire);
        if (now == seen) return false;
        seen = now;
        if (try_again()) return true;
        prove_blocked();
        const std::lock_guard lock(blocked_mutex);
        return request.hopeless;
      },
      std::chrono::steady_clock::time_point::max());
  leave_blocked(request);
  throw_if_ended(*who.run);
  if (request.hopeless) throw CapacityError(message_of(request.facts), request.facts);
}

void EngineState::wait_for_users(OrchestrationState& who, const BufferRecord& buffer) {
  RoomRequest request{.who = &who, .need = RoomRequest::Need::users, .parker = &thread_parker()};
  enter_blocked(request);
  prove_blocked();
  // Acquire: what the users did happens before the memory is taken away.
  wait_until([&] { return buffer.holders.load(std::memory_order_acquire) == 0; },
             std::chrono::steady_clock::time_point::max());
  leave_blocked(request);
}

/// Finds out whether every blocked orchestration can still get on, and refuses one that can't.
void EngineState::prove_blocked() {
  const std::lock_guard lock(blocked_mutex);
  std::vector<RoomRequest*> stuck;
  for (RoomRequest* request : blocked) {
    if (request->hopeless) return;  // It is about to unwind: that may be what the others need.
    stuck.push_back(request);
  }
  const bool held_still = scheduler.held_still();
  const auto is_stuck = [&](const auto& matches) {
    return std::any_of(stuck.begin(), stuck.end(), matches);
  };
  const auto tasks_end = [&] {
    return !held_still || !std::all_of(holders.begin(), holders.end(), [&](std::thread::id holder) {
      return is_stuck([&](const RoomRequest* r) { return r->who->thread == holder; });
    });
  };
  const auto releasable = [&](const BufferRecord& record) {
    if (record.handles.load(std::memory_order_relaxed) != 0) return false;
    const std::uint32_t by_scope = record.scope != nullptr ? 1 : 0;
    if (record.holders.load(std::memory_order_relaxed) > by_scope && !tasks_end()) return false;
    return by_scope == 0 ||
           !is_stuck([&](const RoomRequest* r) { return r->who->is_inside(record.scope->owner); });
  };
  const auto gets_on = [&](const RoomRequest& request) {
    switch (request.need) {
      case RoomRequest::Need::slots:
      case RoomRequest::Need::users:
        return tasks_end();
      case RoomRequest::Need::bytes:
        return storage.holes_if(releasable).largest >= Heap::round_up(request.asked);
      case RoomRequest::Need::run_end:
        return !is_stuck([&](const RoomRequest* r) { return r->who->works_for(request.run); }) &&
               tasks_end();
    }
    return true;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (RoomRequest* request : stuck) {
      if (!gets_on(*request)) continue;
      std::erase(stuck, request);
      changed = true;
      break;
    }
  }
  // The one that came last is refused: the others were there before it.
  const auto refused = std::find_if(stuck.rbegin(), stuck.rend(), [](const RoomRequest* r) {
    return r->need == RoomRequest::Need::slots || r->need == RoomRequest::Need::bytes;
  });
  if (refused == stuck.rend()) return;
  RoomRequest& request = **refused;
  if (request.need == RoomRequest::Need::slots) {
    const std::lock_guard graph_lock(graph_mutex);
    if (window.has_room_for(request.asked)) return;
    request.facts = {.resource = CapacityError::Resource::window,
                     .asked = request.asked,
                     .capacity = window.capacity(),
                     .used = window.in_flight(),
                     .setting = options.window_setting,
                     .suggested = 2 * window.capacity()};
  } else {
    request.facts = heap_facts(request.asked, releasable);
  }
  request.facts.run = request.who->run->name;
  request.facts.scope = request.who->scope().path;
  request.hopeless = true;
  room_changes.fetch_add(1, std::memory_order_release);  // So that it looks.
  request.parker->unpark();
}

CapacityError::Facts EngineState::heap_facts(
    std::uint64_t asked, const std::function<bool(const BufferRecord&)>& releasable) {
  const Heap::Holes holes = storage.holes_if(releasable);
  CapacityError::Facts facts{.resource = CapacityError::Resource::heap,
                             .asked = asked,
                             .capacity = storage.capacity(),
                             .used = storage.used(),
                             .largest_hole = holes.largest,
                             .fragmented = holes.total >= Heap::round_up(asked),
                             .setting = options.heap_setting};
  // Behind all that is there now there would be room for it.
  facts.suggested =
      (holes.total == storage.capacity() ? 0 : storage.capacity()) + Heap::round_up(asked);
  const std::lock_guard graph_lock(graph_mutex);  // Keeps the record from being used again.
  const BufferRecord* const oldest =
      storage.oldest([&](const BufferRecord& record) { return !releasable(record); });
  if (oldest != nullptr && oldest->account != nullptr) {
    facts.oldest_holder =
        (oldest->allocated_by != 0 ? "task " + std::to_string(TaskId{oldest->allocated_by}.number())
                                   : "allocate()") +
        " of " + oldest->account->name + ", " + std::to_string(oldest->bytes) + " bytes, kept by ";
    if (oldest->handles.load(std::memory_order_relaxed) != 0) {
      facts.oldest_holder += "a TensorHandle";
    } else if (oldest->scope != nullptr) {
      facts.oldest_holder += "scope '" + oldest->scope->path + "'";
    } else {
      facts.oldest_holder += "tasks that can't start";
    }
  }
  return facts;
}

}  // namespace strata::graph
