#include "graph/recorder.hpp"

#include <algorithm>
#include <cstring>

#include "graph/engine_state.hpp"

namespace strata::graph {

namespace {

std::string task_text(std::string_view what, std::string_view name, std::size_t index) {
  std::string text = "recorded " + std::string(what) + " " + std::to_string(index);
  if (!name.empty()) text += " '" + std::string(name) + "'";
  return text;
}

/// Gives each parameter a stand-in buffer, and those whose examples overlap one class. Within a
/// class offsets are those of the examples' common buffer.
void place_parameters(RecordedGraph& graph, const RecordingSpec& spec) {
  const std::size_t count = spec.tensors.size();
  graph.parameter_class.assign(count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const Tensor& example = spec.tensors[i];
    if (reach_of(example).overflow) {
      throw InvalidArgument("Engine::record: the extents and strides of tensor parameter " +
                            std::to_string(i) + " overflow 63 bits");
    }
    std::uint32_t own = graph.class_count;
    for (std::size_t k = 0; k < i; ++k) {
      const Tensor& other = spec.tensors[k];
      if (!example.has_storage() || example.buffer() != other.buffer()) continue;
      if (overlap(region_of(example), region_of(other)).overlap == Overlap::none) continue;
      const std::uint32_t theirs = graph.parameter_class[k];
      if (own == graph.class_count) {
        own = theirs;
      } else {
        // It joins two classes: they become one.
        std::replace(graph.parameter_class.begin(),
                     graph.parameter_class.begin() + static_cast<std::ptrdiff_t>(i), theirs, own);
      }
    }
    graph.parameter_class[i] = own;
    if (own == graph.class_count) ++graph.class_count;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Tensor& example = spec.tensors[i];
    // An example without storage begins far enough from zero for its reach to be positive.
    const Reach reach = reach_of(example);
    const std::int64_t offset =
        example.has_storage() ? example.byte_offset() : example.byte_offset() - reach.begin;
    graph.parameters.emplace_back(BufferId{kStandIn | (i + 1)}, offset, example.dtype(),
                                  example.shape(), example.strides());
  }
}

}  // namespace

RecorderState::RecorderState(RecordedGraph& graph, const RecordingSpec& spec, std::size_t lanes)
    : graph_(graph), lanes_(lanes) {
  place_parameters(graph, spec);
  graph.scalar_count = spec.scalars;
}

const Tensor& RecorderState::tensor(std::size_t i) const {
  if (i >= graph_.parameters.size()) {
    throw InvalidArgument("Parameters::tensor: there is no tensor parameter " + std::to_string(i) +
                          "; the recording has " + std::to_string(graph_.parameters.size()));
  }
  return graph_.parameters[i];
}

Scalar RecorderState::scalar(std::size_t i) const {
  if (i >= graph_.scalar_count) {
    throw InvalidArgument("Parameters::scalar: there is no scalar parameter " + std::to_string(i) +
                          "; the recording has " + std::to_string(graph_.scalar_count));
  }
  return {.bits = 0, .parameter = static_cast<std::int32_t>(i)};
}

void RecorderState::open_scope(bool manual) {
  graph_.scope_events.push_back({static_cast<std::uint32_t>(graph_.tasks.size()), true, manual});
  manual_.push_back(manual || (!manual_.empty() && manual_.back()));
}

void RecorderState::close_scope(std::size_t depth) {
  if (manual_.size() != depth) {
    throw InvalidState("Scope::close: scopes of a recording must be closed innermost first");
  }
  graph_.scope_events.push_back({static_cast<std::uint32_t>(graph_.tasks.size()), false, false});
  manual_.pop_back();
}

void RecorderState::record_after(RecordedTask& task, std::span<const TaskId> after,
                                 const std::string& at) {
  for (const TaskId id : after) {
    if (!id) continue;
    if ((id.value & kStandIn) == 0) {
      task.after_outside.push_back(id);
      continue;
    }
    const std::uint64_t index = id.value & ~kStandIn;
    if (index >= graph_.tasks.size()) throw InvalidArgument(at + ": after() names no task");
    task.after.push_back(static_cast<std::uint32_t>(index));
  }
}

void RecorderState::record_part(RecordedTask& task, Body& body, std::span<const TensorArg> tensors,
                                std::span<const Scalar> scalars, LaneId lane,
                                const std::string& at) {
  RecordedPart part;
  part.lane = lane;
  std::size_t index = 0;
  for (const TensorArg& arg : tensors) {
    const std::string where = at + ", tensor argument " + std::to_string(index++);
    RecordedArgument& recorded = part.tensors.emplace_back();
    recorded.access = arg.access;
    recorded.tracking = arg.tracking;
    recorded.dumped = arg.dumped;
    if (!arg.tensor->has_storage()) {
      if (arg.access != Access::out || arg.allocate == nullptr) {
        throw InvalidArgument(where + ": a tensor without storage can only be an out() argument");
      }
      if (arg.tensor->bytes() == 0) {
        throw InvalidArgument(where + " has no elements, so there is nothing to allocate");
      }
      recorded.allocates = true;
      if (arg.fill != nullptr) {
        const auto* bytes = static_cast<const std::byte*>(arg.fill);
        recorded.fill.assign(bytes, bytes + size_of(arg.tensor->dtype()));
      }
      TensorAccess::assign(*arg.allocate, BufferId{kStandIn | kTemporary | graph_.temporary_count});
      ++graph_.temporary_count;
    }
    recorded.tensor = *arg.tensor;
    const Reach reach = reach_of(recorded.tensor);
    if (reach.overflow) {
      throw InvalidArgument(where + ": the extents and strides of " + recorded.tensor.to_string() +
                            " overflow 63 bits");
    }
    const std::uint64_t buffer = recorded.tensor.buffer().value;
    if ((buffer & kStandIn) == 0) {
      recorded.place = {RecordedPlace::In::fixed, 0};
      graph_.fixed.push_back(recorded.tensor);
    } else if ((buffer & kTemporary) != 0) {
      const std::uint64_t temporary = buffer & ~(kStandIn | kTemporary);
      if (temporary >= graph_.temporary_count) {
        throw InvalidArgument(where + " is a tensor of another recording");
      }
      recorded.place = {RecordedPlace::In::temporary, static_cast<std::uint32_t>(temporary)};
    } else {
      const std::uint64_t parameter = (buffer & ~kStandIn) - 1;
      const Reach whole = parameter < graph_.parameters.size()
                              ? reach_of(graph_.parameters[parameter])
                              : Reach{.begin = 0, .end = -1};
      if (whole.end < whole.begin)
        throw InvalidArgument(where + " is a tensor of another recording");
      if (reach.begin != reach.end && (reach.begin < whole.begin || whole.end < reach.end)) {
        throw InvalidArgument(where + ": " + recorded.tensor.to_string() +
                              " reaches outside the parameter it is a view of");
      }
      recorded.place = {RecordedPlace::In::parameter, static_cast<std::uint32_t>(parameter)};
    }
  }
  for (const Scalar& scalar : scalars) {
    if (scalar.parameter >= static_cast<std::int32_t>(graph_.scalar_count)) {
      throw InvalidArgument(at + ": a scalar argument is a parameter of another recording");
    }
    part.scalars.push_back(scalar);
  }
  part.body = &graph_.bodies.emplace_back(std::move(body));
  task.parts.push_back(std::move(part));
}

TaskId RecorderState::submit_task(OrchestrationState& orchestration, TaskSpec& spec) {
  orchestration.engine.check_task(spec);
  const std::string at = task_text("task", spec.name, graph_.tasks.size());
  RecordedTask task;
  task.name = spec.name;
  task.target = spec.target;
  task.priority = spec.priority;
  task.unordered = spec.unordered;
  record_after(task, spec.after, at);
  record_part(task, spec.body, spec.tensors, spec.scalars, {}, at);
  graph_.tasks.push_back(std::move(task));
  return TaskId{kStandIn | (graph_.tasks.size() - 1)};
}

TaskId RecorderState::submit_group(OrchestrationState& orchestration, const GroupSpec& spec) {
  const std::string at = task_text("group", spec.name, graph_.tasks.size());
  if (spec.members.empty()) throw InvalidArgument(at + " has no members");
  RecordedTask task;
  task.type = NodeType::group;
  task.name = spec.name;
  std::vector<bool> taken(lanes_, false);
  for (GroupMember& member : spec.members) {
    if (member.lane.value >= lanes_ || taken[member.lane.value]) {
      throw InvalidArgument(at + ": lane " + std::to_string(member.lane.value) +
                            " does not exist or is named twice");
    }
    if (!member.body) throw InvalidArgument(at + ": a member has no body");
    taken[member.lane.value] = true;
    orchestration.engine.check_member(member, spec.name);
  }
  record_after(task, spec.after, at);
  for (GroupMember& member : spec.members) {
    record_part(task, member.body, member.tensors, member.scalars, member.lane, at);
  }
  graph_.tasks.push_back(std::move(task));
  return TaskId{kStandIn | (graph_.tasks.size() - 1)};
}

}  // namespace strata::graph
