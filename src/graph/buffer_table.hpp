// BufferTable: every buffer the engine knows, by id.
//
// Records never move and are reused with a new generation, so an id is never valid twice. A buffer
// is either the caller's memory or a block of the engine's heap; the latter counts who still holds
// it: the scope it was allocated in, user handles, and each task in flight that takes it. Of the
// caller's memory only those users are counted that the dependency tracker does not follow.
//
// A buffer of the caller's that is removed while tasks use it loses its id at once, so that nobody
// finds it any more; its record is used again when the last of them has ended.
//
// Thread safety: add, find and retire under the graph lock. at() may be called by anyone who knows
// that the buffer lives (a task in flight that takes it).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "graph/heap.hpp"
#include "graph/node.hpp"
#include "graph/region.hpp"
#include "graph/region_index.hpp"

namespace strata::graph {

struct RegionEntry;
struct ScopeState;

/// Bytes that hold no valid value, with the failure that is to blame.
struct InvalidBytes {
  Region region;  ///< All of them lie in it.
  ByteSet bytes;
  std::shared_ptr<const Failure> cause;
};

struct BufferRecord {
  // --- Written under the graph lock when the buffer is added, constant while it lives ---
  BufferId id;                 ///< None once it is being removed.
  std::uint64_t position = 0;  ///< In the table. Constant.
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  std::optional<Heap::Block> block;  ///< Set for storage from the engine's heap.

  // --- Holders of heap storage ---
  /// Scope + handles + tasks in flight. Raised under the graph lock, dropped by anyone (acq_rel);
  /// whoever reaches zero frees the block.
  std::atomic<std::uint32_t> holders{0};
  std::atomic<std::uint32_t> handles{0};  ///< User handles among them.
  /// Added to `holders`, with one holder more for the removal itself, when it is being removed.
  static constexpr std::uint32_t kRemoving = std::uint32_t{1} << 31;
  BufferRemoval* removal = nullptr;  ///< Graph lock.
  /// A user of the caller's memory has ended. True for the last one of a buffer that is being
  /// removed: then no other comes.
  [[nodiscard]] bool drop_user() noexcept {
    // Acquire and release: all uses happen before the caller is told.
    return holders.fetch_sub(1, std::memory_order_acq_rel) == kRemoving + 1;
  }
  /// The open scope that holds it, or null once that has ended. Heap lock.
  ScopeState* scope = nullptr;
  std::shared_ptr<RunState> account;  ///< Run that is charged.
  std::uint64_t allocated_by = 0;     ///< TaskId, for messages.
  BufferRecord* next_dead = nullptr;  ///< List of records to be cleaned up.

  // --- The dependency tracker's part; graph lock ---
  NodeRef creator;  ///< Task that allocated the storage, if any.
  std::shared_ptr<const Failure> creator_failure;
  RegionEntry* entries = nullptr;  ///< All regions of this buffer.
  std::uint32_t entry_count = 0;
  std::unique_ptr<RegionIndex> index;  ///< Once there is more than one region.
  std::vector<InvalidBytes> invalid;
};

class BufferTable {
 public:
  /// A new record with an id; the caller fills in the rest.
  [[nodiscard]] BufferRecord& add();
  /// The record of a live buffer, or null.
  [[nodiscard]] BufferRecord* find(BufferId id) noexcept {
    const std::uint64_t index = id.value & kIndexMask;
    if (index >= made_) return nullptr;
    BufferRecord& record = at(id);
    return record.id == id && id ? &record : nullptr;
  }
  [[nodiscard]] BufferRecord& at(BufferId id) noexcept {
    const std::uint64_t index = id.value & kIndexMask;
    // Acquire is not needed: whoever holds a live id learned it after the chunk was stored.
    return (*chunks_[index / kChunk].load(std::memory_order_relaxed))[index % kChunk];
  }
  /// Nobody finds the buffer any more.
  void hide(BufferRecord& record) noexcept { record.id = BufferId{}; }
  void retire(BufferRecord& record);
  [[nodiscard]] std::size_t live() const noexcept { return live_; }
  BufferTable() = default;
  BufferTable(const BufferTable&) = delete;
  BufferTable& operator=(const BufferTable&) = delete;
  ~BufferTable();

 private:
  static constexpr std::uint64_t kIndexBits = 24;
  static constexpr std::uint64_t kIndexMask = (std::uint64_t{1} << kIndexBits) - 1;
  static constexpr std::size_t kChunk = 1024;
  using Chunk = std::array<BufferRecord, kChunk>;

  std::array<std::atomic<Chunk*>, (kIndexMask + 1) / kChunk> chunks_{};
  std::uint64_t made_ = 0;
  std::uint64_t generation_ = 0;
  std::size_t live_ = 0;
  std::vector<std::uint64_t> free_;  ///< Indices of retired records.
};

}  // namespace strata::graph
