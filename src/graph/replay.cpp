// Replaying a recording: what is bound to its parameters, and the way task by task.

#include <algorithm>
#include <mutex>
#include <string>

#include "base/planted_fault.hpp"
#include "graph/engine_state.hpp"
#include "graph/recorded_graph.hpp"
#include "graph/recorder.hpp"
#include "graph/replay.hpp"

namespace strata::graph {

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
        TensorArg arg{
            .access = argument.access, .tracking = argument.tracking, .dumped = argument.dumped};
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

void EngineState::release_binding(TaskNode& task) noexcept {
  if (task.binding == nullptr) [[likely]]
    return;
  if (--task.binding->in_use == 0) {
    const std::shared_ptr<Binding> last = std::move(task.binding->self);
  }
  task.binding = nullptr;
}

bool EngineState::other_runs_open() {
  const std::lock_guard lock(runs_mutex);
  return open_runs_ > 1;
}

TaskId EngineState::replay(OrchestrationState& orchestration,
                           const std::shared_ptr<RecordedGraph>& recording,
                           std::span<const Tensor> tensors, std::span<const Scalar> scalars) {
  if (recording->owner != handles) {
    throw InvalidArgument(
        "Orchestration::replay: the recording was made by another engine; record it "
        "with the one that replays it");
  }
  orchestration.run->keep_alive(recording);  // Bodies and names are the recording's.
  Replay replay(*this, orchestration, *recording, tensors, scalars);
  replay.run();
  recording->replays.fetch_add(1, std::memory_order_relaxed);
  return replay.last();
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

TaskId Orchestration::replay(const Recording& recording, std::span<const Tensor> tensors,
                             std::span<const Scalar> scalars) {
  if (recording.graph_ == nullptr) {
    throw InvalidArgument("Orchestration::replay: the recording is empty");
  }
  if (state_->recorder != nullptr) {
    throw RecordingError("Orchestration::replay can't be recorded");
  }
  return state_->engine.replay(*state_, recording.graph_, tensors, scalars);
}

Recording Engine::record(
    const RecordingSpec& spec,
    const std::function<void(Orchestration&, const Parameters&)>& orchestration) {
  const std::size_t chunk = std::clamp<std::size_t>(state_->window.capacity() / 4, 1, 1024);
  auto recorded = std::make_shared<graph::RecordedGraph>(chunk);
  graph::RecorderState recorder(*recorded, spec, state_->lane_count);
  graph::OrchestrationState state(*state_, nullptr);
  state.recorder = &recorder;
  {
    Orchestration handle(state);
    orchestration(handle, Parameters(recorder));
  }
  recorded->owner = state_->handles;
  recorded->compile();
  return Recording(std::move(recorded));
}

}  // namespace strata
