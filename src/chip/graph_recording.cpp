// Recorded graphs: sub-graphs of a run, and the whole of a run for mode host_graph.

#include <fmt/format.h>

#include "chip/orchestration_state.hpp"

namespace strata::chip {

namespace {

/// What is logged at each replay.
void log_lines(const RunScene& scene, const RecordedGraph& graph) {
  if (scene.log == nullptr || !*scene.log) return;
  for (const std::string& line : graph.log)
    (*scene.log)(line);
}

}  // namespace

std::vector<ReadScalar> read_scalars(const std::vector<bool>& read,
                                     const std::vector<std::uint64_t>& values) {
  std::vector<ReadScalar> scalars;
  for (std::uint32_t i = 0; i < read.size(); ++i) {
    if (read[i]) scalars.push_back({.index = i, .bits = values[i]});
  }
  return scalars;
}

// ---- Sub-graphs ---------------------------------------------------------------------------------

TaskId OrchestrationState::submit_graph(const void* function, const std::string& config,
                                        std::span<const Tensor> tensors,
                                        std::span<const Scalar> scalars, const GraphBody& body) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].has_storage()) continue;
    throw InvalidArgument(fmt::format(
        "{}: tensor {} of a graph() has no storage; give it some with allocate()", what(), i));
  }
  if (notes_ != nullptr) return submit_inline(tensors, scalars, body);
  std::string key = scene_.check ? "G" : "g";
  append_key(key, function);
  append_key(key, config.size());
  key += config;
  append_tensors(key, tensors);
  std::vector<std::uint64_t> values;
  values.reserve(scalars.size());
  for (const Scalar& scalar : scalars)
    values.push_back(scalar.bits);
  append_key(key, values.size());
  GraphCache& cache = scene_.engine->graphs(scene_.program);
  const RecordedGraph* graph =
      cache.find(key, {.run = scene_.number, .scalars = &values, .run_scalars = &scene_.scalars});
  if (graph == nullptr) graph = &record(cache, key, tensors, scalars, body);
  log_lines(scene_, *graph);
  scene_.gathering->submitting();
  return target_.replay(graph->recording, tensors, scalars);
}

/// Within a recording a graph is a part of that.
TaskId OrchestrationState::submit_inline(std::span<const Tensor> tensors,
                                         std::span<const Scalar> scalars, const GraphBody& body) {
  GraphArguments arguments;
  arguments.tensors_.assign(tensors.begin(), tensors.end());
  arguments.scalars_.assign(scalars.begin(), scalars.end());
  std::vector<bool> read(scalars.size(), false);
  arguments.read_ = &read;
  for (const Scalar& scalar : scalars) {
    arguments.bits_.push_back(scalar.parameter < 0
                                  ? scalar.bits
                                  : notes_->values.at(static_cast<std::size_t>(scalar.parameter)));
  }
  const std::size_t first = notes_->tasks.size();
  {
    ChipOrchestration chip(*this);
    const Scope scope = target_.scope();
    body(chip, arguments);
  }
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    if (read[i] && scalars[i].parameter >= 0) {
      notes_->read[static_cast<std::size_t>(scalars[i].parameter)] = true;
    }
  }
  TaskSpec join;
  join.name = "graph";
  join.after = std::span(notes_->tasks).subspan(first);
  return notes_->tasks.emplace_back(target_.submit_task(join));
}

const RecordedGraph& OrchestrationState::record(GraphCache& cache, const std::string& key,
                                                std::span<const Tensor> tensors,
                                                std::span<const Scalar> scalars,
                                                const GraphBody& body) {
  RecordingNotes notes;
  notes.what = "a function that graph() records";
  for (const Scalar& scalar : scalars)
    notes.values.push_back(scalar.bits);
  notes.read.assign(scalars.size(), false);
  notes.run_read.assign(scene_.scalars.size(), false);
  RecordingSpec spec{.tensors = {tensors.begin(), tensors.end()}, .scalars = scalars.size()};
  const auto run_body = [&](Orchestration& target, const Parameters& parameters) {
    OrchestrationState state(scene_, live_, target, notes);
    GraphArguments arguments;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      arguments.tensors_.push_back(parameters.tensor(i));
    for (std::size_t i = 0; i < scalars.size(); ++i)
      arguments.scalars_.push_back(parameters.scalar(i));
    arguments.bits_ = notes.values;
    arguments.read_ = &notes.read;
    {
      ChipOrchestration chip(state);
      const Scope scope = target.scope();  // What it allocates nobody else can name.
      body(chip, arguments);
    }
    // It may have caught what it was told.
    if (!notes.refused.empty()) throw ChipError(ErrorCode::not_recordable, notes.refused);
    if (notes.tasks.size() == 1) return;
    TaskSpec join;
    join.name = "graph";
    join.after = notes.tasks;
    (void)target.submit_task(join);
  };
  RecordedGraph graph;
  graph.recording = scene_.engine->engine().record(spec, run_body);
  graph.read = read_scalars(notes.read, notes.values);
  graph.run_read = read_scalars(notes.run_read, scene_.scalars);
  if (notes.uses_run_tensors) graph.only_run = scene_.number;
  graph.log = std::move(notes.log);
  return cache.add(key, std::move(graph));
}

// ---- Whole runs ---------------------------------------------------------------------------------

namespace {

void call(const RunScene& scene, OrchestrationState& state) {
  ChipOrchestration chip(state);
  scene.program->orchestration()(chip);
}

/// Records the run's orchestration, or finds out that it can't be.
RecordedGraph record_whole(RunScene& scene, Orchestration& live) {
  RecordingNotes notes;
  notes.what = "its orchestration";
  notes.run_read.assign(scene.scalars.size(), false);
  RecordedGraph graph;
  try {
    graph.recording = scene.engine->engine().record(
        {.tensors = scene.tensors}, [&](Orchestration& target, const Parameters& parameters) {
          OrchestrationState state(scene, live, target, notes);
          std::vector<Tensor> tensors;
          tensors.reserve(scene.tensors.size());
          for (std::size_t i = 0; i < scene.tensors.size(); ++i)
            tensors.push_back(parameters.tensor(i));
          state.replace_tensors(std::move(tensors));
          call(scene, state);
        });
  } catch (...) {
    if (notes.refused.empty()) throw;
  }
  graph.recordable = notes.refused.empty();
  graph.read = read_scalars(notes.run_read, scene.scalars);
  graph.log = std::move(notes.log);
  return graph;
}

/// False if the orchestration can't be recorded; then nothing was submitted.
bool run_recorded(RunScene& scene, Orchestration& live) {
  std::string key = scene.check ? "W" : "w";
  append_tensors(key, scene.tensors);
  GraphCache& cache = scene.engine->graphs(scene.program);
  const RecordedGraph* graph = cache.find(key, {.run = scene.number, .scalars = &scene.scalars});
  if (graph == nullptr) graph = &cache.add(key, record_whole(scene, live));
  if (!graph->recordable) return false;
  log_lines(scene, *graph);
  scene.gathering->submitting();
  (void)live.replay(graph->recording, scene.tensors);
  return true;
}

}  // namespace

void orchestrate(RunScene& scene, Orchestration& live, OrchestrationMode mode) {
  // However it ends, what has gathered is let go.
  struct LetGo {
    Gathering& gathering;
    ~LetGo() { gathering.end(); }
  };
  const LetGo let_go{*scene.gathering};
  if (mode == OrchestrationMode::host_graph) {
    scene.gathering->begin(scene.engine->window());
    if (run_recorded(scene, live)) return;
  }
  OrchestrationState state(scene, live);
  call(scene, state);
}

}  // namespace strata::chip
