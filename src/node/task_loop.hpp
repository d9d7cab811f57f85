// The task loop of a worker process: takes frames from the mailbox, runs what they name, and
// completes them, on the main thread, until the process shall stop.
//
// A task that goes well and returns no long value costs no allocation, lock or system call here.
// What a task threw goes to the parent before the completion that says so.
//
// Thread safety: one thread, the main one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "node/worker_shared.hpp"
#include "strata/task_context.hpp"
#include "strata/worker_task.hpp"

namespace strata::node {

/// What a task's cancelled() looks at. `seen` is written by the task's threads, relaxed.
struct CancelToken {
  const WorkerShared* shared = nullptr;
  std::uint64_t number = 0;  ///< Of the frame.
  mutable std::atomic<bool> seen{false};

  [[nodiscard]] bool cancelled() const noexcept {
    if (!shared->mailbox->cancelled(number) && shared->stopping() != Stop::now) return false;
    seen.store(true, std::memory_order_relaxed);
    return true;
  }
  /// For TaskContext.
  static bool look(const void* token) noexcept {
    return static_cast<const CancelToken*>(token)->cancelled();
  }
};

/// One call of a callable.
struct TaskCall {
  const LoadedCallable& callable;
  const detail::ArgumentBlock& arguments;
  TaskContext::Place place;
  const CancelToken& token;
  std::chrono::nanoseconds time_limit{0};  ///< 0: none.
};

/// Runs calls: on this thread, on a chip, or through the Worker of a next level. Throws what the
/// task threw.
class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  virtual void run(const TaskCall& call, WorkerTask::Services& services) = 0;
  /// Between tasks, after something was forgotten.
  virtual void idle() {}
};

/// Calls a function on this thread. Throws InvalidArgument for what is none.
void call_function(const TaskCall& call, WorkerTask::Services& services);

class TaskLoop {
 public:
  /// Both live as long as this.
  TaskLoop(WorkerShared& shared, TaskRunner& runner);

  /// Returns once the process shall stop. Throws Error if the mailbox is broken, and ChipStuck,
  /// once the task has been told of, if the process can run no more tasks.
  void run();

 private:
  enum class Arguments : std::uint8_t { ready, stale, malformed, gave_up };
  [[nodiscard]] Arguments resolve(const ipc::SubmissionView& frame);
  void run_frame(const ipc::MailboxWorker::Taken& taken);
  void call(const ipc::SubmissionView& frame, const LoadedCallable& callable,
            ipc::CompletionFrame& completion);
  void succeed(std::uint64_t dispatch, const WorkerTask::Services& services,
               ipc::CompletionFrame& completion);
  /// Tells the whole story first.
  void fail(const ipc::SubmissionView& frame, const std::exception_ptr& why,
            ipc::CompletionFrame& completion);
  [[nodiscard]] WorkerFault fault(const ipc::SubmissionView& frame) const;

  WorkerShared& shared_;
  TaskRunner& runner_;
  std::function<bool()> give_up_;  ///< Whether the task in hand is wanted no more.
  CancelToken token_;
  WorkerTask::Services services_;
  /// The task in hand has made this process useless: what the parent is told when it ends.
  std::exception_ptr stuck_;
  std::vector<detail::TensorRecord> tensors_;  ///< Of the task in hand; grows, is used again.
};

/// Calls functions on the calling thread.
class PlainRunner final : public TaskRunner {
 public:
  void run(const TaskCall& call, WorkerTask::Services& services) override {
    call_function(call, services);
  }
};

}  // namespace strata::node
