// Compiling a recording: what is inferred once.

#include "graph/recorded_graph.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "graph/task_window.hpp"

namespace strata::graph {

namespace {

/// Some of a chunk's tasks.
class TaskSet {
 public:
  explicit TaskSet(std::uint32_t tasks) : words_((tasks + 63) / 64, 0) {}
  [[nodiscard]] bool has(std::uint32_t task) const {
    return (words_[task / 64] >> (task % 64) & 1) != 0;
  }
  /// Adds a task, and those of another set.
  void absorb(std::uint32_t task, const TaskSet& others) {
    words_[task / 64] |= std::uint64_t{1} << (task % 64);
    for (std::size_t i = 0; i < words_.size(); ++i)
      words_[i] |= others.words_[i];
  }

 private:
  std::vector<std::uint64_t> words_;
};

/// Infers one chunk with a tracker of its own. A node that never ends, the `outside`, stands for
/// everything before the chunk: it is the writer and a reader of every region at first. A task that
/// finds it among its predecessors may depend on something outside.
class ChunkInference {
 public:
  ChunkInference(const RecordedGraph& graph, Chunk& chunk) : graph_(graph), chunk_(chunk) {
    outside_.reset_for_submit(id_of(-1), NodeType::task, nullptr);
    before_.reserve(chunk.task_count);  // References are kept while it grows.
    fails_with_.reserve(chunk.task_count);
    tracker_.hold_entries(true);  // Nothing ends here, and joins can be taken apart again.
  }

  void run() {
    find_regions();
    for (std::uint32_t i = 0; i < chunk_.task_count; ++i)
      infer(i);
    for (std::size_t r = 0; r < chunk_.regions.size(); ++r)
      close(chunk_.regions[r], *entries_[r]);
  }

 private:
  static std::uint64_t id_of(std::int64_t task) {
    return static_cast<std::uint64_t>(task + 2) << kSlotBits;
  }
  static constexpr std::uint64_t kPin = 1;

  BufferRecord& buffer_of(const RecordedArgument& argument) {
    auto& buffer = buffers_[graph_.space_of(argument.place, argument.tensor)];
    if (buffer == nullptr) {
      buffer = std::make_unique<BufferRecord>();
      buffer->id = argument.tensor.buffer();
    }
    return *buffer;
  }
  const RecordedTask& task(std::uint32_t i) const { return graph_.tasks[chunk_.first_task + i]; }

  void find_regions();
  void infer(std::uint32_t i);
  void close(BoundaryRegion& boundary, const RegionEntry& entry);
  /// Calls visit(index within the chunk) for the tasks that a node stands for; -1 for the outside.
  template <class Visit>
  void each_task(NodeRef ref, Visit&& visit) {
    if (is_join(ref.id)) {
      Node* const join = tracker_.kept_join(ref.id);
      for (std::uint32_t e = 0; e < join->edge_count; ++e) {
        const std::uint64_t from = join->edge(e).from;
        Node* const node = is_join(from) ? tracker_.kept_join(from) : nullptr;
        each_task({node, from}, visit);
      }
      return;
    }
    visit(static_cast<std::int64_t>(ref.id >> kSlotBits) - 2);
  }

  const RecordedGraph& graph_;
  Chunk& chunk_;
  DependencyTracker tracker_;
  std::unordered_map<std::uint64_t, std::unique_ptr<BufferRecord>> buffers_;
  Node outside_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::vector<TrackedArgument>> arguments_;  ///< Of each task.
  std::vector<RegionEntry*> entries_;                    ///< Of each boundary region.
  std::unordered_map<const RegionEntry*, std::size_t> region_of_entry_;
  /// For each task, all that is ordered before it; and all whose failure reaches it.
  std::vector<TaskSet> before_;
  std::vector<TaskSet> fails_with_;
};

void ChunkInference::find_regions() {
  for (std::uint32_t i = 0; i < chunk_.task_count; ++i) {
    auto& arguments = arguments_.emplace_back();
    for (const RecordedArgument& recorded : task(i).parts[0].tensors) {
      TrackedArgument& argument = arguments.emplace_back();
      argument.argument = static_cast<std::int32_t>(arguments.size() - 1);
      argument.access = recorded.access;
      argument.buffer = &buffer_of(recorded);
      const Region region = strata::graph::region_of(recorded.tensor);
      if (region.empty()) continue;
      argument.entry = tracker_.find_region(*argument.buffer, recorded.tensor, region, kPin);
      if (region_of_entry_.emplace(argument.entry, entries_.size()).second) {
        entries_.push_back(argument.entry);
        BoundaryRegion& boundary = chunk_.regions.emplace_back();
        boundary.place = recorded.place;
        boundary.tensor = recorded.tensor;
      }
    }
  }
  for (RegionEntry* entry : entries_) {
    entry->writer = {&outside_, outside_.id};
    entry->accesses[0] = {{&outside_, outside_.id}, Hazard::write_after_read};
    entry->access_count = 1;
  }
}

void ChunkInference::infer(std::uint32_t i) {
  // At the boundary, argument by argument and reads apart from writes.
  for (const TrackedArgument& argument : arguments_[i]) {
    if (argument.entry == nullptr) continue;
    BoundaryRegion& boundary = chunk_.regions[region_of_entry_.at(argument.entry)];
    const auto sees = [&](Access access, bool& outside, bool& inside) {
      TrackedArgument probe = argument;
      probe.access = access;
      tracker_.begin(kPin, {});
      tracker_.collect(probe);
      outside = inside = false;
      for (const Dependency& found : tracker_.dependencies()) {
        each_task(found.node, [&](std::int64_t from) { (from < 0 ? outside : inside) = true; });
      }
    };
    bool outside = false;
    bool inside = false;
    if (argument.access != Access::out) {
      sees(Access::in, outside, inside);
      if (outside) {
        boundary.reads.push_back({i, argument.argument});
        boundary.mixed = boundary.mixed || inside;
      }
    }
    // Behind a write of the same region in this chunk, all before the chunk was waited for.
    if (argument.access != Access::in && argument.entry->writer.node == &outside_) {
      boundary.writes.push_back({i, argument.argument});
    }
  }

  // Inside.
  tracker_.begin(kPin, {});
  for (const TrackedArgument& argument : arguments_[i])
    tracker_.collect(argument);
  std::map<std::int64_t, ChunkEdge> found;  // By predecessor.
  const auto add = [&](std::int64_t from, const ChunkEdge& edge) {
    const auto [known, fresh] = found.emplace(from, edge);
    if (!fresh && edge.carries_failure && !known->second.carries_failure) known->second = edge;
  };
  for (const Dependency& dependency : tracker_.dependencies()) {
    each_task(dependency.node, [&](std::int64_t from) {
      if (from < 0) return;
      add(from, {static_cast<std::uint32_t>(from), dependency.argument, dependency.hazard,
                 dependency.carries_failure, dependency.assumed});
    });
  }
  for (const std::uint32_t after : task(i).after) {
    if (after < chunk_.first_task) continue;
    const std::uint32_t from = after - chunk_.first_task;
    add(from, {from, -1, Hazard::explicit_after, true, false});
  }
  // Latest predecessor first, so that an edge is left out if a later one implies it: for order any
  // path will do, for failure one that carries it all the way.
  TaskSet& before = before_.emplace_back(chunk_.task_count);
  TaskSet& fails_with = fails_with_.emplace_back(chunk_.task_count);
  ChunkTask& compiled = chunk_.tasks[i];
  const RecordedTask& recorded = task(i);
  compiled.body = recorded.parts[0].body;
  compiled.name = recorded.name;
  compiled.place = recorded.target.index;
  compiled.exact_lane = recorded.target.by == Target::By::lane && *compiled.body;
  compiled.priority = recorded.priority;
  compiled.unordered = recorded.unordered;
  chunk_.any_after = chunk_.any_after || !recorded.after.empty() || !recorded.after_outside.empty();
  compiled.first_edge = static_cast<std::uint32_t>(chunk_.edges.size());
  for (auto it = found.rbegin(); it != found.rend(); ++it) {
    const ChunkEdge& edge = it->second;
    if ((edge.carries_failure ? fails_with : before).has(edge.from)) continue;
    chunk_.edges.push_back(edge);
    before.absorb(edge.from, before_[edge.from]);
    if (edge.carries_failure) fails_with.absorb(edge.from, fails_with_[edge.from]);
  }
  compiled.edge_count = static_cast<std::uint32_t>(chunk_.edges.size()) - compiled.first_edge;

  nodes_.push_back(std::make_unique<Node>());
  nodes_.back()->reset_for_submit(id_of(i), NodeType::task, nullptr);
  const NodeRef ref{nodes_.back().get(), id_of(i)};
  for (const bool writes : {false, true}) {
    for (const TrackedArgument& argument : arguments_[i]) {
      if ((argument.access != Access::in) == writes) tracker_.record(argument, ref);
    }
  }
}

/// What the real tracker must know of the region behind the chunk.
void ChunkInference::close(BoundaryRegion& boundary, const RegionEntry& entry) {
  each_task(entry.writer, [&](std::int64_t task) { boundary.last_writer = task; });
  for (std::uint32_t a = 0; a < entry.access_count; ++a) {
    each_task(entry.accesses[a].node, [&](std::int64_t task) {
      if (task >= 0) boundary.last_readers.push_back(static_cast<std::uint32_t>(task));
    });
  }
  std::sort(boundary.last_readers.begin(), boundary.last_readers.end());
}

}  // namespace

void RecordedGraph::compile() {
  for (const ScopeEvent& event : scope_events)
    simple = simple && !event.manual;
  for (const RecordedTask& task : tasks) {
    simple = simple && task.type == NodeType::task;
    for (const RecordedPart& part : task.parts) {
      for (const RecordedArgument& argument : part.tensors) {
        simple = simple && argument.place.in != RecordedPlace::In::temporary &&
                 argument.tracking == Tracking::full &&
                 argument.tensor.tracking() == Tracking::full;
      }
    }
  }
  if (!simple) return;
  // The same region has the same number in all chunks.
  std::map<std::pair<std::uint64_t, std::vector<std::int64_t>>, std::uint32_t> numbers;
  for (std::uint32_t first = 0; first < tasks.size();) {
    Chunk& chunk = chunks.emplace_back();
    chunk.first_task = first;
    chunk.task_count = static_cast<std::uint32_t>(std::min(chunk_size_, tasks.size() - first));
    chunk.tasks.resize(chunk.task_count);
    ChunkInference(*this, chunk).run();
    for (BoundaryRegion& boundary : chunk.regions) {
      const Region region = region_of(boundary.tensor);
      std::vector<std::int64_t> key{region.begin};
      for (std::int32_t d = 0; d < region.dim_count; ++d) {
        key.push_back(region.dims[static_cast<std::size_t>(d)].extent);
        key.push_back(region.dims[static_cast<std::size_t>(d)].stride);
      }
      boundary.slot =
          numbers
              .emplace(std::pair(space_of(boundary.place, boundary.tensor), std::move(key)),
                       static_cast<std::uint32_t>(numbers.size()))
              .first->second;
    }
    edge_count += chunk.edges.size();
    first += chunk.task_count;
  }
  region_count = static_cast<std::uint32_t>(numbers.size());
}

}  // namespace strata::graph
