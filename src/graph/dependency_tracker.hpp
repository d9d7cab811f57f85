// DependencyTracker: finds what a task must wait for, from the regions its arguments cover.
//
// For each region that live tasks use there is an entry: who wrote it last, who has read it since,
// and which other entries of the buffer overlap it. An argument finds its entry by one hash; only
// an entry's first use asks the buffer's index which others overlap it, and links them both ways.
// So the cost of an argument depends on what really overlaps it, not on how much is live.
//
// Which write counts: a *replacing* write (full tracking, or any write of a read-after-write-only
// run) makes the writes before it invisible to later readers. A creator-only write is added beside
// the ones before: readers wait for all of them. A no_dep access is not recorded at all.
//
// Readers of one entry are held in a short list. When it is full, those that have ended are
// dropped, and if that does not help all are collapsed into one join node (an "epoch") that ends
// when they have: a writer then waits for one node, however many readers there are.
//
// Thread safety: none; the graph lock guards all of it.
//
// Invariants
//   (1) Two entries of a buffer whose regions share a byte are linked with each other.
//   (2) Every unfinished full or creator-only reader of an entry is in its list of accesses, or in
//       an epoch there, until a later write waited for it.
//   (3) Every unfinished recorded writer of an entry is its `writer`, among `extra_writers`, or
//       among the accesses, until a later write waited for it.
//   (4) An entry is dropped only when all its tasks have ended, or when its buffer is removed.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "graph/buffer_table.hpp"
#include "graph/node.hpp"
#include "graph/region.hpp"

namespace strata::graph {

struct RegionEntry;

/// Two entries that overlap know each other's place in their lists, so that unlinking is O(1).
struct OverlapLink {
  RegionEntry* other;
  std::uint32_t back;  ///< Index of the reverse link in other->overlaps.
  bool assumed;
};

/// An access that a later write must wait for.
struct AccessRef {
  NodeRef node;
  Hazard hazard;  ///< What a later write's edge to it is called.
};

struct alignas(64) RegionEntry {
  static constexpr std::uint32_t kAccesses = 8;
  static constexpr int kViewRank = 4;

  // First and second line: what a look-up touches. The view is the tensor by which the entry was
  // last found; the same tensor again needs neither checks nor canonical form.
  RegionEntry* view_next = nullptr;  ///< In the tracker's table of views.
  std::uint64_t view_hash = 0;
  BufferId view_buffer;  ///< None if the entry has no view in the table.
  std::int64_t view_offset = 0;
  std::uint64_t pinned_by = 0;  ///< Task being submitted that looked this entry up.
  NodeRef writer;               ///< Last replacing writer; node is null if there was none.
  DType view_dtype = DType::uint8;
  std::uint8_t view_rank = 0;
  /// Some access waited for `writer`, so a write that waits for the accesses need not wait for it.
  bool writer_awaited = false;
  bool writer_unordered = false;  ///< `writer` replaced others without waiting for them.
  std::uint32_t access_count = 0;
  std::array<std::int64_t, kViewRank> view_shape;
  std::array<std::int64_t, kViewRank> view_strides;

  BufferRecord* buffer = nullptr;
  std::vector<OverlapLink> overlaps;
  RegionEntry* hash_next = nullptr;  ///< In the tracker's table of canonical regions.
  std::uint64_t hash = 0;
  Region region;
  std::array<AccessRef, kAccesses> accesses;
  std::vector<NodeRef> extra_writers;  ///< Creator-only writers since `writer`.

  std::uint64_t serial = 0;  ///< Never the same for two entries; 0 while free.
  RegionIndex::Handle index_handle = 0;
  RegionEntry* buffer_prev = nullptr;  ///< List of the buffer's entries.
  RegionEntry* buffer_next = nullptr;
  std::uint32_t sweep_position = 0;  ///< Index in the tracker's list of all entries.
};

/// How one argument is followed, settled by the engine from argument, tensor, run and scope.
struct TrackedArgument {
  BufferRecord* buffer = nullptr;
  RegionEntry* entry = nullptr;  ///< Null if nothing is followed: no bytes, or no_dep.
  std::int32_t argument = 0;
  Access access = Access::in;
  Tracking tracking = Tracking::full;
};

struct TrackerStats {
  std::uint64_t same_region = 0;
  std::uint64_t new_region = 0;
  std::uint64_t by_bounds = 0;
  std::uint64_t by_boxes = 0;
  std::uint64_t by_search = 0;
  std::uint64_t assumed = 0;
  std::uint64_t epochs = 0;
};

/// A predecessor found for the task being submitted.
struct Dependency {
  NodeRef node;
  Hazard hazard;
  std::int32_t argument;
  bool carries_failure;
  bool assumed;
};

class DependencyTracker {
 public:
  DependencyTracker();
  ~DependencyTracker();
  DependencyTracker(const DependencyTracker&) = delete;
  DependencyTracker& operator=(const DependencyTracker&) = delete;

  struct Mode {
    bool read_after_write_only = false;
    bool keep_finished = false;  ///< Report predecessors that have ended, too (for a kept graph).
  };

  /// The entry that this very tensor found before, pinned under `pin`, or null. Then the
  /// tensor is known to lie inside its buffer, and to cover some bytes.
  [[nodiscard]] RegionEntry* find_view(const Tensor& tensor, std::uint64_t pin) noexcept {
    const std::uint64_t hash = view_hash(tensor);
    for (RegionEntry* e = views_[hash & (views_.size() - 1)]; e != nullptr; e = e->view_next) {
      if (e->view_hash == hash && is_view(*e, tensor)) {
        ++stats_.same_region;
        e->pinned_by = pin;
        return e;
      }
    }
    return nullptr;
  }
  /// The entry of a tensor's region (not empty, inside the buffer), made if there is none. It will
  /// be found by find_view(tensor) from then on.
  [[nodiscard]] RegionEntry* find_region(BufferRecord& buffer, const Tensor& tensor,
                                         const Region& region, std::uint64_t pin);

  /// Starts collecting for a task whose entries were looked up under `pin`.
  void begin(std::uint64_t pin, Mode mode);
  /// Adds an explicit edge.
  void add_after(NodeRef node, bool known);
  /// Finds what the argument must wait for.
  void collect(const TrackedArgument& argument);
  /// What was found; valid until the next begin().
  [[nodiscard]] std::span<const Dependency> dependencies() const noexcept { return found_; }
  /// A failure that already stands in the bytes that the task would read, or null.
  [[nodiscard]] const std::shared_ptr<const Failure>& poisoned_by() const noexcept {
    return poisoned_by_;
  }
  /// True if some overlap had to be assumed.
  [[nodiscard]] bool any_assumed() const noexcept { return maybe_assumed_ && count_assumed() != 0; }
  [[nodiscard]] std::uint64_t count_assumed() const noexcept {
    return static_cast<std::uint64_t>(std::count_if(
        found_.begin(), found_.end(), [](const Dependency& found) { return found.assumed; }));
  }
  /// Enters the task as reader or writer of the argument, after all were collected.
  void record(const TrackedArgument& argument, NodeRef task);

  /// Enters what a replayed chunk leaves behind in a region: its last replacing writer, if it has
  /// one, and the readers since.
  void record_chunk(RegionEntry& entry, NodeRef writer, std::span<const NodeRef> readers);

  /// Marks what a failed or skipped task should have written, save what others overwrote since.
  void invalidate(BufferRecord& buffer, const Region& region, std::uint64_t writer,
                  const std::shared_ptr<const Failure>& cause);
  /// The bytes hold valid values from now on.
  void validate(BufferRecord& buffer, const Region& region);
  /// The failure that stands in a region's bytes, or null.
  [[nodiscard]] std::shared_ptr<const Failure> invalid_in(const BufferRecord& buffer,
                                                          const Region& region) const;
  /// Drops all entries of a buffer. All its tasks have ended, or no other will use it.
  void forget(BufferRecord& buffer);

  /// Links the collected dependencies into `node`. Returns how many predecessors had not ended.
  std::uint32_t link(Node& node);

  /// Links all unfinished tasks that are recorded for a buffer, or are before those, into `node`.
  /// Returns how many edges that are.
  std::int32_t link_users(const BufferRecord& buffer, Node& node);

  /// Joins made since the last call, each with its guard still held and the number of predecessors
  /// that it waits for. The caller drops the guards.
  struct MadeJoin {
    Node* join;
    std::int32_t waiting;
  };
  [[nodiscard]] std::vector<MadeJoin>& made_joins() noexcept { return joins_made_; }
  void give_back_join(Node* join) noexcept;
  [[nodiscard]] const TrackerStats& stats() const noexcept { return stats_; }
  [[nodiscard]] std::size_t live_regions() const noexcept { return all_.size(); }
  /// Entries are kept although their tasks have ended, so that a kept graph is complete.
  void hold_entries(bool hold) {
    keep_entries_ += hold ? 1 : -1;
    if (keep_entries_ == 0) kept_joins_.clear();
  }
  /// While entries are held: the join of that id, or null.
  [[nodiscard]] Node* kept_join(std::uint64_t id) const {
    const auto found = kept_joins_.find(id);
    return found == kept_joins_.end() ? nullptr : found->second;
  }

 private:
  [[nodiscard]] static std::uint64_t view_hash(const Tensor& tensor) noexcept {
    // One product a word, all independent of each other, and one to mix.
    std::uint64_t sum = tensor.buffer().value * 0x9e3779b97f4a7c15ULL +
                        static_cast<std::uint64_t>(tensor.byte_offset()) * 0xc2b2ae3d27d4eb4fULL;
    std::uint64_t factor = 0x165667b19e3779f9ULL;
    for (int d = 0; d < tensor.rank(); ++d) {
      sum += static_cast<std::uint64_t>(tensor.extent(d)) * factor +
             static_cast<std::uint64_t>(tensor.stride(d)) * (factor ^ 0xff51afd7ed558ccdULL);
      factor += 0xd6e8feb86659fd94ULL;
    }
    return (sum ^ (sum >> 29)) * 0xbf58476d1ce4e5b9ULL >> 16;
  }
  [[nodiscard]] static bool is_view(const RegionEntry& entry, const Tensor& tensor) noexcept {
    if (entry.view_buffer != tensor.buffer() || entry.view_offset != tensor.byte_offset() ||
        entry.view_dtype != tensor.dtype() || entry.view_rank != tensor.rank()) {
      return false;
    }
    for (int d = 0; d < tensor.rank(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (entry.view_shape[i] != tensor.extent(d) || entry.view_strides[i] != tensor.stride(d)) {
        return false;
      }
    }
    return true;
  }
  void set_view(RegionEntry& entry, const Tensor& tensor);
  void drop_view(RegionEntry& entry) noexcept;
  RegionEntry* create(BufferRecord& buffer, const Region& region, std::uint64_t hash);
  void drop(RegionEntry* entry);
  [[nodiscard]] bool droppable(const RegionEntry& entry) const noexcept;
  void sweep();
  void grow_buckets();
  void add(NodeRef node, Hazard hazard, std::int32_t argument, bool carries, bool assumed);
  void collect_reads(const TrackedArgument& argument);
  void collect_writes(const TrackedArgument& argument);
  [[nodiscard]] bool hidden(const RegionEntry& from, const RegionEntry& of, std::uint64_t writer);
  void add_access(RegionEntry& entry, AccessRef access);
  void add_extra_writer(RegionEntry& entry, NodeRef task);
  NodeRef make_join(std::span<const AccessRef> nodes, bool carries_failure);

  std::uint64_t pin_ = 0;  ///< Entries looked up under it are not dropped meanwhile.
  Mode mode_;
  std::vector<Dependency> found_;
  std::shared_ptr<const Failure> poisoned_by_;
  bool maybe_assumed_ = false;  ///< Some overlap was assumed; another argument may have proved it.

  std::vector<RegionEntry*> buckets_;  ///< Entries by canonical region.
  std::vector<RegionEntry*> views_;    ///< Entries by view; as many buckets.
  std::vector<RegionEntry*> all_;      ///< Every live entry, for the sweep.
  std::size_t sweep_hand_ = 0;
  std::size_t sweep_debt_ = 0;  ///< Entries created since the last sweep.
  std::uint64_t next_serial_ = 1;
  int keep_entries_ = 0;

  std::vector<RegionEntry*> free_entries_;
  std::vector<std::unique_ptr<RegionEntry[]>> entry_chunks_;

  std::uint64_t next_join_ = 1;
  std::vector<MadeJoin> joins_made_;
  std::unordered_map<std::uint64_t, Node*> kept_joins_;
  Node* free_joins_ = nullptr;
  std::atomic<Node*> returned_joins_{nullptr};
  std::vector<std::unique_ptr<Node>> joins_;
  TrackerStats stats_;
};

}  // namespace strata::graph
