// TaskWindow: the bounded store of tasks in flight.
//
// Slots are taken by submitters under the graph lock and given back by whichever thread finishes
// the task, in any order. Memory grows in chunks up to the window's size and is reused last in,
// first out, so that a program whose tasks end as fast as they come stays in a few warm slots.
//
// Thread safety: take() and at() under the graph lock; give_back() from any thread.
//
// Invariants
//   (1) A slot is in exactly one place: in flight, in `local_`, or in `returned_`.
//   (2) At most capacity() slots are in flight.
// Returned slots form Treiber stacks whose only consumer (under the graph lock) takes all of one at
// once with one exchange, so they have no ABA problem.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "graph/node.hpp"

namespace strata::graph {

class TaskWindow {
 public:
  static constexpr std::size_t kMaxCapacity = kSlotMask;  // The last slot number marks joins.

  explicit TaskWindow(std::size_t capacity) : capacity_(capacity) {}
  ~TaskWindow();
  TaskWindow(const TaskWindow&) = delete;
  TaskWindow& operator=(const TaskWindow&) = delete;

  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// A free slot, or null if all are in flight.
  [[nodiscard]] TaskNode* take() {
    if (local_ == nullptr) [[unlikely]] {
      if (!refill()) return nullptr;
    }
    TaskNode* node = local_;
    local_ = static_cast<TaskNode*>(node->link);
    --free_;
    prefetch(local_);
    return node;
  }
  /// `by` tells apart the threads that give back, so that they do not meet; any number will do.
  void give_back(TaskNode* node, std::uint32_t by = 0) noexcept {
    std::atomic<Node*>& returned = returned_[by % kReturnLists].head;
    Node* head = returned.load(std::memory_order_relaxed);
    do {
      node->link = head;
      // Release, so that the submitter that takes the slot sees all that was done to it; and
      // sequentially consistent towards a submitter that announces that it blocks and tries again.
    } while (!returned.compare_exchange_weak(head, node, std::memory_order_seq_cst,
                                             std::memory_order_relaxed));
  }
  /// The slot of a task id, whatever is in it now; null if there never was one.
  [[nodiscard]] TaskNode* at(TaskId id) noexcept;
  /// Calls visit(slot) for every slot that was ever used.
  template <class Visit>
  void for_each_slot(Visit&& visit) {
    for (std::size_t i = 0; i < made_; ++i)
      visit(*at(TaskId{i}));
  }
  /// Takes as many slots as `into` has room for, or none.
  [[nodiscard]] bool take_all(std::span<TaskNode*> into);
  /// Whether take_all() of that many would succeed.
  [[nodiscard]] bool has_room_for(std::size_t count);
  /// Whether take() would find a slot.
  [[nodiscard]] bool has_room() { return has_room_for(1); }
  /// Slots in flight. Graph lock; linear in the slots given back since the last call.
  [[nodiscard]] std::size_t in_flight() noexcept {
    reclaim();
    return made_ - free_;
  }

 private:
  void put_back(TaskNode* node) noexcept {
    node->link = local_;
    local_ = node;
    ++free_;
  }
  /// Has the lines that a submission writes on their way before the slot is taken.
  static void prefetch(const TaskNode* node) noexcept {
    if (node == nullptr) return;
    const char* const first = reinterpret_cast<const char*>(node);
    for (const std::size_t line : {0, 1, 5, 6, 7, 8, 9})
      __builtin_prefetch(first + 64 * line, 1);
  }

  static constexpr std::size_t kChunk = 128;
  struct Chunk;
  bool refill();
  void reclaim() noexcept;

  const std::size_t capacity_;
  std::size_t made_ = 0;       ///< Slots that have memory.
  TaskNode* local_ = nullptr;  ///< Free slots, for take() alone ...
  std::size_t free_ = 0;       ///< ... and how many they are.
  std::vector<Chunk*> chunks_;
  static constexpr std::uint32_t kReturnLists = 8;
  /// Pushed to by finishers (release), emptied by reclaim() (acquire).
  struct alignas(64) ReturnList {
    std::atomic<Node*> head{nullptr};
  };
  std::array<ReturnList, kReturnLists> returned_;
};

}  // namespace strata::graph
