// The lifeline thread of a worker process: answers "what are you doing", takes "stop", ends the
// process when its parent has died, and takes the stacks of all threads when a report asks for them
// (trace/stack_board.hpp).
//
// It must get by while the main thread spins, or holds the lock of malloc, of the loader or of
// stdio. So it takes no lock, allocates nothing, and calls nothing that does: it reads and writes
// atomics and makes system calls, on a stack that it has from its beginning.
//
// Thread safety: start_lifeline_thread() is called once, by the main thread.
#pragma once

#include "ipc/lifeline.hpp"
#include "node/worker_shared.hpp"

namespace strata::node {

/// Starts it. `shared` lives until the process ends. Throws SystemError.
void start_lifeline_thread(WorkerShared& shared);

/// What the process does now, read from its own record without a lock.
[[nodiscard]] ipc::LifelineAnswer what_are_you_doing(const trace::ProcessRecord& record) noexcept;

}  // namespace strata::node
