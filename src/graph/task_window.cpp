#include "graph/task_window.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "base/planted_fault.hpp"

namespace strata::graph {

// Populated at once: a first touch of each page would cost more than making the whole chunk.
struct TaskWindow::Chunk {
  std::size_t count = 0;
  TaskNode* slots = nullptr;
};

TaskWindow::~TaskWindow() {
  for (Chunk* chunk : chunks_) {
    for (std::size_t i = 0; i < chunk->count; ++i)
      chunk->slots[i].~TaskNode();
    ::munmap(chunk->slots, chunk->count * sizeof(TaskNode));
    delete chunk;
  }
}

/// Moves what was given back to the free slots.
void TaskWindow::reclaim() noexcept {
  for (ReturnList& list : returned_) {
    if (list.head.load(std::memory_order_seq_cst) == nullptr) continue;
    // Pairs with give_back(), see there.
    Node* const first = list.head.exchange(nullptr, std::memory_order_seq_cst);
    Node* last = first;
    for (++free_; last->link != nullptr; last = last->link)
      ++free_;
    last->link = local_;  // The latest ones, still warm, come first.
    local_ = static_cast<TaskNode*>(first);
  }
}

/// Makes at least one slot free, if that can be.
bool TaskWindow::refill() {
  reclaim();
  if (local_ != nullptr) return true;
  if (made_ == capacity_) return false;
  const std::size_t count = std::min(kChunk, capacity_ - made_);
  void* memory = ::mmap(nullptr, count * sizeof(TaskNode), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* chunk = new Chunk{count, static_cast<TaskNode*>(memory)};
  chunks_.push_back(chunk);
  for (std::size_t i = count; i-- > 0;) {
    auto* node = ::new (&chunk->slots[i]) TaskNode;
    node->slot = static_cast<std::uint32_t>(made_ + i);
    put_back(node);
  }
  made_ += count;
  return true;
}

bool TaskWindow::has_room_for(std::size_t count) {
  if (free_ < count) reclaim();
  return free_ + (capacity_ - made_) >= count;
}

bool TaskWindow::take_all(std::span<TaskNode*> into) {
  if (!has_room_for(into.size())) return false;
  for (TaskNode*& slot : into)
    slot = take();
  return true;
}

TaskNode* TaskWindow::at(TaskId id) noexcept {
  const std::uint64_t slot = id.value & kSlotMask;
  if (slot >= made_) return nullptr;
  return &chunks_[slot / kChunk]->slots[slot % kChunk];
}

}  // namespace strata::graph
