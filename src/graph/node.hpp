// Node and Edge: the vertices of the graph while they are in flight.
//
// A node is a task, a group of tasks that start together, a host access (an orchestration that
// waits for its turn on a tensor), a join (an epoch of readers, the end of a replay), or a removal
// (the end of the last user of a buffer). The edges
// into a node are stored in the node itself and threaded through the successor list of the node
// they come from, so making an edge allocates nothing.
//
// Who writes, who reads
//   `id` and the edge array are written by submitters under the graph lock, before the node is
//   reachable by finishers. `successors` is pushed to under the graph lock and closed by the one
//   thread that finishes the node. `pending` counts unfinished predecessors plus a guard that the
//   submitter drops last; whoever brings it to zero owns the node and makes it ready.
//
// Invariants
//   (1) An edge is in its predecessor's list exactly once, and its slot is not reused before that
//       list is closed: the successor can't end before every predecessor did.
//   (2) After `successors` is closed nobody adds to it; whoever finds it closed may read `outcome`
//       and all that the finished body wrote (release on close, acquire on the failed push).
//   (3) A finisher reads an edge's `next` before it drops `pending` of the edge's node: from then
//       on the node may run, end and be reused.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "strata/run.hpp"
#include "strata/task.hpp"
#include "strata/task_context.hpp"

namespace strata::graph {

struct Node;
struct BufferRecord;
class RunState;
struct LoggedNode;
struct HostWait;
struct Binding;

/// Why a task failed or was skipped; shared by all that it skipped.
struct Failure : std::enable_shared_from_this<Failure> {
  TaskFailure what;
  /// Dropped since its run was cancelled, or threw Cancelled for that.
  bool cancelled = false;
  std::weak_ptr<const RunState> run;
};

struct Edge {
  Edge* next = nullptr;  ///< In the predecessor's successor list.
  Node* to = nullptr;
  std::uint64_t from = 0;  ///< TaskId of the predecessor.
  std::int32_t argument = -1;
  Hazard hazard = Hazard::read_after_write;
  bool carries_failure = false;
  bool assumed = false;
  bool waited = false;  ///< The predecessor had not ended when the edge was made.
};
static_assert(sizeof(Edge) == 32, "two edges a cache line");

/// Those up to `host` are TaskNodes.
enum class NodeType : std::uint8_t { task, group, host, join, removal };
enum class Outcome : std::uint8_t { ok, failed, skipped };

/// Fields are ordered by cache line: the first is what submitters and finishers of other tasks
/// meet; then the edges; then what runs.
struct alignas(64) Node {
  /// Added to `pending` while the node is being set up, so that it can't get ready meanwhile.
  static constexpr std::int32_t kGuard = 1 << 30;
  static constexpr std::uint32_t kInlineEdges = 7;
  static constexpr std::uint32_t kEdgeChunk = 32;

  /// Successor list, newest first; closed_list() once finished.
  std::atomic<Edge*> successors{nullptr};
  std::atomic<std::int32_t> pending{0};
  NodeType type = NodeType::task;
  Outcome outcome = Outcome::ok;  ///< Written by the finisher before closing.
  bool exact_lane = false;        ///< Names one lane.
  bool counted_storage = false;   ///< Some argument holds a reference on its buffer's storage.
  std::uint64_t id = 0;           ///< TaskId; 0 while the slot is free.
  /// First failure that reached this node; set by finishers of predecessors before they drop
  /// `pending`, read by whoever makes the node ready.
  std::atomic<const Failure*> poison{nullptr};
  RunState* run = nullptr;
  Node* link = nullptr;                         ///< Free list, or a finisher's work list.
  std::atomic<const Edge*> last_edge{nullptr};  ///< Edge whose release made the node ready.
  /// Duplicate filter of the dependency tracker (graph lock): where this node may stand in the list
  /// of predecessors being collected. A stale value does no harm, since that place says who it is.
  std::uint32_t mark_index = 0;
  std::uint32_t edge_count = 0;

  std::array<Edge, kInlineEdges> inline_edges;
  /// More edges, in chunks that never move. The first is kept for the next user of the slot.
  using EdgeChunk = std::array<Edge, kEdgeChunk>;
  std::unique_ptr<std::vector<std::unique_ptr<EdgeChunk>>> more_edges;

  Edge& add_edge() {
    if (edge_count < kInlineEdges) [[likely]]
      return inline_edges[edge_count++];
    const std::uint32_t i = edge_count - kInlineEdges;
    if (more_edges == nullptr) {
      more_edges = std::make_unique<std::vector<std::unique_ptr<EdgeChunk>>>();
    }
    if (i / kEdgeChunk == more_edges->size()) more_edges->push_back(std::make_unique<EdgeChunk>());
    ++edge_count;
    return (*(*more_edges)[i / kEdgeChunk])[i % kEdgeChunk];
  }
  Edge& edge(std::uint32_t i) noexcept {
    if (i < kInlineEdges) return inline_edges[i];
    const std::uint32_t k = i - kInlineEdges;
    return (*(*more_edges)[k / kEdgeChunk])[k % kEdgeChunk];
  }

  [[nodiscard]] static Edge* closed_list() noexcept {
    return reinterpret_cast<Edge*>(std::uintptr_t{1});  // NOLINT(performance-no-int-to-ptr)
  }
  [[nodiscard]] bool finished() const noexcept {
    return successors.load(std::memory_order_acquire) == closed_list();
  }
  /// Adds `edge` to the successors, or says that the node has ended. Graph lock held.
  [[nodiscard]] bool push_successor(Edge& edge) noexcept {
    Edge* head = successors.load(std::memory_order_acquire);
    do {
      if (head == closed_list()) return false;
      edge.next = head;
      // Release: the finisher that takes the list sees the edge. Acquire on failure: invariant (2).
    } while (!successors.compare_exchange_weak(head, &edge, std::memory_order_release,
                                               std::memory_order_acquire));
    return true;
  }
  void reset_for_submit(std::uint64_t new_id, NodeType new_type, RunState* new_run) noexcept {
    id = new_id;
    type = new_type;
    run = new_run;
    outcome = Outcome::ok;
    exact_lane = false;
    counted_storage = false;
    poison.store(nullptr, std::memory_order_relaxed);
    last_edge.store(nullptr, std::memory_order_relaxed);
    if (edge_count > kInlineEdges + kEdgeChunk) more_edges->resize(1);
    edge_count = 0;
    pending.store(kGuard, std::memory_order_relaxed);
    successors.store(nullptr, std::memory_order_relaxed);
  }
  /// Ends the set-up of a node that `waiting` predecessors will release. True if it is ready: then
  /// the caller owns it.
  [[nodiscard]] bool drop_guard(std::int32_t waiting) noexcept {
    if (waiting == 0) return true;  // Nobody else has a way to reach it.
    const std::int32_t drop = kGuard - waiting;
    // Acquire: the bodies of predecessors that ended meanwhile; release: for the one that ends
    // last.
    return pending.fetch_sub(drop, std::memory_order_acq_rel) == drop;
  }
  /// One predecessor has ended. True if it was the last: then the caller owns the node.
  [[nodiscard]] bool release() noexcept {
    return pending.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
};

/// The lower bits of an id are the slot, the others count submissions.
inline constexpr std::uint32_t kSlotBits = 22;
inline constexpr std::uint64_t kSlotMask = (std::uint64_t{1} << kSlotBits) - 1;
static_assert(TaskId{std::uint64_t{1} << kSlotBits}.number() == 1);

/// Whether an id is that of a join: the last slot number marks those.
[[nodiscard]] constexpr bool is_join(std::uint64_t id) noexcept {
  return (id & kSlotMask) == kSlotMask;
}

/// A node of a given incarnation. The slot may have been reused since: then that task has ended.
struct NodeRef {
  Node* node = nullptr;
  std::uint64_t id = 0;
  /// Graph lock held (it guards `id`).
  [[nodiscard]] bool finished() const noexcept { return node->id != id || node->finished(); }
};

static_assert(sizeof(Node) == 5 * 64);

/// One body of a task with its arguments.
struct TaskPart {
  Body own_body;
  Body* body = nullptr;  ///< own_body, or the body of the recording that is being replayed.
  detail::ArgumentBlock arguments;
};

struct GroupPart : TaskPart {
  LaneId lane{};
};

/// What only groups need; kept by the slot for its next group.
struct GroupState {
  std::vector<std::unique_ptr<GroupPart>> parts;
  std::size_t size = 0;
  std::atomic<std::uint32_t> members_left{0};  ///< Members that have not ended.
  std::atomic<bool> failed{false};             ///< Some member threw: the token of the others.
  std::shared_ptr<const Failure> failure;      ///< The first of them. Run mutex.
  /// Its run had ended when its turn came: no member runs. Scheduler's mutex, before the start.
  bool dropped = false;
};

/// A task in its slot of the window.
struct TaskNode : Node {
  static constexpr std::size_t kInlineArgumentBytes = 640;

  TaskPart part;
  std::string_view name;
  LoggedNode* log = nullptr;  ///< Entry in the run's kept graph, or null.
  HostWait* host = nullptr;   ///< Host accesses: who waits for its turn.
  std::uint32_t slot = 0;     ///< Fixed for the life of the slot.
  std::int32_t priority = 0;
  std::uint32_t place = 0;  ///< Index of the kind, or of the lane if exact_lane.
  bool unordered = false;
  bool order_ready = false;  ///< May start as soon as its lanes are free. Scheduler's mutex.

  alignas(64) std::array<std::byte, kInlineArgumentBytes> inline_arguments;
  std::vector<std::byte> large_arguments;  ///< In place of inline_arguments when those are too few.
  std::unique_ptr<GroupState> group;
  Binding* binding = nullptr;  ///< Where a replayed task's arguments are. Graph lock.

  [[nodiscard]] std::size_t part_count() const noexcept {
    return type == NodeType::group ? group->size : 1;
  }
  [[nodiscard]] TaskPart& part_at(std::size_t i) noexcept {
    return type == NodeType::group ? *group->parts[i] : part;
  }
};

/// Waits for the tasks that use a buffer of the caller's, and then tells him. Owns itself.
struct BufferRemoval : Node {
  BufferRecord* record = nullptr;
  std::function<void()> freed;
};

}  // namespace strata::graph
