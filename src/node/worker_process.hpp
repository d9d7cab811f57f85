// The main of a worker process: what runs in a process that a Worker made, from its first
// instruction to its end.
//
// A worker process has three threads of ours. The main thread runs the tasks. The service thread
// reads the control channel, loads libraries and maps slabs, so that a running task holds up no
// registration. The lifeline thread answers "what are you doing", stops the process, and ends it
// when its parent has died; it takes no lock and allocates nothing, so that nothing that a task
// does can hold it up.
//
// Before main, in a constructor of the highest priority that a program may use, the process notes
// that it is a worker, takes the token out of its environment, keeps the inherited descriptors from
// programs that it may start, and installs the crash handler: a crash of a static constructor has a
// stack already. In the user's own process that constructor is one look at the environment.
//
// Thread safety: is_worker_process() and refuse_in_worker_process() from any thread; the main is
// for the main thread, once.
#pragma once

namespace strata::node {

/// Whether this process was made by a Worker: it carried the token when it began.
[[nodiscard]] bool is_worker_process() noexcept;

/// Throws InvalidState in a worker process whose main has not begun: the executable makes a Worker
/// before its ProcessScope, or has none, and would start processes without end.
void refuse_in_worker_process();

/// Does the work of a worker process and ends the process; its exit status is 0 after a stop that
/// was asked for and 1 after a failure, which the parent has been told. For main() of strata-worker
/// and for ProcessScope, in a process where is_worker_process() is true.
[[noreturn]] void worker_process_main();

}  // namespace strata::node
