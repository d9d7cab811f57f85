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

}  // namespace strata::node
