// ExternalLane and ProgressSource: how tasks run elsewhere, in another process or on a device, and
// how whoever waits for them looks for their ends.
//
// Thread safety: the engine calls the members of both from any thread, with no lock of its own
// held. A lane, in turn, must hold none of its own while it calls Engine::complete or give_back:
// both may call dispatch() and cancellation() of any lane, that lane included.
#pragma once

#include <cstdint>

#include "strata/task.hpp"
#include "strata/task_context.hpp"

namespace strata {

/// Names one dispatch to an external lane until its completion is reported.
struct DispatchId {
  std::uint64_t value = 0;
};

/// A lane whose tasks run elsewhere: in another process, on a device.
///
/// The engine calls dispatch() for one task at a time and lane, in the lane's order, from whichever
/// thread made the task ready; it must not block. If it throws, the task fails with that, unless
/// its completion was reported already. The completion is reported later by Engine::complete(),
/// once for each dispatch, from any thread, also from within dispatch(). A task that the lane has
/// not started and won't start can be given back instead: Engine::give_back().
class ExternalLane {
 public:
  virtual ~ExternalLane() = default;
  /// `context` (arguments, place, token) is valid until the completion is reported or the dispatch
  /// given back. `body` is the task's body, for lanes that run bodies in this process, or that know
  /// its type (Body::target).
  virtual void dispatch(DispatchId id, TaskContext& context, Body& body) = 0;
  /// Some run was cancelled or is past its deadline, or a member of a group failed: the token of
  /// some dispatch that is at this lane may have changed (TaskContext::cancelled). May come at any
  /// time, also during a dispatch() and while a completion is being reported.
  virtual void cancellation() {}
};

/// Where completions come in. Whoever waits in the engine (for a run, for room, for its turn on a
/// tensor) becomes the one thread that polls, if no other is, and so saves a hand-over between
/// threads. It leaves before it runs a task, sleeps or returns.
class ProgressSource {
 public:
  virtual ~ProgressSource() = default;
  /// Tries to become the one thread that polls; false if another does.
  virtual bool try_acquire() = 0;
  /// One look, by the thread that acquired; reports what has ended with Engine::complete. True if
  /// anything had.
  virtual bool poll() = 0;
  /// The thread that polled leaves: from here on the source's owner looks itself, and looks once
  /// more now.
  virtual void release() = 0;
  /// Whether the thread that acquired may spin for some microseconds when a look finds nothing (a
  /// place among those who may); if so, end_spin() follows before release().
  virtual bool begin_spin() = 0;
  virtual void end_spin() = 0;
};

}  // namespace strata
