#include "graph/dependency_tracker.hpp"

#include <algorithm>
#include <utility>

#include "base/planted_fault.hpp"
#include "graph/task_window.hpp"

namespace strata::graph {

namespace {

constexpr std::size_t kFirstBuckets = 256;
/// From this many overlaps on, an access drops those whose tasks have all ended.
constexpr std::size_t kDropOverlapsAbove = 16;
/// So many entries may stay although their tasks have ended: the next ones may use them again.
constexpr std::size_t kSweepAbove = 8192;
/// Bound on the exact test of whether newer writers together cover an older one.
constexpr std::size_t kHiddenMaxRanges = 1024;

bool writes(Access access) noexcept { return access != Access::in; }
bool reads(Access access) noexcept { return access != Access::out; }

}  // namespace

DependencyTracker::DependencyTracker()
    : buckets_(kFirstBuckets, nullptr), views_(kFirstBuckets, nullptr) {}
DependencyTracker::~DependencyTracker() = default;

// ---- Collecting ---------------------------------------------------------------------------------

void DependencyTracker::begin(std::uint64_t pin, Mode mode) {
  pin_ = pin;
  mode_ = mode;
  found_.clear();
  if (poisoned_by_ != nullptr) poisoned_by_.reset();
  maybe_assumed_ = false;
  if (sweep_debt_ != 0) {
    if (all_.size() > kSweepAbove) {
      sweep();
    } else {
      sweep_debt_ = 0;
    }
  }
}

void DependencyTracker::add(NodeRef ref, Hazard hazard, std::int32_t argument, bool carries,
                            bool assumed) {
  if (ref.node == nullptr) return;
  if (!mode_.keep_finished && ref.finished()) return;
  if (ref.node->id == ref.id) {  // Otherwise the slot has another task now: no mark to look at.
    const std::uint32_t mark = ref.node->mark_index;
    if (mark < found_.size() && found_[mark].node.node == ref.node &&
        found_[mark].node.id == ref.id) {
      Dependency& known = found_[mark];
      if (carries && !known.carries_failure) {
        known.carries_failure = true;
        known.hazard = hazard;
        known.argument = argument;
      }
      known.assumed = known.assumed && assumed;
      return;
    }
    ref.node->mark_index = static_cast<std::uint32_t>(found_.size());
  }
  if (assumed) {
    maybe_assumed_ = true;
    ++stats_.assumed;
  }
  found_.push_back({ref, hazard, argument, carries, assumed});
}

void DependencyTracker::add_after(NodeRef node, bool known) {
  if (known && !base::planted("after_edge_ignored")) {
    add(node, Hazard::explicit_after, -1, /*carries=*/true, /*assumed=*/false);
  }
}

void DependencyTracker::collect(const TrackedArgument& argument) {
  if (argument.entry == nullptr) return;
  const bool waits_for_hazards =
      argument.tracking == Tracking::full ||
      (argument.tracking == Tracking::creator_only && base::planted("creator_only_waits_for_all"));
  if (!waits_for_hazards) [[unlikely]] {
    if (base::planted("creator_edge_missing")) return;
    const BufferRecord& buffer = *argument.buffer;
    add(buffer.creator, Hazard::creator, argument.argument, reads(argument.access), false);
    if (buffer.creator_failure != nullptr && reads(argument.access) && poisoned_by_ == nullptr) {
      poisoned_by_ = buffer.creator_failure;
    }
    return;
  }
  if (base::planted("raw_dropped_on_second_arg") && argument.argument == 1 &&
      argument.access == Access::in) {
    return;
  }
  if (argument.entry->overlaps.size() > kDropOverlapsAbove) {
    // What has ended would be looked at again and again.
    auto& overlaps = argument.entry->overlaps;
    for (std::size_t i = 0; i < overlaps.size();) {
      if (droppable(*overlaps[i].other)) {
        drop(overlaps[i].other);  // Puts the last link in this place.
      } else {
        ++i;
      }
    }
  }
  if (reads(argument.access)) collect_reads(argument);
  if (writes(argument.access) &&
      (!mode_.read_after_write_only || base::planted("raw_only_keeps_war")))
    collect_writes(argument);
}

/// What a reader waits for: every writer of its bytes that no later write has replaced.
void DependencyTracker::collect_reads(const TrackedArgument& argument) {
  RegionEntry& entry = *argument.entry;
  const std::int32_t arg = argument.argument;
  constexpr Hazard kHazard = Hazard::read_after_write;
  const auto add_visible = [&](const RegionEntry& of, const NodeRef& writer, bool assumed) {
    if (writer.node == nullptr || (!mode_.keep_finished && writer.finished())) return;
    // A join stands for writers of different times: it is never taken for replaced.
    if (of.overlaps.empty() || is_join(writer.id) || !hidden(entry, of, writer.id)) {
      add(writer, kHazard, arg, true, assumed);
    }
  };
  add_visible(entry, entry.writer, false);
  for (const NodeRef& extra : entry.extra_writers)
    add_visible(entry, extra, false);
  if (!base::planted("overlap_neighbours_ignored")) {
    for (const OverlapLink& link : entry.overlaps) {
      add_visible(*link.other, link.other->writer, link.assumed);
      for (const NodeRef& extra : link.other->extra_writers) {
        add_visible(*link.other, extra, link.assumed);
      }
    }
  }
  if (!argument.buffer->invalid.empty() && poisoned_by_ == nullptr &&
      !base::planted("invalid_forgotten")) {
    poisoned_by_ = invalid_in(*argument.buffer, argument.entry->region);
  }
}

/// What a writer waits for besides: every access of its bytes since the last write that waited.
void DependencyTracker::collect_writes(const TrackedArgument& argument) {
  const std::int32_t arg = argument.argument;
  const auto collect_from = [&](const RegionEntry& entry, bool assumed) {
    if (!base::planted("no_waw")) {
      if (!entry.writer_awaited || mode_.keep_finished) {
        add(entry.writer, Hazard::write_after_write, arg, base::planted("poison_over_war"),
            assumed);
      }
      for (const NodeRef& extra : entry.extra_writers) {
        add(extra, Hazard::write_after_write, arg, false, assumed);
      }
    }
    if (base::planted("no_war")) return;
    for (std::uint32_t i = 0; i < entry.access_count; ++i) {
      add(entry.accesses[i].node, entry.accesses[i].hazard, arg, base::planted("poison_over_war"),
          assumed);
    }
  };
  collect_from(*argument.entry, false);
  if (base::planted("overlap_neighbours_ignored")) return;
  for (const OverlapLink& link : argument.entry->overlaps)
    collect_from(*link.other, link.assumed);
}

/// True if later writes have replaced what the task `writer` wrote to `of`, as far as `from` sees
/// it.
bool DependencyTracker::hidden(const RegionEntry& from, const RegionEntry& of,
                               std::uint64_t writer) {
  const auto is_newer = [&](const RegionEntry& entry) {
    return entry.writer.node != nullptr && entry.writer.id > writer;
  };
  if (is_newer(from) || is_newer(of)) return true;
  bool partly = false;
  for (const OverlapLink& link : of.overlaps) {
    if (!is_newer(*link.other)) continue;
    const Region& newer = link.other->region;
    if (contains(newer, of.region) || contains(newer, from.region)) return true;
    partly = true;
  }
  if (!partly) return false;
  // Several newer writes may cover it together: decided by bytes.
  ByteSet seen(from.region, kHiddenMaxRanges);
  const ByteSet written(of.region, kHiddenMaxRanges);
  if (!seen.exact() || !written.exact()) return false;
  for (const OverlapLink& link : of.overlaps) {
    if (!is_newer(*link.other)) continue;
    const ByteSet covered(link.other->region, kHiddenMaxRanges);
    if (covered.exact()) seen.subtract(covered);
  }
  return !seen.intersects(written);
}

std::uint32_t DependencyTracker::link(Node& node) {
  std::uint32_t waiting = 0;
  for (const Dependency& dependency : found_) {
    Edge& edge = node.add_edge();
    edge.to = &node;
    edge.from = dependency.node.id;
    edge.argument = dependency.argument;
    edge.hazard = dependency.hazard;
    edge.carries_failure = dependency.carries_failure;
    edge.assumed = dependency.assumed;
    const bool same_incarnation = dependency.node.node->id == dependency.node.id;
    edge.waited = true;  // Before the push: the finisher may look at once.
    if (same_incarnation && dependency.node.node->push_successor(edge)) {
      ++waiting;
    } else if (mode_.keep_finished) {
      edge.waited = false;
    } else {
      --node.edge_count;
    }
  }
  return waiting;
}

std::int32_t DependencyTracker::link_users(const BufferRecord& buffer, Node& node) {
  std::int32_t waiting = 0;
  const auto await = [&](const NodeRef& user) {
    if (user.node == nullptr || user.node->id != user.id) return;
    Edge& edge = node.add_edge();
    edge = {.to = &node, .from = user.id, .waited = true};
    if (user.node->push_successor(edge)) {
      ++waiting;
    } else {
      --node.edge_count;
    }
  };
  // Invariants (2) and (3): what is not recorded any more is before something that is.
  for (const RegionEntry* entry = buffer.entries; entry != nullptr; entry = entry->buffer_next) {
    await(entry->writer);
    for (const NodeRef& writer : entry->extra_writers)
      await(writer);
    for (std::uint32_t i = 0; i < entry->access_count; ++i)
      await(entry->accesses[i].node);
  }
  return waiting;
}

// ---- Recording ----------------------------------------------------------------------------------

void DependencyTracker::record(const TrackedArgument& argument, NodeRef task) {
  if (argument.entry == nullptr) return;
  if (argument.tracking == Tracking::no_dep && !base::planted("no_dep_recorded")) return;
  RegionEntry& entry = *argument.entry;
  if (!writes(argument.access)) {
    if (entry.writer.node == task.node && entry.writer.id == task.id) return;  // Its own write.
    add_access(entry, {task, Hazard::write_after_read});
    // Among overlapping regions the writer may have been hidden from it.
    if (argument.tracking == Tracking::full && entry.overlaps.empty()) entry.writer_awaited = true;
    return;
  }
  if (argument.tracking == Tracking::creator_only) {
    add_extra_writer(entry, task);
    return;
  }
  if (!argument.buffer->invalid.empty() && !base::planted("invalid_not_cleared")) {
    validate(*argument.buffer, entry.region);
  }
  if (mode_.read_after_write_only) {
    // It replaced without waiting: a later write still has to wait for those before.
    if (entry.writer.node != nullptr && entry.writer.node != task.node) {
      add_access(entry, {entry.writer, Hazard::write_after_write});
    }
    for (const NodeRef& extra : entry.extra_writers) {
      add_access(entry, {extra, Hazard::write_after_write});
    }
  } else {
    entry.access_count = 0;
  }
  if (base::planted("reader_list_cleared_by_partial_write")) {
    for (const OverlapLink& link : entry.overlaps) {
      link.other->access_count = 0;
      link.other->writer_awaited = false;
    }
  }
  entry.extra_writers.clear();
  entry.writer = task;
  entry.writer_awaited = false;
  entry.writer_unordered = mode_.read_after_write_only;
}

void DependencyTracker::record_chunk(RegionEntry& entry, NodeRef writer,
                                     std::span<const NodeRef> readers) {
  if (writer.node != nullptr) {
    entry.writer = writer;
    entry.writer_awaited = false;
    entry.writer_unordered = false;
    entry.extra_writers.clear();
    entry.access_count = 0;
  }
  for (const NodeRef& reader : readers)
    add_access(entry, {reader, Hazard::write_after_read});
}

void DependencyTracker::add_access(RegionEntry& entry, AccessRef access) {
  auto& list = entry.accesses;
  if (entry.access_count != 0) {
    const NodeRef& last = list[entry.access_count - 1].node;
    if (last.node == access.node.node && last.id == access.node.id) return;
  }
  if (entry.access_count == RegionEntry::kAccesses) [[unlikely]] {
    if (keep_entries_ == 0) {
      std::uint32_t kept = 0;
      for (std::uint32_t i = 0; i < entry.access_count; ++i) {
        if (!list[i].node.finished()) list[kept++] = list[i];
      }
      entry.access_count = kept;
    }
    if (entry.access_count == RegionEntry::kAccesses) {
      const std::size_t collapsed =
          list.size() - (base::planted("readers_lost_on_collapse") ? 1 : 0);
      const NodeRef epoch = make_join({list.data(), collapsed}, /*carries_failure=*/false);
      list[0] = {epoch, Hazard::write_after_read};
      entry.access_count = 1;
      ++stats_.epochs;
    }
  }
  list[entry.access_count++] = access;
}

void DependencyTracker::add_extra_writer(RegionEntry& entry, NodeRef task) {
  auto& extra = entry.extra_writers;
  if (extra.size() >= RegionEntry::kAccesses) {
    if (keep_entries_ == 0) std::erase_if(extra, [](const NodeRef& r) { return r.finished(); });
    if (extra.size() >= RegionEntry::kAccesses) {
      std::vector<AccessRef> writers;
      writers.reserve(extra.size());
      for (const NodeRef& writer : extra)
        writers.push_back({writer, Hazard::read_after_write});
      const NodeRef epoch = make_join(writers, /*carries_failure=*/true);
      extra.assign(1, epoch);
    }
  }
  extra.push_back(task);
}

/// A node that ends when all of `nodes` have.
NodeRef DependencyTracker::make_join(std::span<const AccessRef> nodes, bool carries_failure) {
  if (free_joins_ == nullptr && keep_entries_ == 0) {
    // Acquire: pairs with give_back_join().
    free_joins_ = returned_joins_.exchange(nullptr, std::memory_order_acquire);
  }
  Node* join = free_joins_;
  if (join != nullptr && keep_entries_ == 0) {
    free_joins_ = join->link;
  } else {
    joins_.push_back(std::make_unique<Node>());
    join = joins_.back().get();
  }
  const std::uint64_t id = (next_join_++ << kSlotBits) | kSlotMask;
  join->reset_for_submit(id, NodeType::join, nullptr);
  std::int32_t waiting = 0;
  for (const auto& [ref, hazard] : nodes) {
    Edge& edge = join->add_edge();
    edge = {.to = join,
            .from = ref.id,
            .hazard = hazard,
            .carries_failure = carries_failure,
            .waited = true};
    if (ref.node->id == ref.id && ref.node->push_successor(edge)) ++waiting;
  }
  joins_made_.push_back({join, waiting});
  if (keep_entries_ > 0) kept_joins_.emplace(id, join);
  return {join, id};
}

void DependencyTracker::give_back_join(Node* join) noexcept {
  Node* head = returned_joins_.load(std::memory_order_relaxed);
  do {
    join->link = head;
  } while (!returned_joins_.compare_exchange_weak(head, join, std::memory_order_release,
                                                  std::memory_order_relaxed));
}

// ---- Validity -----------------------------------------------------------------------------------

void DependencyTracker::invalidate(BufferRecord& buffer, const Region& region, std::uint64_t writer,
                                   const std::shared_ptr<const Failure>& cause) {
  if (region.empty()) return;
  ByteSet bytes(region);
  for (RegionEntry* entry = buffer.entries; entry != nullptr; entry = entry->buffer_next) {
    if (entry->writer.node == nullptr || entry->writer.id <= writer) continue;
    if (overlap(entry->region, region).overlap == Overlap::none) continue;
    const ByteSet newer(entry->region);
    if (newer.exact()) bytes.subtract(newer);
  }
  if (!bytes.empty()) buffer.invalid.push_back({region, std::move(bytes), cause});
}

void DependencyTracker::validate(BufferRecord& buffer, const Region& region) {
  std::erase_if(buffer.invalid,
                [&](const InvalidBytes& invalid) { return contains(region, invalid.region); });
  const ByteSet bytes(region);  // One that had to be widened subtracts nothing.
  for (InvalidBytes& invalid : buffer.invalid)
    invalid.bytes.subtract(bytes);
  std::erase_if(buffer.invalid, [](const InvalidBytes& i) { return i.bytes.empty(); });
  if (buffer.invalid.empty()) buffer.creator_failure.reset();
}

std::shared_ptr<const Failure> DependencyTracker::invalid_in(const BufferRecord& buffer,
                                                             const Region& region) const {
  if (buffer.invalid.empty() || region.empty()) return nullptr;
  const ByteSet bytes(region);
  for (const InvalidBytes& invalid : buffer.invalid) {
    // The region tells neighbours apart where the bytes had to be widened.
    if (invalid.bytes.intersects(bytes) &&
        overlap(invalid.region, region).overlap != Overlap::none) {
      return invalid.cause;
    }
  }
  return nullptr;
}

}  // namespace strata::graph
