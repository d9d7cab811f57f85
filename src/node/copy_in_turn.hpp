// Copies between the host and memory of chips: each in its turn among the tasks that use the bytes.
//
// Thread safety: any thread.
#pragma once

#include <memory>
#include <string>

#include "node/worker_state.hpp"
#include "strata/error.hpp"

namespace strata::node {

/// Does a copy once `wait` has waited for what comes before. `require` throws if the memory is
/// gone.
template <class Require, class Wait, class Copy>
void copy_in_turn(const std::weak_ptr<WorkerState>& of, const char* what, const Require& require,
                  const Wait& wait, const Copy& copy) {
  const std::shared_ptr<WorkerState> owner = of.lock();
  if (owner == nullptr) throw InvalidState(std::string(what) + ": its Worker is gone");
  require(*owner);
  owner->engine().run([&](Orchestration& run) { wait(run); }, {.name = what});
  // It may have been lost meanwhile: by the end of a task that was waited for.
  require(*owner);
  copy();
}

}  // namespace strata::node
