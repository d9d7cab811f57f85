// Back-pressure: submitters that find no room wait, as long as waiting can help, and not longer.
//
// The proof. A submitter waits for a slot of the window or for a block of the heap. Slots are freed
// by tasks that end, and every task in flight does end by itself, since it depends on earlier tasks
// only; unless the lanes are held, by a thread that is itself waiting here. Blocks are held by open
// scopes, by user handles, and by tasks in flight. Tasks end by themselves. A handle never lets go
// by itself. A scope is closed by its orchestration, if that gets on: if it is not blocked here, or
// if what it is blocked on can be had.
//
// So the set of orchestrations that can get on is the smallest that holds all that are not blocked,
// and each blocked one whose request fits once every block is gone that is held neither by a handle
// nor by a scope outside the set. A request outside the set can never be served. It is refused at
// once; since its orchestration then unwinds and closes its scopes, the others may well get on.
//
// The set only shrinks when an orchestration blocks, allocates or keeps a tensor, so that is when
// it is computed: no timer is involved.

#include <algorithm>
#include <mutex>

#include "graph/engine_state.hpp"

namespace strata::graph {

namespace {

/// Tasks that a submitter without room runs before it looks for room again.
constexpr int kHelpAtOnce = 64;

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
    text += "the lanes are held (Engine::hold_lanes) by the thread that submits";
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
  for (RoomRequest* request : blocked)
    request->parker->unpark();
}

void EngineState::wait_for_room(OrchestrationState& who, CapacityError::Resource resource,
                                std::uint64_t asked, const std::function<bool()>& try_again) {
  // First of all it helps: on a caller lane, a task that it runs itself is a slot that it frees,
  // and several in a row are cheaper than one at a time.
  if (scheduler.has_callers()) {
    CallerDriver driver(scheduler, thread_parker());
    int ran = 0;
    while (ran < kHelpAtOnce && driver.step())
      ++ran;
    if (ran != 0 && try_again()) return;
  }
  RoomRequest request{
      .who = &who, .resource = resource, .asked = asked, .parker = &thread_parker()};
  {
    const std::lock_guard lock(blocked_mutex);
    blocked.push_back(&request);
    // Sequentially consistent, before the look below: whoever makes room after that look sees it.
    blocked_count.fetch_add(1, std::memory_order_seq_cst);
  }
  prove_blocked();
  bool first_look = true;
  wait_until(
      [&] {
        if (who.run->cancelled()) return true;
        if (try_again()) return true;
        if (!first_look && resource == CapacityError::Resource::window) prove_blocked();
        first_look = false;
        const std::lock_guard lock(blocked_mutex);
        return request.hopeless;
      },
      std::chrono::steady_clock::time_point::max());
  {
    const std::lock_guard lock(blocked_mutex);
    std::erase(blocked, &request);
    blocked_count.fetch_sub(1, std::memory_order_seq_cst);
  }
  throw_if_ended(*who.run);
  if (request.hopeless) throw CapacityError(message_of(request.facts), request.facts);
}

/// Finds out whether every blocked submitter can still be served, and refuses one that can't.
void EngineState::prove_blocked() {
  const std::lock_guard runs_lock(runs_mutex);
  const std::lock_guard lock(blocked_mutex);
  std::vector<const OrchestrationState*> stuck;
  std::vector<RoomRequest*> open;
  for (RoomRequest* request : blocked) {
    if (request->hopeless) return;  // It is about to unwind: that may be what the others need.
    if (request->resource == CapacityError::Resource::window) {
      const bool held_by_itself =
          std::find(holders.begin(), holders.end(), request->who->thread) != holders.end();
      if (held_by_itself && scheduler.held_still()) {
        request->facts = {.resource = request->resource,
                          .run = request->who->run->name,
                          .scope = request->who->scope().path,
                          .asked = request->asked,
                          .capacity = window.capacity(),
                          .used = window.capacity(),
                          .setting = "EngineOptions::window",
                          .suggested = 2 * window.capacity()};
        request->hopeless = true;
        request->parker->unpark();
        return;
      }
      continue;  // Tasks in flight end, whatever else happens: it gets on.
    }
    stuck.push_back(request->who);
    open.push_back(request);
  }
  const auto releasable = [&](const BufferRecord& record) {
    if (record.handles.load(std::memory_order_relaxed) != 0) return false;
    if (record.scope == nullptr) return true;
    return std::find(stuck.begin(), stuck.end(), record.scope->owner) == stuck.end();
  };
  for (bool changed = true; changed && !open.empty();) {
    changed = false;
    const std::uint64_t largest = storage.holes_if(releasable).largest;
    for (RoomRequest* request : open) {
      if (Heap::round_up(request->asked) > largest) continue;
      std::erase(stuck, request->who);
      std::erase(open, request);
      changed = true;
      break;
    }
  }
  if (open.empty()) return;
  RoomRequest& refused = *open.back();  // The one that came last: the others were there before it.
  const Heap::Holes holes = storage.holes_if(releasable);
  CapacityError::Facts facts{.resource = refused.resource,
                             .run = refused.who->run->name,
                             .scope = refused.who->scope().path,
                             .asked = refused.asked,
                             .capacity = storage.capacity(),
                             .used = storage.used(),
                             .largest_hole = holes.largest,
                             .fragmented = holes.total >= Heap::round_up(refused.asked),
                             .setting = "EngineOptions::heap"};
  std::uint64_t kept = storage.capacity() - holes.total;
  if (const BufferRecord* oldest =
          storage.oldest([&](const BufferRecord& r) { return !releasable(r); })) {
    facts.oldest_holder =
        (oldest->allocated_by != 0 ? "task " + std::to_string(oldest->allocated_by)
                                   : "allocate()") +
        " of " + oldest->account->name + ", " + std::to_string(oldest->bytes) + " bytes, kept by " +
        (oldest->handles.load(std::memory_order_relaxed) != 0
             ? "a TensorHandle"
             : "scope '" + oldest->scope->path + "'");
  }
  facts.suggested = facts.fragmented ? storage.capacity() + Heap::round_up(refused.asked)
                                     : kept + Heap::round_up(refused.asked);
  refused.facts = std::move(facts);
  refused.hopeless = true;
  refused.parker->unpark();
}

}  // namespace strata::graph
