// Submission: from what the user asks for to a node in the window, with its edges.

#include <algorithm>
#include <cassert>
#include <cstring>
#include <mutex>
#include <string>

#include "base/planted_fault.hpp"
#include "graph/arguments.hpp"
#include "graph/engine_state.hpp"
#include "os/cpu.hpp"

namespace strata::graph {

namespace {

/// Buffers that a submission allocated: given back if it fails, filled before the task can run.
struct Fresh {
  Tensor* tensor;
  BufferRecord* record;
  const void* fill;
};

/// Undoes the allocations of a submission that throws.
class FreshBuffers {
 public:
  explicit FreshBuffers(EngineState& engine) : engine_(engine) {}
  FreshBuffers(const FreshBuffers&) = delete;
  FreshBuffers& operator=(const FreshBuffers&) = delete;
  ~FreshBuffers() {
    for (const Fresh& fresh : list_) {
      TensorAccess::assign(*fresh.tensor, BufferId{});
      std::erase(fresh.record->scope->held, fresh.record);
      (void)engine_.storage.release(*fresh.record);
    }
    if (!list_.empty()) engine_.room_changed();
  }
  void add(Fresh fresh) { list_.push_back(fresh); }
  [[nodiscard]] bool empty() const noexcept { return list_.empty(); }
  [[nodiscard]] std::vector<Fresh> keep() noexcept { return std::exchange(list_, {}); }

 private:
  EngineState& engine_;
  std::vector<Fresh> list_;
};

void fill_tensor(const Fresh& fresh) {
  const std::size_t size = size_of(fresh.tensor->dtype());
  const std::size_t bytes = static_cast<std::size_t>(fresh.record->bytes);
  std::byte* const data = fresh.record->data;
  std::memcpy(data, fresh.fill, size);
  // Doubles what is filled with each copy.
  for (std::size_t done = size; done < bytes;) {
    const std::size_t step = std::min(done, bytes - done);
    std::memcpy(data + done, data, step);
    done += step;
  }
}

/// "task 'gemm', tensor argument 2" for messages.
std::string where(const NodeSpec& spec, std::size_t part, std::size_t argument) {
  std::string text = spec.type == NodeType::group ? "group" : "task";
  if (!spec.name.empty()) text += " '" + std::string(spec.name) + "'";
  if (spec.type == NodeType::group) text += ", member " + std::to_string(part);
  return text + ", tensor argument " + std::to_string(argument);
}

void check_storage(const Tensor& tensor, const BufferRecord* buffer, const NodeSpec& spec,
                   std::size_t part, std::size_t argument) {
  const Reach reach = reach_of(tensor);
  if (buffer != nullptr && !reach.overflow && reach.begin >= 0 && reach.end <= buffer->bytes) {
    return;
  }
  const std::string at = where(spec, part, argument);
  if (buffer == nullptr) {
    throw InvalidArgument(
        at + ": " + tensor.to_string() +
        " is in a buffer that this engine does not know (never added, removed, or "
        "freed with the scope it was allocated in)");
  }
  if (reach.overflow) {
    throw InvalidArgument(at + ": the extents and strides of " + tensor.to_string() +
                          " overflow 63 bits");
  }
  if (reach.begin != reach.end) {
    throw InvalidArgument(at + ": " + tensor.to_string() + " reaches bytes " +
                          std::to_string(reach.begin) + " to " + std::to_string(reach.end) +
                          " of a buffer of " + std::to_string(buffer->bytes) + " bytes");
  }
}

void check_unallocated(const TensorArg& arg, const std::string& at) {
  if (arg.access != Access::out || arg.allocate == nullptr) {
    throw InvalidArgument(at +
                          ": a tensor without storage can only be an out() argument, given as a "
                          "variable that the storage can be assigned to");
  }
  if (arg.tensor->bytes() == 0) {
    throw InvalidArgument(at + ": " + arg.tensor->to_string() +
                          " has no elements, so there is nothing to allocate");
  }
}

Tracking weaker(Tracking a, Tracking b) noexcept { return std::max(a, b); }

}  // namespace

void EngineState::throw_if_ended(const RunState& run) const {
  switch (run.ending.load(std::memory_order_acquire)) {
    case RunState::Ending::none:
      return;
    case RunState::Ending::cancelled:
      throw Cancelled(run.name + " was cancelled");
    case RunState::Ending::deadline:
      throw DeadlineExceeded(run.name + " did not end by its deadline");
  }
}

void EngineState::reap_dead_buffers() {
  BufferRecord* record = storage.take_dead();
  while (record != nullptr) {
    BufferRecord* const next = record->next_dead;
    tracker.forget(*record);
    buffers.retire(*record);
    record = next;
  }
}

void EngineState::start_joins(std::vector<DependencyTracker::MadeJoin>& joins) {
  for (const auto& made : joins) {
    if (made.join->drop_guard(made.waiting)) make_ready(*made.join);
  }
  joins.clear();
}

TaskNode* EngineState::submit(OrchestrationState& orchestration, const NodeSpec& spec, TaskId& id) {
  RunState& run = *orchestration.run;
  ScopeState& scope = orchestration.scope();
  FreshBuffers fresh_buffers(*this);
  TaskNode* task = nullptr;
  std::uint32_t waiting = 0;
  std::vector<Fresh> fresh;

  std::unique_lock lock(graph_mutex);
  // A host access waits for its turn in any scope.
  const bool manual =
      scope.manual && spec.type != NodeType::host && !base::planted("manual_scope_infers");
  auto& tracked = tracked_scratch;
  std::uint64_t pin = 0;
  // Room first: each time round everything is checked again, as the world may have changed.
  for (;;) {
    throw_if_ended(run);
    reap_dead_buffers();
    bool unallocated = false;
    tracked.clear();
    pin = next_task << TaskWindow::kSlotBits;
    for (std::size_t p = 0; p < spec.parts.size(); ++p) {
      const PartSpec& part = spec.parts[p];
      for (std::size_t i = 0; i < part.tensors.size(); ++i) {
        const TensorArg& arg = part.tensors[i];
        const Tensor& tensor = *arg.tensor;
        TrackedArgument& argument = tracked.emplace_back();
        argument.argument = static_cast<std::int32_t>(tracked.size() - 1);
        argument.access = arg.access;
        argument.tracking = weaker(arg.tracking, tensor.tracking());
        if (RegionEntry* const known = tracker.find_view(tensor, pin)) [[likely]] {
          argument.entry = known;
          argument.buffer = known->buffer;
          continue;
        }
        if (!tensor.has_storage()) [[unlikely]] {
          check_unallocated(arg, where(spec, p, i));
          unallocated = true;
          continue;
        }
        argument.buffer = buffers.find(tensor.buffer());
        check_storage(tensor, argument.buffer, spec, p, i);
        const Region region = strata::graph::region_of(tensor);
        if (!region.empty()) {
          argument.entry = tracker.find_region(*argument.buffer, tensor, region, pin);
        }
      }
    }
    if (unallocated) [[unlikely]] {
      std::uint64_t asked = 0;
      for (const PartSpec& part : spec.parts) {
        for (const TensorArg& arg : part.tensors) {
          if (arg.tensor->has_storage()) continue;
          BufferRecord& record = buffers.add();
          const auto bytes = static_cast<std::uint64_t>(arg.tensor->bytes());
          if (!storage.allocate(record, bytes, scope, orchestration.run)) {
            buffers.retire(record);
            asked = bytes;
            break;
          }
          TensorAccess::assign(*arg.allocate, record.id);
          fresh_buffers.add({arg.allocate, &record, arg.fill});
        }
        if (asked != 0) break;
      }
      if (asked != 0) {
        ++blocked_submits;
        lock.unlock();
        wait_for_room(orchestration, CapacityError::Resource::heap, asked, [&] {
          const std::uint64_t need = Heap::round_up(asked);
          return storage.holes_if([](const BufferRecord&) { return false; }).largest >= need;
        });
        lock.lock();
      }
      continue;  // Now all have storage.
    }
    task = window.take();
    if (task != nullptr) [[likely]]
      break;
    ++blocked_submits;
    lock.unlock();
    wait_for_room(orchestration, CapacityError::Resource::window, 1, [this] {
      const std::lock_guard again(graph_mutex);
      return window.has_room();
    });
    lock.lock();
  }

  if (!failure_keeper.empty() && window.in_flight() == 1) failure_keeper.clear();
  const std::uint64_t new_id = (next_task << TaskWindow::kSlotBits) | task->slot;
  task->reset_for_submit(new_id, spec.type, &run);
  task->place = spec.target.index;
  task->exact_lane =
      spec.type == NodeType::task && spec.target.by == Target::By::lane && *spec.parts[0].body;
  task->priority = spec.priority;
  task->unordered = spec.unordered;
  task->order_ready = false;
  task->name = spec.name;
  task->host = spec.host;
  task->log = nullptr;
  place_arguments(*task, spec, !manual, buffers);

  // What it must wait for.
  tracker.begin(pin, {.read_after_write_only = run.options.read_after_write_only,
                      .keep_finished = run.options.keep_graph});
  for (const TaskId after : spec.after) {
    TaskNode* const before = window.at(after);
    if (!failures.empty()) {
      if (const auto failed = failures.find(after.value); failed != failures.end()) {
        task->poison.store(failed->second.get(), std::memory_order_relaxed);
        failure_keeper.push_back(failed->second);
      }
    }
    tracker.add_after({before, after.value}, before != nullptr);
  }
  if (!manual) {
    for (const TrackedArgument& argument : tracked)
      tracker.collect(argument);
  }
  if (tracker.any_assumed()) [[unlikely]] {
    if (run.options.strict) {
      refuse_assumed(*task, spec);
    }
    run.assumed.fetch_add(1, std::memory_order_relaxed);
  }
  ++next_task;
  ++tasks_submitted;
  id = TaskId{new_id};

  waiting = tracker.link(*task);
  if (run.options.keep_graph) [[unlikely]]
    log_task(*task, run);
  if (tracker.poisoned_by() != nullptr) [[unlikely]] {
    task->poison.store(tracker.poisoned_by().get(), std::memory_order_relaxed);
    failure_keeper.push_back(tracker.poisoned_by());
  }
  if (manual) {
    for (const TrackedArgument& argument : tracked) {
      if (argument.access != Access::in && argument.entry != nullptr &&
          !argument.buffer->invalid.empty()) {
        tracker.validate(*argument.buffer, argument.entry->region);
      }
    }
  } else {
    // Reads first: a region that the task reads and writes ends up with the task as its writer.
    for (const TrackedArgument& argument : tracked) {
      if (argument.access == Access::in) tracker.record(argument, {task, new_id});
    }
    for (const TrackedArgument& argument : tracked) {
      if (argument.access != Access::in) tracker.record(argument, {task, new_id});
    }
  }
  if (!fresh_buffers.empty()) [[unlikely]] {
    fresh = fresh_buffers.keep();
    for (const Fresh& f : fresh) {
      f.record->creator = {task, new_id};
      f.record->allocated_by = new_id;
    }
  }
  if (task->exact_lane || spec.type == NodeType::group) scheduler.enlist(*task);
  auto& joins = orchestration.joins;  // Swapped, so that both keep their memory.
  if (!tracker.made_joins().empty()) [[unlikely]]
    joins.swap(tracker.made_joins());
  // Before the guard drops: the task may end at once.
  run.submitted.store(run.submitted.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (spec.host == nullptr) {
    run.tasks.store(run.tasks.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  run.edges.store(run.edges.load(std::memory_order_relaxed) + waiting, std::memory_order_relaxed);
  lock.unlock();

  for (const Fresh& f : fresh) {
    if (f.fill != nullptr) fill_tensor(f);
  }
  if (!joins.empty()) [[unlikely]]
    start_joins(joins);
  if (task->drop_guard(static_cast<std::int32_t>(waiting))) make_ready(*task);
  return task;
}

/// Strict runs: takes the submission back. Graph lock held.
void EngineState::refuse_assumed(TaskNode& task, const NodeSpec& spec) {
  std::int32_t argument = 0;
  for (const Dependency& dependency : tracker.dependencies()) {
    if (dependency.assumed) argument = dependency.argument;
  }
  for (std::size_t p = 0; p < task.part_count(); ++p) {
    const detail::ArgumentBlock& block = task.part_at(p).arguments;
    for (std::uint32_t i = 0; i < block.tensor_count; ++i) {
      if ((block.tensors[i].flags & kCountedStorage) != 0) {
        (void)storage.release(buffers.at(block.tensors[i].buffer));
      }
    }
  }
  std::vector<DependencyTracker::MadeJoin>().swap(tracker.made_joins());
  give_bodies_back(task, spec);
  task.id = 0;
  window.give_back(&task);
  throw InvalidArgument(
      where(spec, 0, static_cast<std::size_t>(argument)) +
      ": whether it overlaps what another task uses can't be decided, and the run "
      "is strict (RunOptions::strict); use views of one layout, or after()");
}

/// Enters the task and its edges in the run's kept graph. Graph lock held, before the guard drops.
void EngineState::log_task(TaskNode& task, RunState& run) {
  std::vector<GraphEdge> edges;
  const auto add = [&](auto&& self, const Edge& edge, const GraphEdge& as) -> void {
    Node* const join = tracker.kept_join(edge.from);
    // A join from before graphs were kept: what it stood for ended before this run began.
    if (join == nullptr && (edge.from & TaskWindow::kSlotMask) == TaskWindow::kSlotMask) return;
    if (join == nullptr) {
      edges.push_back(as);
      edges.back().from = TaskId{edge.from};
      edges.back().waited = edge.waited && as.waited;
      return;
    }
    // A join stands for the tasks before it.
    for (std::uint32_t i = 0; i < join->edge_count; ++i) {
      const Edge& member = join->edge(i);
      GraphEdge through = as;
      if (as.hazard == Hazard::write_after_read) through.hazard = member.hazard;
      self(self, member, through);
    }
  };
  for (std::uint32_t i = 0; i < task.edge_count; ++i) {
    const Edge& edge = task.edge(i);
    add(add, edge,
        {.from = TaskId{edge.from},
         .to = TaskId{task.id},
         .hazard = edge.hazard,
         .argument = edge.argument,
         .assumed = edge.assumed,
         .waited = edge.waited});
  }
  task.log = &run.log(TaskId{task.id}, task.name, std::move(edges));
}

TaskId EngineState::submit_task(OrchestrationState& orchestration, TaskSpec& spec) {
  check_target(spec);
  PartSpec part{&spec.body, spec.tensors, spec.scalars, {}};
  const NodeSpec node{.type = NodeType::task,
                      .parts = {&part, 1},
                      .name = spec.name,
                      .target = spec.target,
                      .priority = spec.priority,
                      .unordered = spec.unordered,
                      .after = spec.after};
  TaskId id;
  submit(orchestration, node, id);
  return id;
}

void EngineState::check_target(const TaskSpec& spec) const {
  const bool by_lane = spec.target.by == Target::By::lane;
  const std::size_t known = by_lane ? lane_count : kind_count;
  if (spec.target.index < known) [[likely]]
    return;
  throw InvalidArgument("task" + (spec.name.empty() ? "" : " '" + std::string(spec.name) + "'") +
                        (by_lane ? ": lane " : ": kind ") + std::to_string(spec.target.index) +
                        " does not exist; the engine has " + std::to_string(known));
}

TaskId EngineState::submit_group(OrchestrationState& orchestration, const GroupSpec& spec) {
  const std::string name = "group" + (spec.name.empty() ? "" : " '" + std::string(spec.name) + "'");
  if (spec.members.empty()) throw InvalidArgument(name + " has no members");
  std::vector<PartSpec> parts;
  parts.reserve(spec.members.size());
  std::vector<bool> taken(lane_count, false);
  for (std::size_t i = 0; i < spec.members.size(); ++i) {
    GroupMember& member = spec.members[i];
    const std::string at = name + ", member " + std::to_string(i) + ": ";
    if (member.lane.value >= lane_count) {
      throw InvalidArgument(at + "lane " + std::to_string(member.lane.value) +
                            " does not exist; the engine has " + std::to_string(lane_count));
    }
    if (taken[member.lane.value]) {
      throw InvalidArgument(
          at + "lane " + std::to_string(member.lane.value) +
          " is named by two members; members run at the same time, each on a lane "
          "of its own");
    }
    if (!member.body) throw InvalidArgument(at + "has no body");
    taken[member.lane.value] = true;
    parts.push_back({&member.body, member.tensors, member.scalars, member.lane});
  }
  const NodeSpec node{
      .type = NodeType::group, .parts = parts, .name = spec.name, .after = spec.after};
  TaskId id;
  submit(orchestration, node, id);
  return id;
}

Tensor EngineState::allocate(OrchestrationState& orchestration, DType dtype,
                             std::span<const std::int64_t> shape, const void* fill) {
  Tensor tensor(dtype, shape);
  const auto bytes = static_cast<std::uint64_t>(tensor.bytes());
  if (bytes == 0) {
    throw InvalidArgument("Orchestration::allocate: " + tensor.to_string() +
                          " has no elements, so there is nothing to allocate");
  }
  for (;;) {
    throw_if_ended(*orchestration.run);
    {
      const std::lock_guard lock(graph_mutex);
      reap_dead_buffers();
      BufferRecord& record = buffers.add();
      if (storage.allocate(record, bytes, orchestration.scope(), orchestration.run)) {
        TensorAccess::assign(tensor, record.id);
        if (fill != nullptr) fill_tensor({&tensor, &record, fill});
        break;
      }
      buffers.retire(record);
      ++blocked_submits;
    }
    wait_for_room(orchestration, CapacityError::Resource::heap, bytes, [&] {
      return storage.holes_if([](const BufferRecord&) { return false; }).largest >=
             Heap::round_up(bytes);
    });
  }
  if (blocked_count.load(std::memory_order_relaxed) != 0) prove_blocked();
  return tensor;
}

}  // namespace strata::graph
