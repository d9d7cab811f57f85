#include "graph/buffer_table.hpp"

#include "strata/error.hpp"

namespace strata::graph {

BufferTable::~BufferTable() {
  for (auto& chunk : chunks_)
    delete chunk.load(std::memory_order_relaxed);
}

BufferRecord& BufferTable::add() {
  std::uint64_t index = 0;
  if (free_.empty()) {
    index = made_;
    if (index > kIndexMask) {
      throw InvalidState(
          "too many live buffers: 16777216 are known to the engine already; remove "
          "some with Engine::remove_buffer");
    }
    if (index % kChunk == 0) {
      chunks_[index / kChunk].store(new Chunk, std::memory_order_relaxed);
    }
    ++made_;
  } else {
    index = free_.back();
    free_.pop_back();
  }
  ++live_;
  BufferRecord& record = at(BufferId{index});
  record.position = index;
  record.id = BufferId{(++generation_ << kIndexBits) | index};
  return record;
}

void BufferTable::retire(BufferRecord& record) {
  free_.push_back(record.position);
  record.id = BufferId{};
  record.data = nullptr;
  record.bytes = 0;
  record.block.reset();
  record.holders.store(0, std::memory_order_relaxed);
  record.handles.store(0, std::memory_order_relaxed);
  record.removal = nullptr;
  record.scope = nullptr;
  record.account.reset();
  record.creator = {};
  record.creator_failure.reset();
  record.index.reset();
  record.invalid.clear();
  --live_;
}

}  // namespace strata::graph
