// Gathering: keeps the tasks of a run from starting while its orchestration builds the graph, for
// mode host_graph.
//
// What was built so far starts when the orchestration returns, reads a value or waits, and when it
// finds no room in the window or on the heap. After that it builds on, and tasks gather again; in
// the last case not at once, since a full window would empty by one task at a time.
//
// Thread safety: the thread of the orchestration.
#pragma once

#include <cstddef>

#include "chip/cores/core_pool.hpp"

namespace strata::chip {

class Gathering {
 public:
  explicit Gathering(CorePool& pool) noexcept : pool_(pool) {}
  ~Gathering() { end(); }
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  /// From here on tasks gather. `window`: of the engine.
  void begin(std::size_t window) {
    wanted_ = true;
    pause_ = window / 2;
    skip_ = 0;
  }
  /// What has gathered starts, and so does what comes.
  void end() {
    wanted_ = false;
    let_go();
  }
  /// A task is about to be submitted.
  void submitting() {
    if (!wanted_ || held_) return;
    if (skip_ != 0) {
      --skip_;
      return;
    }
    pool_.hold();
    held_ = true;
  }
  /// The orchestration waits, for tasks or for room.
  void let_go() {
    if (!held_) return;
    held_ = false;
    pool_.release();
  }
  void let_go_for_room() {
    if (held_) skip_ = pause_;
    let_go();
  }

 private:
  CorePool& pool_;
  bool wanted_ = false;
  bool held_ = false;
  std::size_t pause_ = 0;
  std::size_t skip_ = 0;  ///< Tasks that are submitted before the next hold.
};

}  // namespace strata::chip
