// CallableTable: the callables that this worker process has loaded, by their ids.
//
// Thread safety: add() is for one thread at a time; find() for any, without a lock.
//
// Invariant: an entry, once there, never changes, so what find() returned stays valid.
//
// Who writes, who reads: chunks and entries are published with release by add(), and read with
// acquire by find().
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "node/this_program.hpp"
#include "strata/callable.hpp"

namespace strata::node {

/// A callable that can be called. One of the two pointers is null.
struct LoadedCallable {
  std::string name;  ///< Of the function, for records and messages.
  ProgramFunction code;
};

class CallableTable {
 public:
  static constexpr std::uint32_t kMaxId = (1U << 20U) - 1;

  CallableTable() = default;
  CallableTable(const CallableTable&) = delete;
  CallableTable& operator=(const CallableTable&) = delete;
  ~CallableTable();

  /// Makes `callable` known as `id`. Throws InvalidArgument if the id is above kMaxId. An id that
  /// is known already stays as it is.
  void add(std::uint32_t id, LoadedCallable callable);

  /// Null if there is none with that id.
  [[nodiscard]] const LoadedCallable* find(std::uint32_t id) const noexcept {
    if (id > kMaxId) return nullptr;
    const Chunk* const chunk = chunks_[id / kChunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : (*chunk)[id % kChunk].load(std::memory_order_acquire);
  }

 private:
  static constexpr std::size_t kChunk = 1024;
  using Chunk = std::array<std::atomic<const LoadedCallable*>, kChunk>;
  std::array<std::atomic<Chunk*>, (kMaxId + 1) / kChunk> chunks_ = {};
};

}  // namespace strata::node
