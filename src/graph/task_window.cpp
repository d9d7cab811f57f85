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

bool TaskWindow::refill() {
  // Pairs with give_back(), see there.
  local_ = static_cast<TaskNode*>(returned_.exchange(nullptr, std::memory_order_seq_cst));
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
    node->link = local_;
    local_ = node;
  }
  made_ += count;
  return true;
}

bool TaskWindow::take_all(std::span<TaskNode*> into) {
  for (std::size_t i = 0; i < into.size(); ++i) {
    into[i] = take();
    if (into[i] == nullptr) {
      while (i-- > 0) put_back(into[i]);
      return false;
    }
  }
  return true;
}

bool TaskWindow::has_room_for(std::size_t count) {
  std::vector<TaskNode*> slots(count);
  if (!take_all(slots)) return false;
  for (std::size_t i = count; i-- > 0;) put_back(slots[i]);
  return true;
}

TaskNode* TaskWindow::at(TaskId id) noexcept {
  const std::uint64_t slot = id.value & kSlotMask;
  if (slot >= made_) return nullptr;
  return &chunks_[slot / kChunk]->slots[slot % kChunk];
}

std::size_t TaskWindow::in_flight() const noexcept {
  std::size_t free_slots = 0;
  for (const Node* n = local_; n != nullptr; n = n->link)
    ++free_slots;
  // Only take() removes from the stack, and it is excluded by the graph lock.
  for (const Node* n = returned_.load(std::memory_order_acquire); n != nullptr; n = n->link) {
    ++free_slots;
  }
  return made_ - free_slots;
}

}  // namespace strata::graph
