// RecorderState: takes down what an orchestration submits while it is being recorded.
//
// Parameters, and tensors that the recorded tasks allocate, live in stand-in buffers: ids that no
// engine ever gives out. Parameters whose example regions overlap are of one class, since what
// overlaps among them is part of the recording.
//
// Thread safety: one thread, the one that records.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "graph/recorded_graph.hpp"
#include "strata/recording.hpp"

namespace strata::graph {

class RecorderState {
 public:
  RecorderState(RecordedGraph& graph, const RecordingSpec& spec, std::size_t lanes);

  TaskId submit_task(OrchestrationState& orchestration, TaskSpec& spec);
  TaskId submit_group(OrchestrationState& orchestration, const GroupSpec& spec);
  void open_scope(bool manual);
  void close_scope(std::size_t depth);
  [[nodiscard]] std::size_t depth() const noexcept { return manual_.size(); }

  [[nodiscard]] const Tensor& tensor(std::size_t i) const;
  [[nodiscard]] Scalar scalar(std::size_t i) const;

 private:
  void record_part(RecordedTask& task, Body& body, std::span<const TensorArg> tensors,
                   std::span<const Scalar> scalars, LaneId lane, const std::string& at);
  void record_after(RecordedTask& task, std::span<const TaskId> after, const std::string& at);

  RecordedGraph& graph_;
  std::size_t lanes_;
  std::vector<bool> manual_;  ///< Open scopes within the recording.
};

}  // namespace strata::graph
