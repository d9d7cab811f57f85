// NextLevelRunner: what makes a worker process a Worker itself. A task is an orchestration; it is
// run through a Worker with worker processes of its own.
//
// The tensors of the task lie in slabs of the Worker above. They become buffers of the Worker here
// for the time of the task; tensors that share bytes share a buffer, so that the dependencies
// between them are found.
//
// Thread safety: run() and close() are for the main thread; listener()'s functions for the service
// thread.
#pragma once

#include <memory>

#include "node/service_thread.hpp"
#include "node/task_loop.hpp"

namespace strata::node {

class NextLevelRunner final : public TaskRunner {
 public:
  /// Makes the Worker; starts no process. Throws InvalidArgument for options that make no sense.
  explicit NextLevelRunner(const Configuration& configuration);
  ~NextLevelRunner() override;

  /// What the service thread must tell.
  [[nodiscard]] Listener listener();
  /// Starts the worker processes. Throws StartFailed, or Cancelled if the process shall stop.
  void init();
  void run(const TaskCall& call, WorkerTask::Services& services) override;
  /// Ends the worker processes. Throws CloseFailed.
  void close();

 private:
  const std::unique_ptr<Worker> worker_;
};

}  // namespace strata::node
