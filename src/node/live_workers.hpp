// The Workers of this process, for signals that are for all of them.
//
// Thread safety: any thread.
#pragma once

#include <memory>
#include <vector>

namespace strata::node {

class WorkerState;

void add_live_worker(const std::shared_ptr<WorkerState>& worker);
[[nodiscard]] std::vector<std::shared_ptr<WorkerState>> live_workers();

/// Notes a signal that cancels all Workers, those too that have yet to be initialised; 0 forgets
/// it.
void note_cancelling_signal(int signal) noexcept;
/// Throws Cancelled, for `caller`, once such a signal was noted.
void throw_if_signalled(const char* caller);

}  // namespace strata::node
