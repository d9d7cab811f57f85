// ReadyQueue: the ready tasks of one kind of lane, first in, first out, with optional priorities.
//
// Tasks of priority 0 go through a bounded ring with a sequence number in each cell (D. Vyukov,
// "Bounded MPMC queue", 1024cores.net); the ring is as large as the window, so a push never finds
// it full. The few tasks with another priority lie on a shelf under a lock: positive ones are taken
// before the ring, negative ones after it, in submission order among equals. A task of priority 0
// that comes back lies there too, between the positive ones and the ring.
//
// Thread safety: any thread may push and pop.
//
// Invariants
//   (1) A cell at position p is free for the push with ticket t == p (mod size) when its sequence
//   is
//       t, and holds the value for the pop with ticket t when it is t + 1.
//   (2) Ring order is the order of pushes: pop takes tickets one after the other.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <queue>
#include <vector>

#include "base/planted_fault.hpp"
#include "graph/node.hpp"
#include "os/adaptive_mutex.hpp"

namespace strata::graph {

class ReadyQueue {
 public:
  explicit ReadyQueue(std::size_t window)
      : mask_(std::bit_ceil(window < 2 ? 2 : window) - 1),
        cells_(std::make_unique<Cell[]>(mask_ + 1)) {
    for (std::size_t i = 0; i <= mask_; ++i)
      cells_[i].sequence.store(i, std::memory_order_relaxed);
  }

  void push(TaskNode* task) {
    if (task->priority != 0) [[unlikely]] {
      push_shelf(task);
      return;
    }
    std::size_t ticket = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[ticket & mask_];
      // Acquire: pairs with the pop that freed the cell, so its read of `task` is over.
      const std::size_t sequence = cell.sequence.load(std::memory_order_acquire);
      if (sequence == ticket) {
        // Sequentially consistent: the caller looks for sleepers next (see Scheduler::wake_one).
        if (tail_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_seq_cst,
                                        std::memory_order_relaxed)) {
          cell.task = task;
          cell.sequence.store(ticket + 1, std::memory_order_release);
          return;
        }
      } else {
        ticket = tail_.load(std::memory_order_relaxed);  // Another push was faster.
      }
    }
  }

  /// For a task that was popped before: it goes before those that were pushed, in the order of
  /// submission among such, if priorities allow.
  void push_front(TaskNode* task) { push_shelf(task); }

  /// The next task, or null if there is none.
  [[nodiscard]] TaskNode* pop() {
    if (shelved_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      if (TaskNode* task = pop_shelf(/*above_zero_only=*/true)) return task;
    }
    std::size_t ticket = head_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[ticket & mask_];
      // Acquire: pairs with the push's release, so the task's contents are visible.
      const std::size_t sequence = cell.sequence.load(std::memory_order_acquire);
      const auto ahead = static_cast<std::intptr_t>(sequence - (ticket + 1));
      if (ahead == 0) {
        if (head_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_relaxed)) {
          TaskNode* task = cell.task;
          prefetch_next(ticket);
          cell.sequence.store(ticket + mask_ + 1, std::memory_order_release);
          return task;
        }
      } else if (ahead < 0) {
        if (shelved_.load(std::memory_order_relaxed) != 0) return pop_shelf(false);
        return nullptr;
      } else {
        ticket = head_.load(std::memory_order_relaxed);
      }
    }
  }

  /// Whether a pop now would find something; may be out of date at once. Sequentially consistent
  /// towards push(): a thread that announced its sleep and then sees `empty` will be woken.
  [[nodiscard]] bool empty() const noexcept {
    return head_.load(std::memory_order_seq_cst) == tail_.load(std::memory_order_seq_cst) &&
           shelved_.load(std::memory_order_seq_cst) == 0;
  }

 private:
  struct Cell {
    std::atomic<std::size_t> sequence;
    TaskNode* task = nullptr;  ///< Guarded by `sequence`.
  };
  struct Shelved {
    std::int32_t priority;
    std::uint64_t id;
    TaskNode* task;
    bool operator<(const Shelved& other) const noexcept {
      if (priority != other.priority) {
        return base::planted("priority_inverted") ? priority > other.priority
                                                  : priority < other.priority;
      }
      return id > other.id;
    }
  };

  /// Has the next task on its way while this one runs: mostly another core wrote it.
  void prefetch_next(std::size_t ticket) const noexcept {
    const Cell& next = cells_[(ticket + 1) & mask_];
    if (next.sequence.load(std::memory_order_acquire) != ticket + 2) return;
    const char* const first = reinterpret_cast<const char*>(next.task);
    for (const std::size_t line : {0, 1, 5, 6, 7})
      __builtin_prefetch(first + 64 * line, 1);
  }

  void push_shelf(TaskNode* task) {
    const std::lock_guard lock(shelf_mutex_);
    shelf_.push({task->priority, task->id, task});
    shelved_.fetch_add(1, std::memory_order_seq_cst);
  }
  TaskNode* pop_shelf(bool above_zero_only) {
    const std::lock_guard lock(shelf_mutex_);
    if (shelf_.empty()) return nullptr;
    const Shelved top = shelf_.top();
    if (above_zero_only && top.priority < 0) return nullptr;
    shelf_.pop();
    shelved_.fetch_sub(1, std::memory_order_relaxed);
    return top.task;
  }

  const std::size_t mask_;
  std::unique_ptr<Cell[]> cells_;
  std::atomic<std::size_t> shelved_{0};  ///< Size of shelf_, for a look without the lock.
  os::AdaptiveMutex shelf_mutex_;
  std::priority_queue<Shelved> shelf_;
  alignas(64) std::atomic<std::size_t> tail_{0};  ///< Next ticket of a push.
  alignas(64) std::atomic<std::size_t> head_{0};  ///< Next ticket of a pop.
};

}  // namespace strata::graph
