// Replaying a recording.

#include <algorithm>
#include <mutex>
#include <string>

#include "base/planted_fault.hpp"
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

  void run() {
    check_bindings();
    submit_each();
  }

 private:
  void check_bindings();
  void submit_each();
  /// The bound counterpart of a recorded tensor.
  [[nodiscard]] Tensor bound(const RecordedArgument& argument) const;

  EngineState& engine_;
  OrchestrationState& orchestration_;
  RecordedGraph& recording_;
  std::span<const Tensor> tensors_;
  std::span<const Scalar> scalars_;
  std::vector<Tensor> temporaries_;
};

void Replay::check_bindings() {
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

Tensor Replay::bound(const RecordedArgument& argument) const {
  const Tensor& recorded = argument.tensor;
  switch (argument.place.in) {
    case RecordedPlace::In::fixed:
      return recorded;
    case RecordedPlace::In::temporary: {
      const Tensor& whole = temporaries_[argument.place.index];
      return Tensor(whole.buffer(), recorded.byte_offset(), recorded.dtype(), recorded.shape(),
                    recorded.strides())
          .tracked(recorded.tracking());
    }
    case RecordedPlace::In::parameter:
      break;
  }
  // Of the parameters of its class, the one that the view lies in.
  const Reach reach = reach_of(recorded);
  for (std::size_t p = 0; p < recording_.parameters.size(); ++p) {
    if (recording_.parameter_class[p] != argument.place.index) continue;
    const Reach whole = reach_of(recording_.parameters[p]);
    if (reach.begin < whole.begin || whole.end < reach.end) continue;
    const std::int64_t shift = tensors_[p].byte_offset() - recording_.parameters[p].byte_offset();
    return Tensor(tensors_[p].buffer(), recorded.byte_offset() + shift, recorded.dtype(),
                  recorded.shape(), recorded.strides())
        .tracked(std::max(recorded.tracking(), tensors_[p].tracking()));
  }
  throw RecordingError("Orchestration::replay: a recorded view lies in no parameter");
}

/// Submits the recorded tasks one by one, as the orchestration did.
void Replay::submit_each() {
  temporaries_.resize(recording_.temporary_count);
  std::vector<TaskId> ids;
  ids.reserve(recording_.tasks.size());
  const std::size_t outer_scopes = orchestration_.scopes.size();
  auto event = recording_.scope_events.begin();
  const auto run_events = [&](std::size_t before_task) {
    for (; event != recording_.scope_events.end() && event->before_task <= before_task; ++event) {
      if (event->open) {
        orchestration_.open_scope({}, event->manual);
      } else {
        orchestration_.close_scopes_to(orchestration_.scopes.size() - 1);
      }
    }
  };
  try {
    for (std::size_t i = 0; i < recording_.tasks.size(); ++i) {
      run_events(i);
      const RecordedTask& task = recording_.tasks[i];
      // Reserved, since arguments point into it.
      std::vector<Tensor> views;
      std::vector<std::vector<TensorArg>> args(task.parts.size());
      std::vector<std::vector<Scalar>> values(task.parts.size());
      std::vector<PartSpec> parts;
      std::size_t count = 0;
      for (const RecordedPart& part : task.parts)
        count += part.tensors.size();
      views.reserve(count);
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
            arg.tensor = &views.emplace_back(bound(argument));
          }
          args[p].push_back(arg);
        }
        for (const Scalar& scalar : part.scalars) {
          values[p].push_back(
              scalar.parameter < 0 ? scalar : scalars_[static_cast<std::size_t>(scalar.parameter)]);
        }
        parts.push_back({.body = part.body.get(),
                         .tensors = args[p],
                         .scalars = values[p],
                         .lane = part.lane,
                         .shared = true});
      }
      std::vector<TaskId> after = task.after_outside;
      for (const std::uint32_t index : task.after)
        after.push_back(ids[index]);
      engine_.submit(orchestration_,
                     {.type = task.type,
                      .parts = parts,
                      .name = task.name,
                      .target = task.target,
                      .priority = task.priority,
                      .unordered = task.unordered,
                      .after = after},
                     ids.emplace_back());
    }
    run_events(recording_.tasks.size());
  } catch (...) {
    orchestration_.close_scopes_to(outer_scopes);
    throw;
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
