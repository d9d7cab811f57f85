// What a user holds of a Worker (a Buffer, a ChipBuffer, a Domain), and how it is let go.
//
// Thread safety: that of the object that is let go; one thread at a time.
#pragma once

#include <memory>
#include <utility>

#include "node/worker_state.hpp"

namespace strata::node {

/// Empties `held`, and calls give_back(owner, state) if there is still somebody to give it back to.
template <class State, class GiveBack>
void let_go(std::shared_ptr<State>& held, const GiveBack& give_back) noexcept {
  const std::shared_ptr<State> state = std::exchange(held, nullptr);
  if (state == nullptr) return;
  const std::shared_ptr<WorkerState> owner = state->owner.lock();
  if (owner == nullptr) return;  // Its memory went with it.
  if (owner->is_copy()) return;  // Its locks may be held by threads that are not there.
  give_back(*owner, state);
}

}  // namespace strata::node
