// What is told when a task calls exit() in a worker process: who did, and what it ran.
//
// Without it the process just ends, in good order as it seems. exit() runs the handlers that were
// registered, on the thread that called it; ours tells the parent and ends the process. It does not
// see _exit(), which runs none: there the parent knows no more than the status and the task.
//
// Thread safety: for one thread at a time.
#pragma once

#include "node/worker_shared.hpp"
#include "trace/crash_handler.hpp"

namespace strata::node {

/// From now on exit() is an error of this process, code chip_exited; `work` says what the calling
/// thread is doing. `shared` lives as long as the process. Once per process: later calls do
/// nothing.
void report_exit(WorkerShared& shared, trace::CrashNote work);

}  // namespace strata::node
