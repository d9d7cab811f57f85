// ChipMemory: the memory of a Worker's chips, as far as it is allocated.
//
// On the platforms there are, it lies in the shared slabs; nobody but this and the chip itself
// knows where.
//
// Thread safety: all members from any thread; none calls anything with the lock held.
//
// Invariants
//   (1) What is allocated on a chip and not lost is at most the platform's memory.
//   (2) Memory is lost once the process that it was allocated for is gone; that is known before the
//       engine hears that the chip's lane is down, so that no task on the next process gets it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "node/slab_store.hpp"
#include "strata/chip_memory.hpp"
#include "strata/task.hpp"
#include "strata/worker_error.hpp"

namespace strata::node {

class WorkerState;

/// "task 'scale', tensor argument 2", for messages.
[[nodiscard]] std::string text_of_argument(const TaskSpec& task, std::size_t argument);

class ChipMemory {
 public:
  struct Chip {
    LaneId lane;
    std::string path;      ///< "node/chip[0]".
    std::string platform;  ///< "a2a3sim".
    std::size_t total = 0;
  };
  /// What one buffer is.
  struct Place {
    std::size_t chip = 0;           ///< Index of the chip ...
    std::uint64_t incarnation = 0;  ///< ... and which of its processes.
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  /// Before the first use.
  void set_chips(std::vector<Chip> chips);

  /// Counts memory as used. Throws ChipError (out_of_chip_memory), InvalidArgument for a lane that
  /// is no chip.
  [[nodiscard]] Place reserve(LaneId chip, std::size_t bytes);
  /// The opposite; nothing happens for memory that is lost.
  void give_back(const Place& place);
  void add(BufferId buffer, const Place& place);
  void remove(BufferId buffer);

  [[nodiscard]] ChipMemoryUsage usage(LaneId chip) const;
  [[nodiscard]] bool lost(const Place& place) const;
  /// Throws ChipError (lost_memory), beginning with `what`.
  void require(const Place& place, const std::string& what) const;

  /// Throws ChipError (foreign_memory, lost_memory) if the task uses memory of a chip that it is
  /// not for, or that is lost. Costs a load where there is none.
  void check(const TaskSpec& task) const {
    if (any_.load(std::memory_order_relaxed)) check_arguments(task);
  }
  /// Where a buffer lies for a task on `lane`; null if it is no memory of a chip. Throws as
  /// check().
  [[nodiscard]] std::byte* locate(BufferId buffer, LaneId lane, const std::string& what) const;

  /// The chip's process is gone, or the Worker is closed.
  void process_gone(LaneId chip, const WorkerFault& cause);

 private:
  struct State {
    Chip chip;
    std::uint64_t incarnation = 1;
    std::size_t used = 0;
    std::size_t peak = 0;
    std::size_t allocations = 0;
    std::string cause;  ///< Why the last process is gone.
  };
  void check_arguments(const TaskSpec& task) const;
  [[nodiscard]] std::size_t index_of(LaneId chip) const;
  /// Lock held.
  void require_alive(const Place& place, const std::string& what) const;

  /// There are allocations. Relaxed: who uses a buffer got it from who made it.
  std::atomic<bool> any_{false};
  mutable std::mutex mutex_;
  // --- Guarded by mutex_ ---
  std::vector<State> chips_;
  std::unordered_map<BufferId, Place> places_;
};

/// A buffer on a chip; freed when the last task that uses it has ended.
struct ChipBufferState {
  std::weak_ptr<WorkerState> owner;
  std::shared_ptr<SlabStore> memory;  ///< The range stays mapped as long as the buffer is there.
  SlabStore::Range range;
  ChipMemory::Place place;
  LaneId chip;
  BufferId id;
};

}  // namespace strata::node
