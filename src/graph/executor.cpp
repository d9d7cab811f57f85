// Running bodies, and what happens when a task ends.

#include <exception>
#include <memory>
#include <mutex>

#include "base/planted_fault.hpp"
#include "graph/engine_state.hpp"
#include "graph/execution.hpp"
#include "os/cpu.hpp"

namespace strata::graph {

namespace {

/// Whether a lane that has just made `task` ready may run it next: only if nothing is before it.
bool goes_on_here(const TaskNode& task, const Lane& lane) {
  return task.type == NodeType::task && !task.exact_lane && task.priority == 0 &&
         task.host == nullptr && task.place == lane.kind->id.value && lane.kind->queue.empty() &&
         !lane.attention.load(std::memory_order_relaxed);
}

}  // namespace

TaskNode* EngineState::execute(TaskNode& task, Lane& lane) {
  if (must_skip(task)) [[unlikely]]
    return finish(task, skip_of(task), &lane);
  if (task.log != nullptr) [[unlikely]]
    log_start(task, lane);
  TaskContext context(task.part.arguments,
                      {.task = TaskId{task.id}, .name = task.name, .lane = lane.id},
                      run_is_cancelled, task.run);
  if (base::planted("early_release")) {
    for (Edge* e = task.successors.load(); e != nullptr && e != Node::closed_list(); e = e->next) {
      std::this_thread::yield();
    }
    Edge* list = task.successors.exchange(nullptr);
    while (list != nullptr) {
      Edge* next = list->next;
      if (list->to->release()) make_ready(*list->to);
      list = next;
    }
  }
  std::shared_ptr<const Failure> failure;
  try {
    (*task.part.body)(context);
  } catch (...) {
    failure = failure_of(task, std::current_exception());
  }
  return finish(task, failure, &lane);
}

void EngineState::execute_part(Placed part, Lane& lane) {
  TaskNode& task = *part.task;
  TaskPart& work = task.part_at(part.member);
  std::shared_ptr<const Failure> failure;
  if (dropped(task)) {
    failure = skip_of(task);
  } else {
    if (task.log != nullptr) [[unlikely]]
      log_start(task, lane);
    TaskContext context = context_of(task, part.member, lane);
    try {
      (*work.body)(context);
    } catch (...) {
      failure = failure_of(task, std::current_exception());
    }
  }
  part_done(task, failure);
  scheduler.part_ended(lane);
}

/// One part has ended; the last one ends the task.
void EngineState::part_done(TaskNode& task, const std::shared_ptr<const Failure>& failure) {
  if (task.type != NodeType::group) {
    (void)finish(task, failure, nullptr);
    return;
  }
  if (failure != nullptr) {
    bool first = false;
    {
      const std::lock_guard lock(task.run->mutex);
      first = !task.group->failed.load(std::memory_order_relaxed);
      if (first) task.group->failure = failure;
      task.group->failed.store(true, std::memory_order_relaxed);
    }
    if (first)
      scheduler.tell_cancellation(&task);  // The group is there: this member has not ended.
  }
  // Acquire and release: what every member did happens before the group's end.
  if (task.group->members_left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::shared_ptr<const Failure> first = std::move(task.group->failure);
  task.group->failure = nullptr;
  (void)finish(task, first, nullptr);
}

void EngineState::make_ready(Node& node) {
  if (node.type >= NodeType::join) {
    (void)finish(node, nullptr, nullptr);
    return;
  }
  auto& task = static_cast<TaskNode&>(node);
  if (settles_at_once(task)) {
    (void)finish(task, must_skip(task) ? skip_of(task) : nullptr, nullptr);
  } else {
    start(task);
  }
}

/// True for a ready task that ends without running: it is skipped, or has no body. Then it has left
/// the lanes' orders.
bool EngineState::settles_at_once(TaskNode& task) {
  if (task.log != nullptr) [[unlikely]]
    log_ready(task);
  if (task.host != nullptr) return false;
  if (must_skip(task)) [[unlikely]] {
    if (task.exact_lane || task.type == NodeType::group) scheduler.withdraw(task);
    return true;
  }
  return task.type == NodeType::task && !*task.part.body;
}

void EngineState::log_ready(TaskNode& task) {
  task.log->state.store(TaskState::ready, std::memory_order_relaxed);
  task.log->ready.store(os::cycle_count(), std::memory_order_relaxed);
  const std::lock_guard lock(graph_mutex);
  const Edge* last = task.last_edge.load(std::memory_order_relaxed);
  while (last != nullptr) {
    task.log->last_from.store(last->from, std::memory_order_relaxed);
    Node* const join = tracker.kept_join(last->from);
    last = join == nullptr ? nullptr : join->last_edge.load(std::memory_order_relaxed);
  }
}

/// Starts a ready task, or tells the orchestration that waits for its turn.
void EngineState::start(TaskNode& task) {
  if (HostWait* const host = task.host) {
    const std::shared_ptr<os::Parker> parker = host->parker;
    host->ready.store(true, std::memory_order_release);  // `host` may be gone from here on.
    parker->unpark();
    return;
  }
  scheduler.make_ready(task);
}

/// Makes a failure known before anything that waited for the task is released: from here on its
/// bytes are invalid for whoever is submitted.
void EngineState::settle(TaskNode& task, const std::shared_ptr<const Failure>& failure) {
  {
    const std::lock_guard lock(graph_mutex);
    // What is passed on is the first cause, not each skip on the way.
    std::shared_ptr<const Failure> cause = failure;
    const Failure* const poison = task.poison.load(std::memory_order_relaxed);
    if (failure->what.exception == nullptr && poison != nullptr) cause = poison->shared_from_this();
    failures.emplace(task.id, cause);
    task.poison.store(cause.get(), std::memory_order_relaxed);
    for (std::size_t p = 0; p < task.part_count(); ++p) {
      const detail::ArgumentBlock& block = task.part_at(p).arguments;
      for (std::uint32_t i = 0; i < block.tensor_count; ++i) {
        const detail::TensorRecord& record = block.tensors[i];
        if (record.access == Access::in) continue;
        BufferRecord* buffer = buffers.find(record.buffer);
        if (buffer == nullptr) continue;
        if (buffer->creator.node == &task && buffer->creator.id == task.id) {
          buffer->creator_failure = cause;
        }
        const Tensor tensor(record.buffer, record.byte_offset, record.dtype,
                            {record.dims, record.rank}, {record.dims + record.rank, record.rank});
        tracker.invalidate(*buffer, region_of(tensor), task.id, cause);
      }
    }
    failure_keeper.push_back(failure);
  }
  task.outcome = failure->what.exception != nullptr ? Outcome::failed : Outcome::skipped;
  task.run->add_failure(failure);
}

TaskNode* EngineState::finish(Node& first, const std::shared_ptr<const Failure>& first_failure,
                              Lane* lane) {
  TaskNode* next_here = nullptr;
  Node* work = &first;
  first.link = nullptr;
  std::shared_ptr<const Failure> failure = first_failure;
  for (bool first_turn = true; work != nullptr; first_turn = false) {
    Node& node = *work;
    work = node.link;
    const bool is_task = node.type < NodeType::join;
    auto& task = static_cast<TaskNode&>(node);  // Looked at only if is_task.
    if (is_task) {
      if (!first_turn && must_skip(task)) [[unlikely]]
        failure = skip_of(task);
      task.part.own_body.reset();
      if (failure != nullptr) [[unlikely]]
        settle(task, failure);
      if (task.log != nullptr) [[unlikely]] {
        task.log->ended.store(os::cycle_count(), std::memory_order_relaxed);
        task.log->state.store(failure == nullptr                ? TaskState::done
                              : node.outcome == Outcome::failed ? TaskState::failed
                                                                : TaskState::skipped,
                              std::memory_order_relaxed);
      }
    }
    const Failure* poison = node.poison.load(std::memory_order_relaxed);
    if (base::planted("poison_lost")) poison = nullptr;
    failure = nullptr;

    // Release: successors see what the body wrote. Acquire: we see the edges that were pushed.
    Edge* list = node.successors.exchange(Node::closed_list(), std::memory_order_acq_rel);
    Edge* in_order = nullptr;  // The list is newest first; release in submission order.
    while (list != nullptr) {
      Edge* const next = list->next;
      list->next = in_order;
      in_order = list;
      list = next;
    }
    for (Edge* edge = in_order; edge != nullptr;) {
      Edge* const next = edge->next;
      Node* const to = edge->to;
      if (poison != nullptr && edge->carries_failure) [[unlikely]] {
        const Failure* none = nullptr;
        // Relaxed: read by whoever brings `pending` to zero, which the release below orders.
        to->poison.compare_exchange_strong(none, poison, std::memory_order_relaxed);
      }
      if (base::planted("slot_reuse_edge_lost") && (edge->from >> kSlotBits) % 61 == 60) {
        // The predecessor's slot was used before: this fault releases one dependency too many.
        if (to->pending.load() > 1 && to->pending.load() < Node::kGuard / 2) (void)to->release();
      }
      if (to->release()) {
        to->last_edge.store(edge, std::memory_order_relaxed);
        if (to->type >= NodeType::join) {
          to->link = work;
          work = to;
        } else {
          auto* successor = static_cast<TaskNode*>(to);
          if (settles_at_once(*successor)) {
            to->link = work;
            work = to;
          } else if (lane != nullptr && next_here == nullptr && goes_on_here(*successor, *lane)) {
            next_here = successor;  // Nothing is before it: the finishing lane goes on with it.
          } else {
            start(*successor);
          }
        }
      }
      edge = next;
    }
    retire(node, lane);
  }
  return next_here;
}

/// The last user of a buffer that was being removed has ended.
void EngineState::end_removal(BufferRecord& record) {
  std::unique_ptr<BufferRemoval> removal;
  {
    const std::lock_guard lock(graph_mutex);
    removal.reset(record.removal);
    buffers.retire(record);
  }
  // What it may do is said to whoever gives it; an exception here could be told to nobody.
  [&]() noexcept {
    if (removal->freed) removal->freed();
  }();
}

/// The task no longer holds the buffers whose users are counted.
void EngineState::release_storage(TaskNode& task) {
  if (!task.counted_storage) [[likely]]
    return;
  for (std::size_t p = 0; p < task.part_count(); ++p) {
    const detail::ArgumentBlock& block = task.part_at(p).arguments;
    for (std::uint32_t i = 0; i < block.tensor_count; ++i) {
      if ((block.tensors[i].flags & kCountedStorage) != 0) {
        BufferRecord& record = buffers.at(block.tensors[i].buffer);
        if (record.block.has_value()) {
          (void)storage.release(record);
        } else if (record.drop_user()) {
          end_removal(record);
        }
      }
    }
  }
}

/// Gives back what the ended node held.
void EngineState::retire(Node& node, Lane* lane) {
  if (node.type == NodeType::join) {
    tracker.give_back_join(&node);
    return;
  }
  if (node.type == NodeType::removal) {
    BufferRecord& record = *static_cast<BufferRemoval&>(node).record;
    if (record.drop_user()) end_removal(record);
    return;
  }
  auto& task = static_cast<TaskNode&>(node);
  RunState& run = *task.run;
  release_storage(task);
  if (task.type == NodeType::group) [[unlikely]] {
    for (std::size_t i = 0; i < task.group->size; ++i)
      task.group->parts[i]->own_body.reset();
  }
  // Once its last node is counted somebody else may end the run and let go of it: so it is kept, by
  // this lane or here.
  if (lane != nullptr && lane->last_run.get() == &run) [[likely]] {
    window.give_back(&task, lane->id.value + 1);
    room_changed();
    run.node_ended_on(lane->id.value);
  } else {
    const std::shared_ptr<RunState> kept = run.shared_from_this();
    window.give_back(&task);
    room_changed();
    kept->node_ended();
  }
}

}  // namespace strata::graph
