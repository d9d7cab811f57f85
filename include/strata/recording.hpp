// Recording: the tasks of an orchestration, inferred once, to be replayed with other buffers and
// scalars bound to its parameters at a fraction of the cost of submission.
//
// Thread safety: may be replayed by several runs of its engine at once, and outlives the runs that
// use it (it is shared). Another engine refuses it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "strata/orchestration.hpp"

namespace strata {

namespace graph {
class RecordedGraph;
class RecorderState;
}  // namespace graph

/// What a recorded orchestration gets in place of its arguments.
class Parameters {
 public:
  explicit Parameters(graph::RecorderState& state) noexcept : state_(&state) {}
  /// Tensor parameter i; views of it may be taken and submitted as of any tensor.
  [[nodiscard]] const Tensor& tensor(std::size_t i) const;
  /// Scalar parameter i, to be passed on as a task's scalar argument. Its value is not known while
  /// recording and is bound at each replay.
  [[nodiscard]] Scalar scalar(std::size_t i) const;

 private:
  graph::RecorderState* state_;
};

/// Shapes of a recording's parameters. At replay a tensor of the same dtype, shape and strides must
/// be bound to each.
struct RecordingSpec {
  std::vector<Tensor> tensors =
      {};  ///< Examples: their buffers count only for which of them overlap.
  std::size_t scalars = 0;
};

struct RecordingStats {
  std::uint64_t tasks = 0;
  std::uint64_t edges = 0;
  std::uint64_t replays = 0;
  std::uint64_t reinferred = 0;  ///< Replays whose bindings overlapped otherwise than recorded.
};

class Recording {
 public:
  Recording() = default;
  explicit Recording(std::shared_ptr<graph::RecordedGraph> graph) : graph_(std::move(graph)) {}
  [[nodiscard]] RecordingStats stats() const;

 private:
  friend class Orchestration;
  std::shared_ptr<graph::RecordedGraph> graph_;
};

}  // namespace strata
