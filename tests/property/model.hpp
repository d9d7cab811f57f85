// Model: what a program means, worked out byte by byte and without the engine.
//
// Every submission (a task, a group, each task of a replay) and every act of the host that
// waits is a node, in submission order. For each byte of each storage the model keeps who wrote it
// and who has read it since, and from that derives
//
//   - required order: pairs that must run one after the other (closure: also through others),
//   - permitted order: a superset, what an engine may order and still be right,
//   - whose failure makes a node be skipped.
//
// The rules, per byte:
//   (1) A full read comes after the last full writer and after the creator_only writers since.
//   (2) A full write comes after those, and after all readers since; then it replaces them all.
//   (3) In a read_after_write_only run a write comes after nobody, and replaces them as well.
//   (4) A creator_only access comes after the task that allocated the storage; it is recorded (a
//       write in addition to the last full writer). no_dep is the same and not recorded.
//   (5) Tasks of a manual scope come after what they name in after(), and are not recorded.
//   (6) Ordered tasks on one exact lane run in submission order. A group is one node, but on each
//   of
//       its lanes the next one need not wait for the members on others. A task that is skipped may
//       leave its lane early, so where tasks may be skipped this order is not handed on to others.
//       A task without body has no place on a lane.
//   (7) What the host waited for comes before all that is submitted later.
//
// What different tasks do with the same bytes without being ordered has no defined outcome. Such an
// argument is not `touched`: its task leaves its bytes alone, and the rest stays comparable.
//
// Thread safety: immutable once made.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bits.hpp"
#include "program.hpp"

namespace strata::property {

/// A storage at run time.
struct Instance {
  std::int64_t bytes = 0;
  int creator = -1;     ///< Node that allocated it.
  bool filled = false;  ///< Had an initial value when it was allocated.
  int storage = 0;      ///< Id in the program; gives the initial value.
};

/// One argument of a node.
struct Use {
  int instance = 0;
  View view;                        ///< With its offset from the instance's first byte.
  std::vector<std::int32_t> bytes;  ///< Covered, ascending.
  bool reads = false;
  bool writes = false;
  bool allocates = false;
  Tracking tracking = Tracking::full;
  Access access = Access::in;
  int member = 0;
  int argument = 0;  ///< Index among the member's arguments.
  bool touched = true;
  /// Nodes from which an edge of that hazard may come.
  Bits raw, waw, war, creator;
};

enum class NodeType : std::uint8_t {
  task,
  group,
  wait_tensor,
  wait_task,
  read,
  write,
  overwrite,
};

struct Node {
  NodeType type = NodeType::task;
  const Step* step = nullptr;  ///< Of the recording, for its tasks.
  int run = 0;
  int recording = -1;
  int replay = -1;         ///< First node of the replay that this is part of.
  std::uint64_t salt = 0;  ///< Scalar parameter of the replay.
  bool manual = false;
  bool raw_only = false;
  std::vector<int> lanes;  ///< Exact lanes on which it keeps its place, see order_checks.cpp.
  std::vector<Use> uses;
  Bits after;
  Bits direct;     ///< Must come before by itself, for bytes or after().
  Bits required;   ///< Closure: all that must come before.
  Bits permitted;  ///< Closure: all that may be made to come before.
  Bits sources;    ///< If one of these fails, it is skipped.
  Bits murky;      ///< If one of these fails, it may be skipped: not defined.
  [[nodiscard]] bool host() const noexcept { return type > NodeType::group; }
  [[nodiscard]] bool submitted() const noexcept { return !host(); }
};

class Model {
 public:
  explicit Model(const Program& program);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const std::vector<Node>& nodes() const noexcept { return nodes_; }
  [[nodiscard]] const Node& node(int i) const { return nodes_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(nodes_.size()); }
  [[nodiscard]] const std::vector<Instance>& instances() const noexcept { return instances_; }
  /// First node of a step, or -1 if it has none. Of the steps only replays have several.
  [[nodiscard]] int first_node(int step) const;
  /// Instance of the storage that `step` of a run allocates or uses.
  [[nodiscard]] int instance_of(int storage) const;
  [[nodiscard]] const std::vector<bool>& cancelled_runs() const noexcept { return cancelled_; }
  /// A size of the heap with which every allocation succeeds once what can end has ended, however
  /// the heap is fragmented; and one with which nobody ever waits.
  [[nodiscard]] std::int64_t tight_heap() const noexcept { return tight_heap_; }
  [[nodiscard]] std::int64_t wide_heap() const noexcept { return wide_heap_; }
  /// True if nothing keeps a and b (a submitted before b) from running at the same time.
  [[nodiscard]] bool independent(int a, int b) const { return !node(b).permitted.has(a); }
  /// The two that are to meet, if any, can.
  [[nodiscard]] bool can_meet() const;
  [[nodiscard]] std::string name(int node) const;

 private:
  friend class Expansion;
  friend class Inference;
  const Program& program_;
  std::vector<Node> nodes_;
  std::vector<Instance> instances_;
  std::map<int, int> first_, instance_of_;
  std::vector<bool> cancelled_;
  std::int64_t tight_heap_ = 64, wide_heap_ = 64;
};

}  // namespace strata::property
