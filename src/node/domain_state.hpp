// DomainState: what is behind a strata::Domain. DomainTable: all domains of a Worker, for whoever
// looks at tasks and whoever hears that a process has died.
//
// The memory of a domain is one range of the shared slabs, so it has one state of zeroes and every
// process has it in one piece:
//
//   [ context of rank 0 | window of rank 0 | context of rank 1 | window of rank 1 | ... ]
//
// Each rank's part is a buffer of the engine, so tasks are ordered by what they use of it; the
// range is released when the last of these buffers is. A context has addresses of its rank's
// process.
//
// Thread safety: DomainState: constant once made, save `broken`. DomainTable: all members from any
// thread.
//
// Invariants
//   (1) A domain is broken once the process of one of its chips is gone; that is known, and the
//       ranks that wait for that rank are told, before the engine hears that the chip's lane is
//       down. So no task on the next process gets at the domain.
//   (2) The range is there as long as the domain is in the table.
//   (3) A collective that is about to start finds no channel on which a rank has given up earlier:
//       such are mended before the first of its members is sent. The engine starts a group only
//       when all its lanes have nothing unfinished before it, and starts no other on them until it
//       has ended. So until a member is sent, no rank that takes part is in any call; and two
//       collectives of all ranks, or two messages between the same ranks, are never under way at
//       the same time, so that the last one that was begun is all that need be known.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "node/chip_memory.hpp"
#include "node/slab_store.hpp"
#include "strata/domain.hpp"
#include "strata/task.hpp"
#include "strata/task_context.hpp"
#include "strata/worker_error.hpp"

namespace strata::node {

class WorkerState;
struct CommunicatorState;

struct DomainState {
  std::weak_ptr<WorkerState> owner;
  std::shared_ptr<SlabStore> memory;  ///< The range stays mapped as long as the domain is there.
  std::shared_ptr<CommunicatorState> communicator;
  std::vector<LaneId> chips;
  std::vector<std::string> paths;  ///< "node/chip[0]", by rank.
  DomainContext view = {};         ///< Rank 0's, at this process's addresses.
  std::size_t part_bytes = 0;      ///< Of each rank.
  std::size_t window_offset = 0;   ///< In each part.
  SlabStore::Range range;
  std::vector<ChipMemory::Place> places;  ///< What is counted as used, by rank.
  std::vector<BufferId> buffers;          ///< By rank.
  std::atomic<std::size_t> buffers_left{0};

  // --- Guarded by DomainTable::mutex_ ---
  TaskId last_of_all{};  ///< The last collective of all ranks of which a member was sent.
  /// The last message between two ranks, the smaller first, of which a member was sent.
  std::map<std::pair<std::uint32_t, std::uint32_t>, TaskId> last_between;

  /// Written once, before `broken`: release, acquire.
  std::string cause;
  std::atomic<bool> broken{false};

  [[nodiscard]] std::string_view name() const noexcept { return view.name; }
  [[nodiscard]] std::byte* part(std::uint32_t rank) const noexcept {
    return range.data + rank * part_bytes;
  }
  /// The rank's DomainContext, which its part begins with.
  [[nodiscard]] Tensor context(std::uint32_t rank) const {
    const std::int64_t bytes = sizeof(DomainContext);
    return {buffers[rank], 0, DType::uint8, std::span(&bytes, 1)};
  }
};

/// Throws CommError (rank_left), beginning with `what`, if the domain is broken.
void require_whole(const DomainState& domain, const std::string& what);

/// For the parts of Strata.
struct DomainAccess {
  [[nodiscard]] static const std::shared_ptr<DomainState>& state(const Domain& domain) noexcept;
};

class DomainTable {
 public:
  void add(const std::shared_ptr<DomainState>& domain);
  /// A rank's buffer is used no more. True if it was the last of its domain, which is then no more
  /// in the table.
  bool remove(DomainState& domain, std::uint32_t rank);

  /// Throws CommError (rank_left) or ChipError (foreign_memory) if the task uses memory of a broken
  /// domain, or of a rank whose chip it is not for. Costs a load where there is none.
  void check(const TaskSpec& task) const {
    if (any_.load(std::memory_order_relaxed)) check_arguments(task);
  }
  /// Where a buffer lies for a task on `lane`; null if it is of no domain. Throws as check().
  [[nodiscard]] std::byte* locate(BufferId buffer, LaneId lane, const std::string& what) const;

  /// A member of a collective that is a task is about to be sent: mends its domain if need be.
  void begin_collective(const TaskContext& member);

  /// Which ranks of which domains wait for which, for reports: a line each.
  [[nodiscard]] std::vector<std::string> waits() const;

  /// The chip's process is gone: breaks all domains that it is in.
  void process_gone(LaneId chip, const WorkerFault& cause);

 private:
  struct Place {
    DomainState* domain;
    std::uint32_t rank;
  };
  void check_arguments(const TaskSpec& task) const;

  /// There are domains. Relaxed: who uses one got it from who made it.
  std::atomic<bool> any_{false};
  mutable std::mutex mutex_;
  // --- Guarded by mutex_ ---
  std::vector<std::shared_ptr<DomainState>> domains_;
  std::unordered_map<BufferId, Place> places_;
};

}  // namespace strata::node
