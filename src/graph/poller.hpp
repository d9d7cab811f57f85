// Poller: a waiting thread's part in polling the engine's source of completions.
//
// Thread safety: one thread, the one that waits. Whether it is the one that polls is settled by
// ProgressSource::try_acquire().
//
// Invariants
//   (1) The thread runs no task, does not sleep and does not return to its caller while it is the
//       one that polls: leave() comes first.
//   (2) A place to spin is held only by the thread that polls.
#pragma once

#include <cstdint>

#include "os/cpu.hpp"
#include "strata/external_lane.hpp"

namespace strata::graph {

class Poller {
 public:
  explicit Poller(ProgressSource* source) noexcept : source_(source) {}
  ~Poller() { leave(); }
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  /// Whether there is anything to poll at all.
  [[nodiscard]] bool has_source() const noexcept { return source_ != nullptr; }

  /// One look, if this thread is or becomes the one that polls. True if something had ended.
  bool look() {
    if (source_ == nullptr) return false;
    if (!acquired_) {
      acquired_ = source_->try_acquire();
      if (!acquired_) return false;
    }
    if (!source_->poll()) return false;
    last_success_ = os::cycle_count();
    return true;
  }

  /// After a look that found nothing: whether another is worth it. Otherwise the thread leaves.
  [[nodiscard]] bool looks_again() {
    if (!acquired_) return false;
    if (!spins_) {
      spins_ = source_->begin_spin();
      last_success_ = os::cycle_count();
    }
    if (spins_ && os::cycle_count() - last_success_ < kSpinCycles) return true;
    leave();
    return false;
  }

  void leave() {
    if (!acquired_) return;
    if (spins_) source_->end_spin();
    spins_ = false;
    acquired_ = false;
    source_->release();
  }

 private:
  /// How long it looks in vain before it sleeps, in cycle counts: about 20 microseconds. The other
  /// side's sleep and wake cost several.
  static constexpr std::uint64_t kSpinCycles = 50'000;

  ProgressSource* const source_;
  bool acquired_ = false;
  bool spins_ = false;
  std::uint64_t last_success_ = 0;  ///< Or when it began to spin.
};

}  // namespace strata::graph
