// The entries of the tracker: how one is found for a region, linked to those it overlaps, and
// dropped once nobody needs it.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/planted_fault.hpp"
#include "graph/dependency_tracker.hpp"

namespace strata::graph {

namespace {

constexpr std::size_t kEntryChunk = 64;

std::uint64_t entry_hash(const BufferRecord& buffer, const Region& region) noexcept {
  return (region.hash() ^ buffer.id.value) * 0x9e3779b97f4a7c15ULL;
}

}  // namespace

RegionEntry* DependencyTracker::find_region(BufferRecord& buffer, const Tensor& tensor,
                                            const Region& region, std::uint64_t pin) {
  const std::uint64_t hash = entry_hash(buffer, region);
  RegionEntry* entry = buckets_[hash & (buckets_.size() - 1)];
  while (entry != nullptr &&
         !(entry->hash == hash && entry->buffer == &buffer && entry->region == region)) {
    entry = entry->hash_next;
  }
  if (entry != nullptr) {
    ++stats_.same_region;
  } else {
    entry = create(buffer, region, hash);
  }
  entry->pinned_by = pin;
  set_view(*entry, tensor);
  return entry;
}

void DependencyTracker::set_view(RegionEntry& entry, const Tensor& tensor) {
  if (tensor.rank() > RegionEntry::kViewRank) return;
  drop_view(entry);
  entry.view_hash = view_hash(tensor);
  entry.view_buffer = tensor.buffer();
  entry.view_offset = tensor.byte_offset();
  entry.view_dtype = tensor.dtype();
  entry.view_rank = static_cast<std::uint8_t>(tensor.rank());
  std::copy(tensor.shape().begin(), tensor.shape().end(), entry.view_shape.begin());
  std::copy(tensor.strides().begin(), tensor.strides().end(), entry.view_strides.begin());
  RegionEntry*& bucket = views_[entry.view_hash & (views_.size() - 1)];
  entry.view_next = std::exchange(bucket, &entry);
}

void DependencyTracker::drop_view(RegionEntry& entry) noexcept {
  if (!entry.view_buffer) return;
  RegionEntry** at = &views_[entry.view_hash & (views_.size() - 1)];
  while (*at != &entry)
    at = &(*at)->view_next;
  *at = entry.view_next;
  entry.view_buffer = {};
}

RegionEntry* DependencyTracker::create(BufferRecord& buffer, const Region& region,
                                       std::uint64_t hash) {
  ++stats_.new_region;
  if (all_.size() >= buckets_.size()) grow_buckets();
  if (free_entries_.empty()) {
    entry_chunks_.push_back(std::make_unique<RegionEntry[]>(kEntryChunk));
    for (std::size_t i = kEntryChunk; i-- > 0;)
      free_entries_.push_back(&entry_chunks_.back()[i]);
  }
  RegionEntry* entry = free_entries_.back();
  free_entries_.pop_back();
  entry->hash = hash;
  entry->buffer = &buffer;
  entry->region = region;
  entry->writer = {};
  entry->writer_awaited = false;
  entry->writer_unordered = false;
  entry->access_count = 0;
  entry->serial = next_serial_++;
  RegionEntry*& bucket = buckets_[hash & (buckets_.size() - 1)];
  entry->hash_next = std::exchange(bucket, entry);
  entry->sweep_position = static_cast<std::uint32_t>(all_.size());
  all_.push_back(entry);
  ++sweep_debt_;

  if (buffer.entry_count != 0) {
    if (buffer.index == nullptr) {
      buffer.index = std::make_unique<RegionIndex>();
      RegionEntry* only = buffer.entries;
      only->index_handle = buffer.index->insert(only->region, only);
    }
    buffer.index->query(region, [&](void* payload) {
      auto* other = static_cast<RegionEntry*>(payload);
      const OverlapResult result = overlap(region, other->region);
      switch (result.tier) {
        case OverlapTier::bounds:
          ++stats_.by_bounds;
          break;
        case OverlapTier::boxes:
          ++stats_.by_boxes;
          break;
        case OverlapTier::search:
          ++stats_.by_search;
          break;
      }
      if (result.overlap == Overlap::none) return;
      const bool assumed = result.overlap == Overlap::assumed;
      const auto here = static_cast<std::uint32_t>(entry->overlaps.size());
      const auto there = static_cast<std::uint32_t>(other->overlaps.size());
      entry->overlaps.push_back({other, there, assumed});
      other->overlaps.push_back({entry, here, assumed});
    });
  }
  if (buffer.index != nullptr) entry->index_handle = buffer.index->insert(region, entry);
  entry->buffer_prev = nullptr;
  entry->buffer_next = std::exchange(buffer.entries, entry);
  if (entry->buffer_next != nullptr) entry->buffer_next->buffer_prev = entry;
  ++buffer.entry_count;
  return entry;
}

bool DependencyTracker::droppable(const RegionEntry& entry) const noexcept {
  if (base::planted("entry_collected_while_live")) return entry.pinned_by != pin_;
  if (keep_entries_ > 0 || entry.pinned_by == pin_) return false;
  if (entry.writer.node != nullptr && !entry.writer.finished()) return false;
  for (std::uint32_t i = 0; i < entry.access_count; ++i) {
    if (!entry.accesses[i].node.finished()) return false;
  }
  const auto ended = [](const NodeRef& ref) { return ref.finished(); };
  if (!std::all_of(entry.extra_writers.begin(), entry.extra_writers.end(), ended)) return false;
  if (!entry.writer_unordered) return true;
  // What it replaced may still be running. Should that fail, this entry tells that it does not
  // count.
  return std::all_of(entry.overlaps.begin(), entry.overlaps.end(), [&](const OverlapLink& link) {
    const RegionEntry& other = *link.other;
    if (other.writer.node != nullptr && other.writer.id < entry.writer.id &&
        !other.writer.finished()) {
      return false;
    }
    return std::all_of(other.accesses.begin(), other.accesses.begin() + other.access_count,
                       [](const AccessRef& access) {
                         return access.hazard != Hazard::write_after_write ||
                                access.node.finished();
                       });
  });
}

void DependencyTracker::drop(RegionEntry* entry) {
  for (const OverlapLink& link : entry->overlaps) {
    auto& theirs = link.other->overlaps;
    const OverlapLink moved = theirs.back();
    if (link.back + 1 != theirs.size()) {
      theirs[link.back] = moved;
      moved.other->overlaps[moved.back].back = link.back;
    }
    theirs.pop_back();
  }
  entry->overlaps.clear();
  if (entry->overlaps.capacity() > 64) entry->overlaps.shrink_to_fit();
  entry->extra_writers.clear();
  BufferRecord& buffer = *entry->buffer;
  if (buffer.index != nullptr) buffer.index->erase(entry->index_handle);
  if (entry->buffer_prev != nullptr) {
    entry->buffer_prev->buffer_next = entry->buffer_next;
  } else {
    buffer.entries = entry->buffer_next;
  }
  if (entry->buffer_next != nullptr) entry->buffer_next->buffer_prev = entry->buffer_prev;
  if (--buffer.entry_count == 0) buffer.index.reset();

  RegionEntry** at = &buckets_[entry->hash & (buckets_.size() - 1)];
  while (*at != entry)
    at = &(*at)->hash_next;
  *at = entry->hash_next;
  drop_view(*entry);

  all_.back()->sweep_position = entry->sweep_position;
  all_[entry->sweep_position] = all_.back();
  all_.pop_back();
  entry->serial = 0;
  free_entries_.push_back(entry);
}

/// Looks at two old entries for each new one, so that what is held stays in proportion to what is
/// live and no call pays for many.
void DependencyTracker::sweep() {
  std::size_t budget = 2 * std::exchange(sweep_debt_, 0);
  while (budget-- > 0 && !all_.empty()) {
    if (sweep_hand_ >= all_.size()) sweep_hand_ = 0;
    if (droppable(*all_[sweep_hand_])) {
      drop(all_[sweep_hand_]);
    } else {
      ++sweep_hand_;
    }
  }
}

void DependencyTracker::forget(BufferRecord& buffer) {
  while (buffer.entries != nullptr)
    drop(buffer.entries);
}

void DependencyTracker::grow_buckets() {
  std::vector<RegionEntry*> bigger(buckets_.size() * 2, nullptr);
  for (RegionEntry* entry : all_) {
    RegionEntry*& bucket = bigger[entry->hash & (bigger.size() - 1)];
    entry->hash_next = std::exchange(bucket, entry);
  }
  buckets_ = std::move(bigger);
  views_.assign(buckets_.size(), nullptr);
  for (RegionEntry* entry : all_) {
    if (!entry->view_buffer) continue;
    RegionEntry*& bucket = views_[entry->view_hash & (views_.size() - 1)];
    entry->view_next = std::exchange(bucket, entry);
  }
}

}  // namespace strata::graph
