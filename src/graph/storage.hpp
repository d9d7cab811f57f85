// Storage: the engine's heap for runtime-allocated tensors, with accounts per run and scope.
//
// Thread safety: all members lock. The heap lock is taken inside the graph lock, and is a leaf.
//
// Invariant: a block is live exactly while its buffer's `holders` is above zero; the one who drops
// it to zero frees the block and puts the record on the list of the dead.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graph/buffer_table.hpp"
#include "graph/heap.hpp"
#include "os/adaptive_mutex.hpp"

namespace strata::graph {

class OrchestrationState;

/// One open scope of an orchestration. Owned by the orchestration's stack of scopes.
struct ScopeState {
  std::string path;  ///< "root/tiles".
  bool manual = false;
  OrchestrationState* owner = nullptr;
  std::vector<BufferRecord*> held;  ///< Allocated in this scope; its thread only.
  std::uint64_t bytes = 0;          ///< Of the live blocks that the scope holds. Heap lock.
};

class Storage {
 public:
  /// `memory`: `capacity` bytes of the caller's, or null. `setting`: what the capacity was given
  /// by.
  Storage(std::size_t capacity, std::byte* memory, std::string setting);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// A block for `record`, held by `scope` and charged to `run`, or false if there is no room.
  [[nodiscard]] bool allocate(BufferRecord& record, std::uint64_t bytes, ScopeState& scope,
                              const std::shared_ptr<RunState>& run);
  /// Drops one holder of a block. True if that freed it: the record is dead then.
  bool release(BufferRecord& record) noexcept;
  /// The scope no longer holds what it allocated. True if a block was freed.
  bool end_scope(ScopeState& scope) noexcept;
  /// All records that died since the last call (linked by next_dead). Graph lock held.
  [[nodiscard]] BufferRecord* take_dead() noexcept {
    if (dead_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    return dead_.exchange(nullptr, std::memory_order_acquire);
  }

  [[nodiscard]] std::uint64_t capacity() const noexcept { return heap_.capacity(); }
  /// Whether allocate() of so many bytes would find room now.
  [[nodiscard]] bool has_room_for(std::uint64_t bytes) const;
  [[nodiscard]] std::uint64_t used() const;
  [[nodiscard]] std::uint64_t peak() const;

  /// Room there would be if every block ended for which releasable(record) is true.
  template <class Releasable>
  [[nodiscard]] Heap::Holes holes_if(Releasable&& releasable) const {
    const std::lock_guard lock(mutex_);
    return heap_.holes_if(
        [&](void* owner) { return releasable(*static_cast<const BufferRecord*>(owner)); });
  }
  /// The block with the oldest allocation for which keep(record) is true, or null.
  template <class Keep>
  [[nodiscard]] const BufferRecord* oldest(Keep&& keep) const {
    const std::lock_guard lock(mutex_);
    const BufferRecord* found = nullptr;
    heap_.walk([&](const Heap::Walked& block) {
      if (block.free) return;
      const auto* record = static_cast<const BufferRecord*>(block.owner);
      if (keep(*record) && (found == nullptr || record->id < found->id)) found = record;
    });
    return found;
  }

  /// Calls visit(record) for each live block.
  template <class Visit>
  void for_each_block(Visit&& visit) const {
    const std::lock_guard lock(mutex_);
    heap_.walk([&](const Heap::Walked& block) {
      if (!block.free) visit(*static_cast<const BufferRecord*>(block.owner));
    });
  }

 private:
  void map();

  mutable os::AdaptiveMutex mutex_;
  Heap heap_;
  std::uint64_t peak_ = 0;
  const std::string setting_;
  const bool callers_memory_;
  std::byte* base_;                           ///< The caller's, or mapped at the first allocation.
  std::atomic<BufferRecord*> dead_{nullptr};  ///< Pushed by releasers (release), emptied whole.
};

}  // namespace strata::graph
