// RecordedGraph: the tasks of a recorded orchestration, and what was inferred about them once.
//
// A recording is compiled into chunks of consecutive tasks. Within a chunk all edges are known. At
// its boundary each distinct region has one record: which tasks may still see what was there before
// the chunk, and what the tracker must know after it. So replaying a chunk asks the tracker once
// for each region, not once for each argument, and it is one step for everybody else: the graph
// lock is held from its first task to its last.
//
// Thread safety: constant after compile(), save the cache of bindings, which the graph lock guards.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/dependency_tracker.hpp"
#include "graph/region.hpp"
#include "strata/recording.hpp"

namespace strata::graph {

/// Which buffer a recorded tensor is in.
struct RecordedPlace {
  enum class In : std::uint8_t { parameter, fixed, temporary } in = In::parameter;
  std::uint32_t index = 0;  ///< Of the parameter or the temporary; unused for fixed.
};

/// Stand-in buffer ids.
inline constexpr std::uint64_t kStandIn = std::uint64_t{1} << 63;
inline constexpr std::uint64_t kTemporary = std::uint64_t{1} << 62;

struct RecordedArgument {
  Tensor tensor;  ///< As submitted; its buffer is a stand-in unless fixed.
  RecordedPlace place;
  Access access = Access::in;
  Tracking tracking = Tracking::full;
  bool allocates = false;
  bool dumped = false;
  std::vector<std::byte> fill;
};

struct RecordedPart {
  Body* body = nullptr;  ///< One of RecordedGraph::bodies; shared by all replays.
  LaneId lane{};
  std::vector<RecordedArgument> tensors;
  std::vector<Scalar> scalars;
};

struct RecordedTask {
  NodeType type = NodeType::task;
  std::string name;
  Target target{};
  std::int32_t priority = 0;
  bool unordered = false;
  std::vector<RecordedPart> parts;
  std::vector<std::uint32_t> after;  ///< Recorded tasks, by index.
  std::vector<TaskId> after_outside;
};

/// Scope changes between tasks.
struct ScopeEvent {
  std::uint32_t before_task;
  bool open;
  bool manual;
};

/// An edge between two tasks of a chunk.
struct ChunkEdge {
  std::uint32_t from;  ///< Index within the chunk.
  std::int32_t argument;
  Hazard hazard;
  bool carries_failure;
  bool assumed;
};

/// One region at the boundary of a chunk.
struct BoundaryRegion {
  RecordedPlace place;
  Tensor tensor;  ///< A tensor that covers it, as recorded.
  std::uint32_t slot =
      0;  ///< Index in Binding::entries: the same region has the same in all chunks.
  struct Access {
    std::uint32_t task;  ///< Within the chunk.
    std::int32_t argument;
  };
  std::vector<Access> reads;      ///< May see writers from outside.
  std::vector<Access> writes;     ///< Must wait for accesses from outside.
  bool mixed = false;             ///< Some read sees writers from outside and inside.
  std::int64_t last_writer = -1;  ///< Replacing writer at the end of the chunk, or -1: outside.
  std::vector<std::uint32_t> last_readers;  ///< Readers since, in order.
};

/// What a replay needs of a task, in one line.
struct ChunkTask {
  Body* body = nullptr;
  std::string_view name;
  std::uint32_t place = 0;  ///< Kind, or lane if exact_lane.
  std::int32_t priority = 0;
  std::uint32_t first_edge = 0;
  std::uint32_t edge_count = 0;
  bool exact_lane = false;
  bool unordered = false;
};

struct Chunk {
  std::uint32_t first_task = 0;
  std::uint32_t task_count = 0;
  std::vector<ChunkTask> tasks;
  bool any_after = false;  ///< Some task names others with after(), outside of the chunk perhaps.
  std::vector<ChunkEdge> edges;
  std::vector<BoundaryRegion> regions;
};

/// A recording with buffers and scalars bound: the arguments as the tasks will see them.
struct Binding {
  std::vector<Tensor> tensors;
  std::vector<std::uint64_t> scalars;
  bool reinfer = false;           ///< The tensors overlap otherwise than recorded.
  bool counted = false;           ///< Some are in storage whose users are counted.
  std::uint32_t in_use = 0;       ///< Slots whose task has its arguments here. Graph lock.
  std::shared_ptr<Binding> self;  ///< Set while in_use is not zero.
  std::vector<detail::TensorRecord> records;  ///< Of all tasks, one behind the other.
  std::vector<std::int64_t> dims;
  std::vector<std::uint64_t> task_scalars;
  std::vector<detail::ArgumentBlock> blocks;  ///< One a task.
  /// Tracker entries of the boundary regions, to be found again without a look-up. Graph lock.
  struct CachedEntry {
    RegionEntry* entry = nullptr;
    std::uint64_t serial = 0;
  };
  std::vector<CachedEntry> entries;
};

class RecordedGraph {
 public:
  explicit RecordedGraph(std::size_t chunk_size) : chunk_size_(chunk_size) {}

  /// Infers once, after all tasks are recorded.
  void compile();

  std::shared_ptr<const void> owner;           ///< Tells the engine that recorded it from others.
  std::vector<Tensor> parameters;              ///< As given to the orchestration (stand-ins).
  std::vector<std::uint32_t> parameter_class;  ///< The same for those whose examples overlap.
  /// The same for two arguments exactly if they may share bytes as recorded.
  [[nodiscard]] std::uint64_t space_of(const RecordedPlace& place, const Tensor& tensor) const {
    return place.in == RecordedPlace::In::parameter ? kStandIn | parameter_class[place.index]
                                                    : tensor.buffer().value;
  }
  std::uint32_t class_count = 0;
  std::size_t scalar_count = 0;
  std::uint32_t temporary_count = 0;
  std::deque<Body> bodies;  ///< Never move.
  std::vector<RecordedTask> tasks;
  std::vector<ScopeEvent> scope_events;
  std::vector<Tensor> fixed;  ///< Tensors that are no parameters.

  std::vector<Chunk> chunks;
  bool simple = true;  ///< Only what chunks can express; otherwise each task is submitted.
  std::uint32_t region_count = 0;
  std::uint64_t edge_count = 0;

  std::atomic<std::uint64_t> replays{0};
  std::atomic<std::uint64_t> reinferred{0};

  /// Recent bindings; graph lock.
  std::vector<std::shared_ptr<Binding>> bindings;

 private:
  std::size_t chunk_size_;
};

}  // namespace strata::graph
