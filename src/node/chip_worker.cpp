#include "strata/chip_worker.hpp"

#include "strata/error.hpp"

namespace strata {
namespace {

WorkerOptions options_of(ChipWorkerOptions options) {
  WorkerOptions all;
  all.name = std::move(options.name);
  all.chips = {std::move(options.chip)};
  all.log_level = options.log_level;
  all.worker_program = std::move(options.worker_program);
  return all;
}

}  // namespace

ChipWorker::ChipWorker(std::string platform, ChipRunOptions run)
    : ChipWorker(
          ChipWorkerOptions{.chip = {.platform = std::move(platform), .run = std::move(run)}}) {}

ChipWorker::ChipWorker(ChipWorkerOptions options) : worker_(options_of(std::move(options))) {}

std::optional<std::string> ChipWorker::finish(const Engine::OrchestrationFn& orchestration,
                                              const TaskId& task) {
  try {
    return worker_.run(orchestration).value(task);
  } catch (const RunFailed& failed) {
    // There is one task, so its own error is the whole story.
    if (failed.failed().size() != 1 || failed.failed().front().exception == nullptr) throw;
    std::rethrow_exception(failed.failed().front().exception);
  }
}

}  // namespace strata
