// ChipTaskRunner: what a chip worker does with its tasks: chip programs run on the cores of its
// chip, functions on the main thread.
//
// The chip's runtime is made for the first chip program: a chip worker that has run none has cost
// nothing for it.
//
// Thread safety: one thread, the main one.
#pragma once

#include <memory>
#include <vector>

#include "chip/chip_runtime.hpp"
#include "node/service_thread.hpp"
#include "node/task_loop.hpp"
#include "strata/platform.hpp"

namespace strata::node {

class ChipTaskRunner final : public TaskRunner {
 public:
  /// Both live as long as this. Throws ChipError if the platform is not there.
  ChipTaskRunner(const Configuration& configuration, WorkerShared& shared);

  void run(const TaskCall& call, WorkerTask::Services& services) override;
  /// Unloads what is used no more.
  void idle() override;

 private:
  [[nodiscard]] chip::ChipRuntime& runtime();

  const Configuration& configuration_;
  WorkerShared& shared_;
  const Platform platform_;
  std::unique_ptr<chip::ChipRuntime> runtime_;
};

}  // namespace strata::node
