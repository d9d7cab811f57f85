// Reaper: takes over processes that the kernel did not give back in time, and waits for them as
// long as it takes.
//
// Thread safety: any thread. One thread of the process serves all; it is there while there is
// something to wait for.
#pragma once

#include <cstddef>

#include "node/child.hpp"

namespace strata::node {

/// Waits for the process and then lets go of what belongs to it: its memory stays mapped until
/// then.
void hand_to_reaper(ChildResources resources);
/// Processes that the reaper still waits for.
[[nodiscard]] std::size_t reaper_backlog();

}  // namespace strata::node
