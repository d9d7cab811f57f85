// Schedule: which block starts next, and on which cores. Knows nothing of threads.
//
// Tasks wait in a queue per shape. Of the heads of the queues the oldest that has room starts. One
// that has none keeps the younger from taking what it waits for: a mixed task claims one cluster,
// a task that starts together all cores of the sort that it needs. So the oldest task gets its
// cores as soon as what runs there has ended, whatever comes after it.
//
// Lanes that have their cores but no thread yet are *due*, in order. They come before anything
// else.
//
// Thread safety: none; guarded by the pool's mutex.
//
// Invariants
//   (1) A place is given to one block at a time. Where the lanes of a cluster are one core, a
//       cluster is.
//   (2) The lanes of one block of a mixed task are of one cluster, and are given at once; so are
//       those of all blocks of a task that starts together.
//   (3) The blocks of a task are given in turn, each once.
//   (4) Of the tasks that have blocks to give, the oldest is given places before any younger takes
//       one that it could use and lacks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "chip/cores/core_job.hpp"
#include "strata/platform.hpp"

namespace strata::chip {

class Schedule {
 public:
  Schedule(const Platform& platform, CorePool::Impl* pool);
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  /// How many blocks of a task with these lanes the chip can run at once.
  [[nodiscard]] std::uint32_t room_for(const Job& job) const noexcept;

  /// A task waits from now on.
  void add(Job& job) noexcept;
  /// It has no more blocks to give.
  void drop(Job& job) noexcept;
  /// A place at which a lane begins now: one that is due, or the first of a block that starts.
  /// Null if there is none.
  [[nodiscard]] Place* take();
  /// One that is due: the first, or this one.
  [[nodiscard]] Place* take_due() noexcept;
  Place* take_due(Place& place) noexcept;
  /// The lane at the place has returned.
  void release(Place& place) noexcept;
  /// The place of a simple task goes over to another simple task, without release and take.
  static void pass_on(Place& place, Job& job) noexcept { settle(place, job, 0); }

  void set_held(bool held) noexcept {
    held_ = held;
    stuck_ = false;
  }
  /// Whether take() may find something. False only if it finds nothing.
  [[nodiscard]] bool may_take() const noexcept {
    return first_due_ != nullptr || (waiting_ != 0 && !stuck_ && !held_);
  }
  [[nodiscard]] Place* first_due() const noexcept { return first_due_; }
  /// How many lanes that were due have been taken so far.
  [[nodiscard]] std::uint64_t dues_taken() const noexcept { return dues_taken_; }
  /// Tasks that have blocks to give.
  [[nodiscard]] std::uint32_t waiting() const noexcept { return waiting_; }
  [[nodiscard]] std::deque<Place>& places() noexcept { return places_; }
  [[nodiscard]] const std::deque<Place>& places() const noexcept { return places_; }

  // --- For exploring: any choice that take() could make at some time ---

  /// Tasks of which a block could start now.
  [[nodiscard]] std::vector<Job*> startable();
  /// Starts a block of one of them, on the cluster drawn with `draw` among those that could take
  /// it.
  [[nodiscard]] Place* start(Job& job, std::uint64_t draw);

 private:
  using Words = std::vector<std::uint64_t>;
  struct Queue {
    Job* first = nullptr;
    Job* last = nullptr;
  };
  /// What the older tasks that have no room keep from the younger.
  struct Claims {
    LaneMask lanes = 0;
    int cluster = -1;
  };

  [[nodiscard]] Place* try_place(Job& job, const Claims& claims);
  [[nodiscard]] Place* place_block(Job& job, unsigned cluster);
  [[nodiscard]] Place* place_together(Job& job, const Claims& claims);
  [[nodiscard]] Place& place_lane(Job& job, unsigned cluster, unsigned lane, MixedBlock* mixed);
  /// Clusters that have room for one more block, of those in word `word`.
  [[nodiscard]] std::uint64_t fitting(const Job& job, std::size_t word,
                                      const Claims& claims) const noexcept;
  [[nodiscard]] std::uint32_t free_for(const Job& job, const Claims& claims) const noexcept;
  [[nodiscard]] unsigned free_lane(const Job& job, unsigned cluster) const noexcept;
  [[nodiscard]] LaneMask claimed_by(const Job& job) const noexcept;
  void claim(Job& job, Claims& claims);
  void block_given(Job& job) noexcept;
  static void settle(Place& place, Job& job, std::uint32_t block) noexcept;
  void make_due(Place& place) noexcept;
  [[nodiscard]] MixedBlock* new_mixed(LaneMask lanes);
  [[nodiscard]] bool is_free(unsigned lane, unsigned cluster) const noexcept {
    return (free_[lane][cluster / 64] >> (cluster % 64) & 1) != 0;
  }
  [[nodiscard]] Place& place_at(unsigned cluster, unsigned lane) noexcept {
    return places_[std::size_t{cluster} * kLanes + lane];
  }

  const bool single_core_;
  const unsigned clusters_;
  const unsigned aivs_;  ///< Of a cluster.
  const LaneMask lanes_there_;
  std::deque<Place> places_;  ///< By cluster and lane.
  /// Free places: bit c of [lane] is cluster c. Where the lanes are one core only [0] is used.
  std::array<Words, kLanes> free_;
  std::array<Queue, kShapes> queues_ = {};
  std::uint32_t waiting_ = 0;
  std::uint64_t next_order_ = 1;
  bool held_ = false;
  bool stuck_ = false;  ///< take() found nothing, and nothing was added or released since.
  Place* first_due_ = nullptr;
  Place* last_due_ = nullptr;
  std::uint64_t dues_taken_ = 0;
  std::deque<MixedBlock> mixed_;
  MixedBlock* free_mixed_ = nullptr;
};

}  // namespace strata::chip
