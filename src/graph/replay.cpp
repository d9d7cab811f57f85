// Replaying a recording.

#include <algorithm>
#include <mutex>
#include <string>

#include "base/planted_fault.hpp"
#include "graph/arguments.hpp"
#include "graph/engine_state.hpp"
#include "graph/recorded_graph.hpp"
#include "graph/recorder.hpp"

namespace strata::graph {

namespace {

/// One replay: the bound tensors, and how recorded places translate to them.
class Replay {
 public:
  Replay(EngineState& engine, OrchestrationState& orchestration, RecordedGraph& recording,
         std::span<const Tensor> tensors, std::span<const Scalar> scalars)
      : engine_(engine),
        orchestration_(orchestration),
        recording_(recording),
        tensors_(tensors),
        scalars_(scalars) {}

  void run();

 private:
  void check_bindings() const;
  /// The bound counterpart of a recorded tensor.
  [[nodiscard]] Tensor bound(const RecordedPlace& place, const Tensor& recorded) const;
  [[nodiscard]] bool overlaps_otherwise() const;

  void submit_each(std::uint32_t first, std::uint32_t count);
  void run_scope_events(std::uint32_t before_task);

  [[nodiscard]] std::shared_ptr<Binding> bind();
  [[nodiscard]] std::shared_ptr<Binding> make_binding();
  bool submit_chunk(const Chunk& chunk);
  void check_buffers() const;
  [[nodiscard]] bool find_outside(const Chunk& chunk);
  void place_task(const Chunk& chunk, std::uint32_t i);
  void link_outside(const Chunk& chunk);
  void add_outside_edge(std::uint32_t to, const Dependency& from, std::int32_t argument);
  void commit(const Chunk& chunk);

  EngineState& engine_;
  OrchestrationState& orchestration_;
  RecordedGraph& recording_;
  std::span<const Tensor> tensors_;
  std::span<const Scalar> scalars_;
  std::vector<Tensor> temporaries_;
  std::vector<TaskId> ids_;  ///< Of the tasks submitted so far.
  std::size_t next_event_ = 0;

  // Of the chunk under way.
  std::shared_ptr<Binding> binding_;
  std::vector<TaskNode*> slots_;
  std::vector<std::int32_t> waiting_;  ///< Unfinished predecessors of each task.
  std::vector<bool> guarded_;          ///< Tasks that something outside may release meanwhile.
  std::vector<RegionEntry*> entries_;  ///< Of the boundary regions.
  /// What boundary regions must wait for outside: ranges of outside_.
  struct Outside {
    std::uint32_t reads_begin = 0, reads_end = 0, writes_end = 0;
  };
  std::vector<Outside> outside_of_;
  std::vector<Dependency> outside_;
  std::uint32_t edges_ = 0;
};

void Replay::run() {
  check_bindings();
  ids_.reserve(recording_.tasks.size());
  temporaries_.resize(recording_.temporary_count);
  const auto count = static_cast<std::uint32_t>(recording_.tasks.size());
  const RunOptions& options = orchestration_.run->options;
  if (recording_.simple && !options.read_after_write_only && !options.keep_graph &&
      !options.strict && !orchestration_.scope().manual) {
    binding_ = bind();
  }
  if (binding_ != nullptr && !binding_->reinfer) {
    for (const Chunk& chunk : recording_.chunks) {
      if (!submit_chunk(chunk)) submit_each(chunk.first_task, chunk.task_count);
    }
    return;
  }
  if (binding_ != nullptr || overlaps_otherwise()) {
    recording_.reinferred.fetch_add(1, std::memory_order_relaxed);
  }
  const std::size_t outer_scopes = orchestration_.scopes.size();
  try {
    submit_each(0, count);
    run_scope_events(count);
  } catch (...) {
    orchestration_.close_scopes_to(outer_scopes);
    throw;
  }
}

void Replay::check_bindings() const {
  const auto refuse = [](const std::string& why) {
    throw InvalidArgument("Orchestration::replay: " + why);
  };
  if (tensors_.size() != recording_.parameters.size() ||
      scalars_.size() != recording_.scalar_count) {
    refuse("the recording takes " + std::to_string(recording_.parameters.size()) + " tensors and " +
           std::to_string(recording_.scalar_count) + " scalars, but " +
           std::to_string(tensors_.size()) + " and " + std::to_string(scalars_.size()) +
           " are given");
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& given = tensors_[i];
    const Tensor& wanted = recording_.parameters[i];
    if (given.dtype() != wanted.dtype() || !std::ranges::equal(given.shape(), wanted.shape()) ||
        !std::ranges::equal(given.strides(), wanted.strides())) {
      refuse("tensor " + std::to_string(i) + " is " + given.to_string() + ", but was recorded as " +
             wanted.to_string() +
             "; dtype, shape and strides must be the same (record it anew for others)");
    }
    if (!given.has_storage()) refuse("tensor " + std::to_string(i) + " has no storage");
  }
}

Tensor Replay::bound(const RecordedPlace& place, const Tensor& recorded) const {
  switch (place.in) {
    case RecordedPlace::In::fixed:
      return recorded;
    case RecordedPlace::In::temporary: {
      const Tensor& whole = temporaries_[place.index];
      return Tensor(whole.buffer(), recorded.byte_offset(), recorded.dtype(), recorded.shape(),
                    recorded.strides())
          .tracked(recorded.tracking());
    }
    case RecordedPlace::In::parameter:
      break;
  }
  const Tensor& parameter = tensors_[place.index];
  const std::int64_t shift =
      parameter.byte_offset() - recording_.parameters[place.index].byte_offset();
  return Tensor(parameter.buffer(), recorded.byte_offset() + shift, recorded.dtype(),
                recorded.shape(), recorded.strides())
      .tracked(std::max(recorded.tracking(), parameter.tracking()));
}

/// Whether the bound tensors overlap where the recorded ones did not, or otherwise.
bool Replay::overlaps_otherwise() const {
  if (base::planted("replay_ignores_aliases")) return false;
  const auto shift = [&](std::size_t p) {
    return tensors_[p].byte_offset() - recording_.parameters[p].byte_offset();
  };
  const auto meet = [](const Tensor& a, const Tensor& b) {
    return a.buffer() == b.buffer() &&
           overlap(strata::graph::region_of(a), strata::graph::region_of(b)).overlap !=
               Overlap::none;
  };
  for (std::size_t p = 0; p < tensors_.size(); ++p) {
    for (std::size_t q = 0; q < p; ++q) {
      const bool recorded_together = recording_.parameter_class[p] == recording_.parameter_class[q];
      if (recorded_together ? tensors_[p].buffer() != tensors_[q].buffer() || shift(p) != shift(q)
                            : meet(tensors_[p], tensors_[q])) {
        return true;
      }
    }
    for (const Tensor& fixed : recording_.fixed) {
      if (meet(tensors_[p], fixed)) return true;
    }
  }
  return false;
}

// ---- One by one ---------------------------------------------------------------------------------

void Replay::run_scope_events(std::uint32_t before_task) {
  const auto& events = recording_.scope_events;
  for (; next_event_ < events.size() && events[next_event_].before_task <= before_task;
       ++next_event_) {
    if (events[next_event_].open) {
      orchestration_.open_scope({}, events[next_event_].manual);
    } else {
      orchestration_.close_scopes_to(orchestration_.scopes.size() - 1);
    }
  }
}

/// Submits recorded tasks as the orchestration did.
void Replay::submit_each(std::uint32_t first, std::uint32_t count) {
  for (std::uint32_t i = first; i < first + count; ++i) {
    if (!recording_.simple) run_scope_events(i);
    const RecordedTask& task = recording_.tasks[i];
    std::size_t tensors = 0;
    for (const RecordedPart& part : task.parts)
      tensors += part.tensors.size();
    std::vector<Tensor> views;
    views.reserve(tensors);  // Arguments point into it.
    std::vector<std::vector<TensorArg>> args(task.parts.size());
    std::vector<std::vector<Scalar>> values(task.parts.size());
    std::vector<PartSpec> parts;
    for (std::size_t p = 0; p < task.parts.size(); ++p) {
      const RecordedPart& part = task.parts[p];
      for (const RecordedArgument& argument : part.tensors) {
        TensorArg arg{.access = argument.access, .tracking = argument.tracking};
        if (argument.allocates) {
          Tensor& fresh = temporaries_[argument.place.index];
          fresh = Tensor(argument.tensor.dtype(), argument.tensor.shape());
          arg.tensor = &fresh;
          arg.allocate = &fresh;
          arg.fill = argument.fill.empty() ? nullptr : argument.fill.data();
        } else {
          arg.tensor = &views.emplace_back(bound(argument.place, argument.tensor));
        }
        args[p].push_back(arg);
      }
      for (const Scalar& scalar : part.scalars) {
        values[p].push_back(
            scalar.parameter < 0 ? scalar : scalars_[static_cast<std::size_t>(scalar.parameter)]);
      }
      parts.push_back({.body = part.body,
                       .tensors = args[p],
                       .scalars = values[p],
                       .lane = part.lane,
                       .shared = true});
    }
    std::vector<TaskId> after = task.after_outside;
    for (const std::uint32_t index : task.after)
      after.push_back(ids_[index]);
    engine_.submit(orchestration_,
                   {.type = task.type,
                    .parts = parts,
                    .name = task.name,
                    .target = task.target,
                    .priority = task.priority,
                    .unordered = task.unordered,
                    .after = after},
                   ids_.emplace_back());
  }
}

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
  orchestration_.run->keep_alive(*found);  // The tasks' arguments lie in it.
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
      write_record(binding->records.emplace_back(), tensor, argument.access, Tracking::full, at,
                   /*tracked=*/true, engine_.buffers);
      binding->counted = binding->counted || binding->records.back().flags == kCountedStorage;
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
    engine_.wait_for_room(orchestration_, CapacityError::Resource::window, chunk.task_count, [&] {
      const std::lock_guard again(engine_.graph_mutex);
      return engine_.window.has_room_for(chunk.task_count);
    });
    lock.lock();
  }
  if (!engine_.failures.empty() || !find_outside(chunk)) {
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
  const auto add = [](std::atomic<std::uint64_t>& counter, std::uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  };
  add(run.submitted, chunk.task_count);
  add(run.tasks, chunk.task_count);
  add(run.edges, edges_);
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
  const std::uint64_t pin = engine_.next_task << TaskWindow::kSlotBits;
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
  const std::uint64_t id = (engine_.next_task++ << TaskWindow::kSlotBits) | task.slot;
  task.reset_for_submit(id, NodeType::task, orchestration_.run.get());
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

}  // namespace

void EngineState::replay(OrchestrationState& orchestration,
                         const std::shared_ptr<RecordedGraph>& recording,
                         std::span<const Tensor> tensors, std::span<const Scalar> scalars) {
  orchestration.run->keep_alive(recording);  // Bodies and names are the recording's.
  Replay(*this, orchestration, *recording, tensors, scalars).run();
  recording->replays.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace strata::graph

namespace strata {

const Tensor& Parameters::tensor(std::size_t i) const { return state_->tensor(i); }
Scalar Parameters::scalar(std::size_t i) const { return state_->scalar(i); }

RecordingStats Recording::stats() const {
  if (graph_ == nullptr) throw InvalidState("this Recording is empty");
  return {.tasks = graph_->tasks.size(),
          .edges = graph_->edge_count,
          .replays = graph_->replays.load(std::memory_order_relaxed),
          .reinferred = graph_->reinferred.load(std::memory_order_relaxed)};
}

void Orchestration::replay(const Recording& recording, std::span<const Tensor> tensors,
                           std::span<const Scalar> scalars) {
  if (recording.graph_ == nullptr) {
    throw InvalidArgument("Orchestration::replay: the recording is empty");
  }
  if (state_->recorder != nullptr) {
    throw RecordingError("Orchestration::replay can't be recorded");
  }
  state_->engine.replay(*state_, recording.graph_, tensors, scalars);
}

Recording Engine::record(
    const RecordingSpec& spec,
    const std::function<void(Orchestration&, const Parameters&)>& orchestration) {
  const std::size_t chunk = std::clamp<std::size_t>(state_->window.capacity() / 4, 1, 256);
  auto recorded = std::make_shared<graph::RecordedGraph>(chunk);
  graph::RecorderState recorder(*recorded, spec, state_->kind_count, state_->lane_count);
  graph::OrchestrationState state(*state_, nullptr);
  state.recorder = &recorder;
  {
    Orchestration handle(state);
    orchestration(handle, Parameters(recorder));
  }
  recorded->compile();
  return Recording(std::move(recorded));
}

}  // namespace strata
