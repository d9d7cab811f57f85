// Running bodies, and what happens when a task ends.

#include <exception>
#include <mutex>
#include <new>

#include "base/planted_fault.hpp"
#include "graph/engine_state.hpp"
#include "os/cpu.hpp"

namespace strata::graph {

namespace {

bool run_is_cancelled(const void* token) {
  return static_cast<const RunState*>(token)->cancelled();
}

bool group_is_cancelled(const void* token) {
  const auto* task = static_cast<const TaskNode*>(token);
  return task->group->failed.load(std::memory_order_relaxed) || task->run->cancelled();
}

/// The whole text, with that of the exceptions nested in it.
std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    std::string text = e.what();
    try {
      std::rethrow_if_nested(e);
    } catch (...) {
      text += ": " + message_of(std::current_exception());
    }
    return text;
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

std::shared_ptr<const Failure> failure_of(const TaskNode& task, std::exception_ptr error) {
  auto failure = std::make_shared<Failure>();
  failure->run = task.run->weak_from_this();
  failure->what.task = TaskId{task.id};
  failure->what.name = task.name;
  failure->what.message = message_of(error);
  failure->what.exception = std::move(error);
  return failure;
}

std::shared_ptr<const Failure> skip_of(const TaskNode& task) {
  auto failure = std::make_shared<Failure>();
  failure->run = task.run->weak_from_this();
  failure->what.task = TaskId{task.id};
  failure->what.name = task.name;
  if (const Failure* cause = task.poison.load(std::memory_order_relaxed)) {
    failure->what.cause = cause->what.task;
    failure->what.message = "skipped because of task " + std::to_string(cause->what.task.number()) +
                            (cause->what.name.empty() ? "" : " '" + cause->what.name + "'") + ": " +
                            cause->what.message;
    failure->cancelled = task.run->cancelled();
  } else {
    failure->what.message = "dropped: " + task.run->name + " was ended before the task started";
    failure->cancelled = true;
  }
  return failure;
}

void log_start(TaskNode& task, const Lane& lane) {
  task.log->lane.store(lane.id.value, std::memory_order_relaxed);
  task.log->state.store(TaskState::running, std::memory_order_relaxed);
  task.log->started.store(os::cycle_count(), std::memory_order_relaxed);
}

/// Whether a lane that has just made `task` ready may run it next: only if nothing is before it.
bool goes_on_here(const TaskNode& task, const Lane& lane) {
  return task.type == NodeType::task && !task.exact_lane && task.priority == 0 &&
         task.host == nullptr && task.place == lane.kind->id.value && lane.kind->queue.empty() &&
         !lane.attention.load(std::memory_order_relaxed);
}

/// Whether a part that was started must not run. For a group that was settled for all members when
/// it started: some may be running already and wait for the others.
bool dropped(const TaskNode& task) {
  return task.type == NodeType::group ? task.group->dropped : must_skip(task);
}

TaskContext context_of(TaskNode& task, std::uint32_t member, const Lane& lane) {
  const bool group = task.type == NodeType::group;
  return TaskContext(task.part_at(member).arguments,
                     {.task = TaskId{task.id},
                      .name = task.name,
                      .lane = lane.id,
                      .member = member,
                      .members = static_cast<std::uint32_t>(task.part_count()),
                      .named_lane = group || task.exact_lane},
                     group ? group_is_cancelled : run_is_cancelled,
                     group ? static_cast<const void*>(&task) : task.run);
}

}  // namespace

bool must_skip(const TaskNode& task) {
  return task.poison.load(std::memory_order_relaxed) != nullptr ||
         (task.run->cancelled() && task.host == nullptr && !base::planted("cancel_runs_waiting"));
}

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

/// A dispatch of the engine's own side has ended: carries that out and hands over what the lane
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
