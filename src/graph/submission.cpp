// Submission: from what the user asks for to a node in the window, with its edges.

#include <algorithm>
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
  ~FreshBuffers() { give_back(); }
  void give_back() {
    for (const Fresh& fresh : list_) {
      TensorAccess::assign(*fresh.tensor, BufferId{});
      std::erase(fresh.record->scope->held, fresh.record);
      (void)engine_.storage.release(*fresh.record);
    }
    if (!list_.empty()) engine_.room_changed();
    list_.clear();
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

/// Gives the outputs without storage theirs. Returns 0, or the bytes of the first that finds no
/// room. Graph lock held.
std::uint64_t allocate_outputs(OrchestrationState& orchestration, const NodeSpec& spec,
                               FreshBuffers& fresh_buffers) {
  EngineState& engine = orchestration.engine;
  for (const PartSpec& part : spec.parts) {
    for (const TensorArg& arg : part.tensors) {
      if (arg.tensor->has_storage()) continue;
      BufferRecord& record = engine.buffers.add();
      const auto bytes = static_cast<std::uint64_t>(arg.tensor->bytes());
      if (!engine.storage.allocate(record, bytes, orchestration.scope(), orchestration.run)) {
        engine.buffers.retire(record);
        return bytes;
      }
      TensorAccess::assign(*arg.allocate, record.id);
      fresh_buffers.add({arg.allocate, &record, arg.fill});
    }
  }
  return 0;
}

/// Waits for room on the heap. Several outputs at first wait for room for all of them, holding
/// none, so that two such submissions don't stand in each other's way; only if there will never be
/// so much in one piece they are taken one by one (the result is true then).
bool wait_for_heap(OrchestrationState& orchestration, const NodeSpec& spec, std::uint64_t missing,
                   bool piecewise, FreshBuffers& fresh_buffers) {
  EngineState& engine = orchestration.engine;
  const auto wait_for = [&](std::uint64_t bytes) {
    engine.wait_for_room(orchestration, CapacityError::Resource::heap, bytes,
                         [&] { return engine.storage.has_room_for(bytes); });
  };
  if (!piecewise) {
    fresh_buffers.give_back();
    std::uint64_t all = 0;
    for (const PartSpec& part : spec.parts) {
      for (const TensorArg& arg : part.tensors) {
        if (!arg.tensor->has_storage()) {
          all += Heap::round_up(static_cast<std::uint64_t>(arg.tensor->bytes()));
        }
      }
    }
    if (all > Heap::round_up(missing)) {
      try {
        wait_for(all);
        return false;
      } catch (const CapacityError&) {
        return true;
      }
    }
  }
  wait_for(missing);
  return piecewise;
}

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

/// Checks the arguments and finds their regions, into tracked_scratch. True if some output has no
/// storage yet. Graph lock held.
bool EngineState::look_up_arguments(const NodeSpec& spec, std::uint64_t pin) {
  bool unallocated = false;
  tracked_scratch.clear();
  for (std::size_t p = 0; p < spec.parts.size(); ++p) {
    const PartSpec& part = spec.parts[p];
    for (std::size_t i = 0; i < part.tensors.size(); ++i) {
      const TensorArg& arg = part.tensors[i];
      const Tensor& tensor = *arg.tensor;
      TrackedArgument& argument = tracked_scratch.emplace_back();
      argument.argument = static_cast<std::int32_t>(tracked_scratch.size() - 1);
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
  return unallocated;
}

/// Finds what the task must wait for. Graph lock held.
void EngineState::find_predecessors(TaskNode& task, const NodeSpec& spec, bool manual,
                                    std::uint64_t pin) {
  const RunOptions& run_options = task.run->options;
  tracker.begin(pin, {.read_after_write_only = run_options.read_after_write_only,
                      .keep_finished = run_options.keep_graph});
  for (const TaskId after : spec.after) {
    if (!after) continue;
    if (!failures.empty()) {
      if (const auto failed = failures.find(after.value); failed != failures.end()) {
        task.poison.store(failed->second.get(), std::memory_order_relaxed);
        failure_keeper.push_back(failed->second);
      }
    }
    TaskNode* const before = window.at(after);
    tracker.add_after({before, after.value}, before != nullptr);
  }
  if (!manual) {
    for (const TrackedArgument& argument : tracked_scratch)
      tracker.collect(argument);
  }
  if (tracker.poisoned_by() != nullptr) [[unlikely]] {
    failure_keeper.push_back(tracker.poisoned_by());
    task.poison.store(tracker.poisoned_by().get(), std::memory_order_relaxed);
  }
  if (run_options.strict && tracker.any_assumed()) [[unlikely]]
    refuse_assumed(spec);
}

/// Makes the task known: from here on others wait for it. Returns how many predecessors it waits
/// for. Graph lock held. Cannot be taken back, so running out of memory in here ends the program.
std::uint32_t EngineState::commit(OrchestrationState& orchestration, TaskNode& task,
                                  const NodeSpec& spec, bool manual) noexcept {
  RunState& run = *task.run;
  const NodeRef ref{&task, task.id};
  ++next_task;
  ++tasks_submitted;
  const std::uint32_t waiting = tracker.link(task);
  if (run.options.keep_graph) [[unlikely]]
    log_task(task, run);
  if (manual) {
    for (const TrackedArgument& argument : tracked_scratch) {
      if (argument.access != Access::in && argument.entry != nullptr &&
          !argument.buffer->invalid.empty()) {
        tracker.validate(*argument.buffer, argument.entry->region);
      }
    }
  } else {
    // Reads first: a region that the task reads and writes ends up with the task as its writer.
    for (const TrackedArgument& argument : tracked_scratch) {
      if (argument.access == Access::in) tracker.record(argument, ref);
    }
    for (const TrackedArgument& argument : tracked_scratch) {
      if (argument.access != Access::in) tracker.record(argument, ref);
    }
  }
  if (task.exact_lane || spec.type == NodeType::group) scheduler.enlist(task);
  // Swapped, so that both keep their memory.
  if (!tracker.made_joins().empty()) [[unlikely]]
    orchestration.joins.swap(tracker.made_joins());
  // Before the guard drops: the task may end at once.
  RunState::add(run.submitted, 1);
  if (spec.host == nullptr) RunState::add(run.tasks, 1);
  RunState::add(run.edges, waiting);
  if (tracker.any_assumed()) [[unlikely]]
    RunState::add(run.assumed, tracker.count_assumed());
  return waiting;
}

TaskNode* EngineState::submit(OrchestrationState& orchestration, const NodeSpec& spec, TaskId& id) {
  RunState& run = *orchestration.run;
  ScopeState& scope = orchestration.scope();
  FreshBuffers fresh_buffers(*this);
  // A host access waits for its turn in any scope.
  const bool manual =
      scope.manual && spec.type != NodeType::host && !base::planted("manual_scope_infers");
  std::unique_lock lock(graph_mutex);
  TaskNode* task = nullptr;
  std::uint64_t pin = 0;
  // Room first: each time round everything is checked again, as the world may have changed.
  bool piecewise = false;
  while (task == nullptr) {
    throw_if_ended(run);
    reap_dead_buffers();
    pin = next_task << kSlotBits;
    if (look_up_arguments(spec, pin)) [[unlikely]] {
      const std::uint64_t missing = allocate_outputs(orchestration, spec, fresh_buffers);
      if (missing == 0) continue;  // Now all have storage.
      ++blocked_submits;
      lock.unlock();
      piecewise = wait_for_heap(orchestration, spec, missing, piecewise, fresh_buffers);
      lock.lock();
      continue;
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
  release_binding(*task);
  task->reset_for_submit((next_task << kSlotBits) | task->slot, spec.type, &run);
  task->place = spec.target.index;
  task->exact_lane =
      spec.type == NodeType::task && spec.target.by == Target::By::lane && *spec.parts[0].body;
  task->priority = spec.priority;
  task->unordered = spec.unordered;
  task->order_ready = false;
  task->name = spec.name;
  task->host = spec.host;
  task->log = nullptr;
  try {
    place_arguments(*task, spec, !manual, buffers);
    find_predecessors(*task, spec, manual, pin);
  } catch (...) {
    take_back(*task, spec);
    throw;
  }
  id = TaskId{task->id};
  const std::uint32_t waiting = commit(orchestration, *task, spec, manual);
  const std::vector<Fresh> fresh = fresh_buffers.keep();
  for (const Fresh& f : fresh) {
    f.record->creator = {task, task->id};
    f.record->allocated_by = task->id;
  }
  lock.unlock();

  for (const Fresh& f : fresh) {
    if (f.fill != nullptr) fill_tensor(f);
  }
  if (!orchestration.joins.empty()) [[unlikely]]
    start_joins(orchestration.joins);
  if (task->drop_guard(static_cast<std::int32_t>(waiting))) make_ready(*task);
  return task;
}

/// A submission that is refused after it took a slot: gives all back. Graph lock held; nobody knows
/// the task.
void EngineState::take_back(TaskNode& task, const NodeSpec& spec) noexcept {
  release_storage(task);
  give_bodies_back(task, spec);
  // As after any other task: nobody may add to its successors until the slot is used again.
  task.successors.store(Node::closed_list(), std::memory_order_relaxed);
  task.id = 0;
  window.give_back(&task);
}

/// Strict runs: names the argument whose overlap can't be decided.
void EngineState::refuse_assumed(const NodeSpec& spec) const {
  std::size_t argument = 0;
  for (const Dependency& dependency : tracker.dependencies()) {
    if (dependency.assumed) argument = static_cast<std::size_t>(dependency.argument);
  }
  std::size_t part = 0;
  while (argument >= spec.parts[part].tensors.size())
    argument -= spec.parts[part++].tensors.size();
  throw InvalidArgument(
      where(spec, part, argument) +
      ": whether it overlaps what another task uses can't be decided, and the run "
      "is strict (RunOptions::strict); use views of one layout, or after()");
}

/// Enters the task and its edges in the run's kept graph. Graph lock held, before the guard drops.
void EngineState::log_task(TaskNode& task, RunState& run) {
  std::vector<GraphEdge> edges;
  // A join stands for the tasks before it, joins among them.
  std::vector<std::pair<const Edge*, GraphEdge>> open;
  for (std::uint32_t i = task.edge_count; i-- > 0;) {
    const Edge& edge = task.edge(i);
    open.push_back({&edge,
                    {.from = TaskId{edge.from},
                     .to = TaskId{task.id},
                     .hazard = edge.hazard,
                     .argument = edge.argument,
                     .assumed = edge.assumed,
                     .waited = edge.waited}});
  }
  while (!open.empty()) {
    const auto [edge, as] = open.back();
    open.pop_back();
    if (!is_join(edge->from)) {
      edges.push_back(as);
      edges.back().from = TaskId{edge->from};
      edges.back().waited = edge->waited && as.waited;
      continue;
    }
    Node* const join = tracker.kept_join(edge->from);
    if (join == nullptr) continue;  // What it stood for ended before graphs were kept.
    for (std::uint32_t i = join->edge_count; i-- > 0;) {
      GraphEdge through = as;
      if (as.hazard == Hazard::write_after_read) through.hazard = join->edge(i).hazard;
      open.push_back({&join->edge(i), through});
    }
  }
  task.log = &run.log(TaskId{task.id}, task.name, std::move(edges));
}

TaskId EngineState::submit_task(OrchestrationState& orchestration, TaskSpec& spec) {
  check_task(spec);
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

void EngineState::check_task(TaskSpec& spec) const {
  const bool by_lane = spec.target.by == Target::By::lane;
  const std::size_t known = by_lane ? lane_count : kind_count;
  if (spec.target.index < known) [[likely]] {
    if (options.check_task) options.check_task(spec);
    return;
  }
  throw InvalidArgument("task" + (spec.name.empty() ? "" : " '" + std::string(spec.name) + "'") +
                        (by_lane ? ": lane " : ": kind ") + std::to_string(spec.target.index) +
                        " does not exist; the engine has " + std::to_string(known));
}

void EngineState::check_member(GroupMember& member, std::string_view name) const {
  if (!options.check_task) return;
  TaskSpec as_task{.body = std::move(member.body),
                   .name = name,
                   .target = on(member.lane),
                   .tensors = member.tensors,
                   .scalars = member.scalars};
  try {
    options.check_task(as_task);
  } catch (...) {
    member.body = std::move(as_task.body);
    throw;
  }
  member.body = std::move(as_task.body);
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
    check_member(member, spec.name);
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
    wait_for_room(orchestration, CapacityError::Resource::heap, bytes,
                  [&] { return storage.has_room_for(bytes); });
  }
  if (blocked_count.load(std::memory_order_relaxed) != 0) prove_blocked();
  return tensor;
}

}  // namespace strata::graph
