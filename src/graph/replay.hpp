// Replay: one replay of a recording, by chunks where it can, task by task where it must.
//
// By chunks: what lies inside a chunk was inferred when it was recorded, so the chunk's tasks are
// set up unseen by anybody, linked with each other by plain stores, linked to what is outside
// through the boundary regions, and then started. Task by task: each recorded task is submitted as
// the orchestration did; needed where the bindings overlap otherwise than recorded, where a graph
// is kept, and where a failure is about whose extent only the tracker tells exactly.
//
// Thread safety: one thread; the engine's graph lock is held while a chunk is set up.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "graph/engine_state.hpp"
#include "graph/recorded_graph.hpp"

namespace strata::graph {

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
  /// The last task submitted; none if there was none.
  [[nodiscard]] TaskId last() const noexcept { return ids_.empty() ? TaskId{} : ids_.back(); }

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

}  // namespace strata::graph
