#include "node/callable_table.hpp"

#include <memory>
#include <utility>

#include "strata/error.hpp"

namespace strata::node {

CallableTable::~CallableTable() {
  for (auto& slot : chunks_) {
    const std::unique_ptr<Chunk> chunk(slot.load(std::memory_order_relaxed));
    if (!chunk) continue;
    for (auto& entry : *chunk)
      delete entry.load(std::memory_order_relaxed);
  }
}

void CallableTable::add(std::uint32_t id, LoadedCallable callable) {
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
  entry.store(new LoadedCallable(std::move(callable)), std::memory_order_release);
}

}  // namespace strata::node
