// Explorer: one lane at a time, in an order drawn from a seed, to find tasks that lack an edge.
//
// The thread in run() conducts: it draws one of the things that could be done now - a block that
// could start, a lane that is due, a lane whose wait may be over - has a carrier do it, and waits
// until that lane has returned or waits. So a seed and a program give one order. What other chips
// signal comes when it comes; a lane that waited for that while nobody conducts goes on by itself.
// Seed 0 draws nothing: the oldest task goes first, on the first core that is free.
//
// Thread safety: guarded by the pool's mutex, save where said.
//
// Invariants
//   (1) At most one lane runs.
//   (2) When run() returns, no lane that has begun can go on, save by what comes from outside.
#pragma once

#include <cstdint>
#include <vector>

#include "chip/cores/core_job.hpp"
#include "os/parker.hpp"

namespace strata::chip {

class Explorer {
 public:
  Explorer(CorePool::Impl& pool, std::uint64_t seed) noexcept
      : pool_(pool), state_(seed), in_order_(seed == 0) {}
  Explorer(const Explorer&) = delete;
  Explorer& operator=(const Explorer&) = delete;

  /// Without the mutex, as are sleep() and await_turn(). False if there was nothing to do.
  bool run();
  /// The lane of the calling thread waits; it gives its turn away.
  void stand(Runner& runner);
  /// Returns when it is its turn again.
  void await_turn(Runner& runner);
  /// The lane that had its turn has returned. With the mutex.
  void lane_returned(Runner& runner) noexcept;

 private:
  struct Choices {
    std::vector<Job*> jobs;
    std::vector<Place*> due;
    std::vector<Runner*> standing;
  };
  [[nodiscard]] Choices choices();
  [[nodiscard]] std::size_t choose(const Choices& all);
  std::uint64_t draw() noexcept;
  void turn_over(Runner& runner) noexcept;

  CorePool::Impl& pool_;
  std::uint64_t state_;
  const bool in_order_;
  bool conducting_ = false;
  Runner* active_ = nullptr;
  os::Parker parker_;  ///< Of the thread that conducts.
};

}  // namespace strata::chip
