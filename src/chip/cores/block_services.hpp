// What the lanes of one block of a mixed task do for each other: flags and pipes; and how a wait
// among them that can't end is found.
//
// Thread safety: for the thread that runs the lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "chip/cores/core_job.hpp"

namespace strata::chip {

// Services; see strata/kernel.hpp.
void set_flag(const detail::KernelBlock& kernel, ClusterLane to, unsigned flag);
void wait_flag(const detail::KernelBlock& kernel, unsigned flag);
void push(const detail::KernelBlock& kernel, unsigned pipe, const void* data, std::size_t bytes);
void pop(const detail::KernelBlock& kernel, unsigned pipe, void* data, std::size_t bytes);

/// While it lives the lane may be in the block's list of those who wait. Whoever is told to wake it
/// does so under the block's mutex: so it leaves the list before it goes, however it goes.
class Listed {
 public:
  explicit Listed(const Place& place) : block_(*place.mixed), lane_(index_of(place.lane)) {}
  ~Listed() {
    const std::lock_guard lock(block_.mutex);
    waiter() = {};
  }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

  /// With the block's mutex.
  [[nodiscard]] MixedBlock::Waiter& waiter() const noexcept { return block_.waiters[lane_]; }

 private:
  MixedBlock& block_;
  unsigned lane_;
};

/// A lane that waits at the barrier of its task is in its block's list as long as this lives.
class ListedAtBarrier {
 public:
  /// `round`: which meeting it is. Throws KernelMisuse if another lane of the block waits for what
  /// only those at the barrier could do.
  ListedAtBarrier(const Place& place, Runner& runner, std::uint32_t round);

 private:
  std::optional<Listed> listed_;  ///< Not in a task of one lane.
};

/// Those of its block who wait look whether they wait in vain.
void leave_block(const Place& place);

}  // namespace strata::chip
