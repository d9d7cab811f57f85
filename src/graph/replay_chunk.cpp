// Replaying a recording by chunks.

#include <algorithm>
#include <mutex>
#include <string>

#include "base/planted_fault.hpp"
#include "graph/arguments.hpp"
#include "graph/replay.hpp"

namespace strata::graph {

// ---- By chunks ----------------------------------------------------------------------------------

/// The arguments of all tasks with these tensors and scalars: those of a recent replay if it had
/// the same.
std::shared_ptr<Binding> Replay::bind() {
  if (std::ranges::any_of(tensors_,
                          [](const Tensor& t) { return t.tracking() != Tracking::full; })) {
    return nullptr;
  }
  const std::lock_guard lock(engine_.graph_mutex);
  check_buffers();
  const auto same = [&](const std::shared_ptr<Binding>& known) {
    return std::ranges::equal(known->tensors, tensors_,
                              [](const Tensor& a, const Tensor& b) {
                                return a.buffer() == b.buffer() &&
                                       a.byte_offset() == b.byte_offset();
                              }) &&
           (base::planted("replay_keeps_old_scalar") ||
            std::ranges::equal(known->scalars, scalars_,
                               [](std::uint64_t a, const Scalar& b) { return a == b.bits; }));
  };
  auto& recent = recording_.bindings;
  auto found = std::ranges::find_if(recent, same);
  if (found == recent.end()) {
    constexpr std::size_t kRecentBindings = 4;
    if (recent.size() == kRecentBindings) recent.pop_back();
    found = recent.insert(recent.begin(), make_binding());
  } else {
    std::rotate(recent.begin(), found, found + 1);
    found = recent.begin();
  }
  return *found;
}

std::shared_ptr<Binding> Replay::make_binding() {
  auto binding = std::make_shared<Binding>();
  binding->tensors.assign(tensors_.begin(), tensors_.end());
  for (const Scalar& scalar : scalars_)
    binding->scalars.push_back(scalar.bits);
  binding->entries.resize(recording_.region_count);
  binding->reinfer = overlaps_otherwise();
  if (binding->reinfer) return binding;
  std::size_t tensors = 0;
  std::size_t dims = 0;
  std::size_t scalars = 0;
  for (const RecordedTask& task : recording_.tasks) {
    tensors += task.parts[0].tensors.size();
    scalars += task.parts[0].scalars.size();
    for (const RecordedArgument& argument : task.parts[0].tensors) {
      dims += 2 * static_cast<std::size_t>(argument.tensor.rank());
    }
  }
  // Reserved, since blocks and records point into them.
  binding->records.reserve(tensors);
  binding->dims.reserve(dims);
  binding->task_scalars.reserve(scalars);
  for (const RecordedTask& task : recording_.tasks) {
    detail::ArgumentBlock& block = binding->blocks.emplace_back();
    block.tensors = binding->records.data() + binding->records.size();
    block.scalars = binding->task_scalars.data() + binding->task_scalars.size();
    block.tensor_count = static_cast<std::uint32_t>(task.parts[0].tensors.size());
    block.scalar_count = static_cast<std::uint32_t>(task.parts[0].scalars.size());
    for (const RecordedArgument& argument : task.parts[0].tensors) {
      const Tensor tensor = bound(argument.place, argument.tensor);
      const std::int64_t* const at = binding->dims.data() + binding->dims.size();
      binding->dims.insert(binding->dims.end(), tensor.shape().begin(), tensor.shape().end());
      binding->dims.insert(binding->dims.end(), tensor.strides().begin(), tensor.strides().end());
      write_record(binding->records.emplace_back(), tensor, argument.access, Tracking::full,
                   argument.dumped, at,
                   /*tracked=*/true, engine_.buffers);
      binding->counted = binding->counted || (binding->records.back().flags & kCountedStorage) != 0;
    }
    for (const Scalar& scalar : task.parts[0].scalars) {
      binding->task_scalars.push_back(
          scalar.parameter < 0 ? scalar.bits
                               : scalars_[static_cast<std::size_t>(scalar.parameter)].bits);
    }
  }
  return binding;
}

/// Graph lock held.
void Replay::check_buffers() const {
  const auto check = [&](const Tensor& tensor, const std::string& what) {
    const BufferRecord* buffer = engine_.buffers.find(tensor.buffer());
    const Reach reach = reach_of(tensor);
    if (buffer == nullptr) {
      throw InvalidArgument("Orchestration::replay: " + what + ", " + tensor.to_string() +
                            ", is in a buffer that this engine does not know");
    }
    if (reach.begin != reach.end &&
        (reach.overflow || reach.begin < 0 || reach.end > buffer->bytes)) {
      throw InvalidArgument("Orchestration::replay: " + what + ", " + tensor.to_string() +
                            ", reaches outside its buffer of " + std::to_string(buffer->bytes) +
                            " bytes");
    }
  };
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    check(tensors_[i], "tensor " + std::to_string(i));
  }
  for (const Tensor& tensor : recording_.fixed)
    check(tensor, "a tensor of the recording");
}

/// Submits a chunk as one step. False if it must be submitted task by task: failures are about.
bool Replay::submit_chunk(const Chunk& chunk) {
  RunState& run = *orchestration_.run;
  slots_.resize(chunk.task_count);
  waiting_.assign(chunk.task_count, 0);
  guarded_.assign(chunk.task_count, false);
  edges_ = 0;
  auto& joins = orchestration_.joins;
  std::unique_lock lock(engine_.graph_mutex);
  for (;;) {
    engine_.throw_if_ended(run);
    engine_.reap_dead_buffers();
    check_buffers();
    if (engine_.window.take_all(slots_)) break;
    ++engine_.blocked_submits;
    lock.unlock();
    // Others take slots one by one, and there might never be enough at a time: so does this then.
    if (engine_.other_runs_open()) return false;
    engine_.wait_for_room(orchestration_, CapacityError::Resource::window, chunk.task_count, [&] {
      const std::lock_guard again(engine_.graph_mutex);
      return engine_.window.has_room_for(chunk.task_count);
    });
    lock.lock();
  }
  if ((chunk.any_after && !engine_.failures.empty()) || !find_outside(chunk)) {
    for (std::size_t i = chunk.task_count; i-- > 0;)
      engine_.window.give_back(slots_[i]);
    return false;
  }
  for (std::uint32_t i = 0; i < chunk.task_count; ++i)
    place_task(chunk, i);
  link_outside(chunk);
  for (std::uint32_t i = 0; i < chunk.task_count; ++i) {
    // Without predecessors outside nobody can release it before the chunk starts.
    if (!guarded_[i]) slots_[i]->pending.store(waiting_[i], std::memory_order_relaxed);
  }
  commit(chunk);
  for (TaskNode* task : slots_) {
    if (task->exact_lane) engine_.scheduler.enlist(*task);
  }
  joins.swap(engine_.tracker.made_joins());
  engine_.tasks_submitted += chunk.task_count;
  RunState::add(run.submitted, chunk.task_count);
  RunState::add(run.tasks, chunk.task_count);
  RunState::add(run.edges, edges_);
  lock.unlock();

  engine_.start_joins(joins);
  for (std::uint32_t i = 0; i < chunk.task_count; ++i) {
    if (guarded_[i]) {
      if (slots_[i]->drop_guard(waiting_[i])) engine_.make_ready(*slots_[i]);
    } else if (waiting_[i] == 0) {
      engine_.make_ready(*slots_[i]);
    }
  }
  return true;
}

/// Looks up the boundary regions and what they must wait for. False if only the task-by-task way
/// tells exactly whose failure is seen.
bool Replay::find_outside(const Chunk& chunk) {
  DependencyTracker& tracker = engine_.tracker;
  const std::uint64_t pin = engine_.next_task << kSlotBits;
  entries_.clear();
  for (const BoundaryRegion& boundary : chunk.regions) {
    Binding::CachedEntry& cached = binding_->entries[boundary.slot];
    if (cached.entry == nullptr || cached.entry->serial != cached.serial) {
      const Tensor tensor = bound(boundary.place, boundary.tensor);
      BufferRecord& buffer = engine_.buffers.at(tensor.buffer());
      cached.entry = tracker.find_region(buffer, tensor, strata::graph::region_of(tensor), pin);
      cached.serial = cached.entry->serial;
    }
    cached.entry->pinned_by = pin;
    if (!cached.entry->buffer->invalid.empty()) return false;
    entries_.push_back(cached.entry);
  }
  outside_.clear();
  outside_of_.assign(chunk.regions.size(), {});
  for (std::size_t r = 0; r < chunk.regions.size(); ++r) {
    const BoundaryRegion& boundary = chunk.regions[r];
    Outside& range = outside_of_[r];
    const auto collect = [&](Access access) {
      tracker.begin(pin, {});
      tracker.collect({.buffer = entries_[r]->buffer, .entry = entries_[r], .access = access});
      const auto found = tracker.dependencies();
      outside_.insert(outside_.end(), found.begin(), found.end());
    };
    range.reads_begin = static_cast<std::uint32_t>(outside_.size());
    if (!boundary.reads.empty()) collect(Access::in);
    range.reads_end = static_cast<std::uint32_t>(outside_.size());
    if (boundary.mixed && range.reads_begin != range.reads_end) return false;
    if (!boundary.writes.empty()) collect(Access::out);
    range.writes_end = static_cast<std::uint32_t>(outside_.size());
  }
  return true;
}

/// Sets up a task and its edges within the chunk. Nobody else knows the chunk's tasks yet.
void Replay::place_task(const Chunk& chunk, std::uint32_t i) {
  const std::uint32_t index = chunk.first_task + i;
  const ChunkTask& compiled = chunk.tasks[i];
  TaskNode& task = *slots_[i];
  const std::uint64_t id = (engine_.next_task++ << kSlotBits) | task.slot;
  EngineState::release_binding(task);
  task.reset_for_submit(id, NodeType::task, orchestration_.run.get());
  task.binding = binding_.get();
  if (++binding_->in_use == 1) binding_->self = binding_;
  task.place = compiled.place;
  task.exact_lane = compiled.exact_lane;
  task.priority = compiled.priority;
  task.unordered = compiled.unordered;
  task.order_ready = false;
  task.name = compiled.name;
  task.host = nullptr;
  task.log = nullptr;
  task.part.body = compiled.body;
  task.part.arguments = binding_->blocks[index];
  if (binding_->counted) [[unlikely]] {
    for (std::uint32_t a = 0; a < task.part.arguments.tensor_count; ++a) {
      const detail::TensorRecord& record = task.part.arguments.tensors[a];
      if ((record.flags & kCountedStorage) == 0) continue;
      task.counted_storage = true;
      engine_.buffers.at(record.buffer).holders.fetch_add(1, std::memory_order_relaxed);
    }
  }
  ids_.push_back(TaskId{id});
  std::uint32_t count = compiled.edge_count;
  if (base::planted("replay_drops_internal_edge") && count != 0) --count;
  for (std::uint32_t e = 0; e < count; ++e) {
    const ChunkEdge& known = chunk.edges[compiled.first_edge + e];
    TaskNode& from = *slots_[known.from];
    Edge& edge = task.add_edge();
    edge = {.next = from.successors.load(std::memory_order_relaxed),
            .to = &task,
            .from = from.id,
            .argument = known.argument,
            .hazard = known.hazard,
            .carries_failure = known.carries_failure,
            .assumed = known.assumed,
            .waited = true};
    // Relaxed: published with the chunk.
    from.successors.store(&edge, std::memory_order_relaxed);
  }
  waiting_[i] += static_cast<std::int32_t>(count);
  edges_ += count;
}

void Replay::add_outside_edge(std::uint32_t to, const Dependency& from, std::int32_t argument) {
  TaskNode& task = *slots_[to];
  Edge& edge = task.add_edge();
  edge = {.next = nullptr,
          .to = &task,
          .from = from.node.id,
          .argument = argument,
          .hazard = from.hazard,
          .carries_failure = from.carries_failure,
          .assumed = from.assumed,
          .waited = true};
  if (from.node.node->id == from.node.id && from.node.node->push_successor(edge)) {
    guarded_[to] = true;
    ++waiting_[to];
    ++edges_;
  } else {
    --task.edge_count;
  }
}

void Replay::link_outside(const Chunk& chunk) {
  if (base::planted("replay_boundary_missing")) return;
  for (std::size_t r = 0; r < chunk.regions.size(); ++r) {
    const BoundaryRegion& boundary = chunk.regions[r];
    const Outside& range = outside_of_[r];
    for (const BoundaryRegion::Access& access : boundary.reads) {
      for (std::uint32_t d = range.reads_begin; d < range.reads_end; ++d) {
        add_outside_edge(access.task, outside_[d], access.argument);
      }
    }
    for (const BoundaryRegion::Access& access : boundary.writes) {
      for (std::uint32_t d = range.reads_end; d < range.writes_end; ++d) {
        add_outside_edge(access.task, outside_[d], access.argument);
      }
    }
  }
  if (!chunk.any_after) return;
  for (std::uint32_t i = 0; i < chunk.task_count; ++i) {
    const RecordedTask& recorded = recording_.tasks[chunk.first_task + i];
    const auto add_after = [&](TaskId before) {
      if (TaskNode* node = engine_.window.at(before)) {
        add_outside_edge(i, {{node, before.value}, Hazard::explicit_after, -1, true, false}, -1);
      }
    };
    for (const std::uint32_t after : recorded.after) {
      if (after < chunk.first_task) add_after(ids_[after]);
    }
    for (const TaskId after : recorded.after_outside)
      add_after(after);
  }
}

void Replay::commit(const Chunk& chunk) {
  std::vector<NodeRef> readers;
  for (std::size_t r = 0; r < chunk.regions.size(); ++r) {
    const BoundaryRegion& boundary = chunk.regions[r];
    readers.clear();
    for (const std::uint32_t reader : boundary.last_readers) {
      readers.push_back({slots_[reader], slots_[reader]->id});
    }
    NodeRef writer;
    if (boundary.last_writer >= 0) {
      TaskNode* const last = slots_[static_cast<std::size_t>(boundary.last_writer)];
      writer = {last, last->id};
    }
    engine_.tracker.record_chunk(*entries_[r], writer, readers);
  }
}

}  // namespace strata::graph
