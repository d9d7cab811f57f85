// IdTable: objects by the small numbers under which they were given out.
//
// Thread safety: add() and take() are for one thread at a time; find() for any, without a lock.
//
// Invariant: an object, once there, stays at its address until it is taken, so what find() returned
// is valid as long as whoever takes knows that nobody uses it.
//
// Who writes, who reads: chunks and entries are published with release by add(), and read with
// acquire by find().
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "strata/error.hpp"

namespace strata::node {

template <class T>
class IdTable {
 public:
  static constexpr std::uint32_t kMaxId = (1U << 20U) - 1;

  IdTable() = default;
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;
  ~IdTable() {
    for (auto& slot : chunks_) {
      const std::unique_ptr<Chunk> chunk(slot.load(std::memory_order_relaxed));
      if (!chunk) continue;
      for (auto& entry : *chunk)
        delete entry.load(std::memory_order_relaxed);
    }
  }

  /// Makes `object` known as `id`. Throws InvalidArgument if the id is above kMaxId. An id that is
  /// known already stays as it is.
  void add(std::uint32_t id, std::remove_const_t<T> object) {
    if (id > kMaxId) {
      throw InvalidArgument("callable " + std::to_string(id) + " is beyond the " +
                            std::to_string(kMaxId) + " that one Worker can have");
    }
    auto& slot = chunks_[id / kChunk];
    Chunk* chunk = slot.load(std::memory_order_relaxed);  // add() is the only writer.
    if (chunk == nullptr) {
      chunk = new Chunk{};
      slot.store(chunk, std::memory_order_release);
    }
    auto& entry = (*chunk)[id % kChunk];
    if (entry.load(std::memory_order_relaxed) != nullptr) return;
    entry.store(new T(std::move(object)), std::memory_order_release);
  }

  /// Removes the object of that id, and returns it; null if there is none.
  std::unique_ptr<T> take(std::uint32_t id) noexcept {
    auto* const entry = entry_of(id);
    if (entry == nullptr) return nullptr;
    return std::unique_ptr<T>(entry->exchange(nullptr, std::memory_order_acq_rel));
  }

  /// Null if there is none with that id.
  [[nodiscard]] T* find(std::uint32_t id) const noexcept {
    auto* const entry = entry_of(id);
    return entry == nullptr ? nullptr : entry->load(std::memory_order_acquire);
  }

 private:
  static constexpr std::size_t kChunk = 1024;
  using Chunk = std::array<std::atomic<T*>, kChunk>;

  [[nodiscard]] std::atomic<T*>* entry_of(std::uint32_t id) const noexcept {
    if (id > kMaxId) return nullptr;
    Chunk* const chunk = chunks_[id / kChunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &(*chunk)[id % kChunk];
  }

  std::array<std::atomic<Chunk*>, (kMaxId + 1) / kChunk> chunks_ = {};
};

}  // namespace strata::node
