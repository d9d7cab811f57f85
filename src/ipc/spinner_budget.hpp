// SpinnerBudget: how many threads of a tree of processes may spin at once.
//
// A thread that waits for microseconds rather than sleep must not take the CPU from the one that it
// waits for. So a tree has as many *places* as CPUs it may use (none where that is one CPU), in one
// page that every process of the tree maps. A thread takes a place before it spins and leaves it
// afterwards; a thread that gets none sleeps at once.
//
// A place holds the process id of its owner and not just a mark, so that the place of a process
// that died while it spun is known and given back: reclaim() by whoever waited for that process,
// sweep() for the processes below it, whose parents died too.
//
// Thread safety: all members may be called from any thread of any process of the tree; try_begin(),
// end(), reclaim() and sweep() neither allocate nor lock.
//
// Invariants
//   (1) At most limit() places are taken at any time.
//   (2) A place is given back by its owner, or by reclaim() or sweep() after its owner's death.
//   (3) Whatever is written into the page, no call crashes or blocks; the worst is that threads
//   spin
//       that should sleep, or the other way round.
//
// Who writes, who reads: a place is a word on a cache line of its own, written by compare-exchange
// with relaxed order by all; it protects no data.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "os/mapping.hpp"
#include "os/unique_fd.hpp"

namespace strata::ipc {

class SpinnerBudget {
 public:
  /// A place that was taken; what try_begin() returns and end() takes.
  struct Place {
    int index = -1;
    explicit operator bool() const noexcept { return index >= 0; }
  };

  /// The page for a new tree of which `limit` threads may spin at once. Throws SystemError.
  [[nodiscard]] static os::UniqueFd make(int limit);
  /// What make() should be given for this process: the CPUs that it may use, 0 if that is one.
  [[nodiscard]] static int default_limit() noexcept;

  /// Maps the page. Throws Error if `fd` is no such page.
  explicit SpinnerBudget(int fd);

  [[nodiscard]] int limit() const noexcept { return limit_; }
  /// Takes a place for the calling process if one is free; looks at a few places only.
  [[nodiscard]] Place try_begin() noexcept;
  void end(Place place) noexcept;

  /// Gives back the places of process `pid`, which has ended. Returns how many those were.
  int reclaim(pid_t pid) noexcept;
  /// Gives back the places of processes that no longer exist.
  int sweep() noexcept;
  /// How many places are taken now, for reports and tests.
  [[nodiscard]] int taken() const noexcept;

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint32_t> owner;  ///< Process id; 0 if free.
  };
  [[nodiscard]] Slot& slot(int index) const noexcept;

  os::Mapping mapping_;
  int limit_ = 0;
  std::uint32_t self_ = 0;  ///< This process's id.
  /// Where try_begin() looks first: where it found a place last. Relaxed; a hint.
  std::atomic<int> last_{0};
};

}  // namespace strata::ipc
