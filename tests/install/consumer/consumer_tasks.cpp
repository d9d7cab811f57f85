// Tasks of a user, for the installed strata-worker.
#include <filesystem>
#include <strata/strata.hpp>

STRATA_WORKER_FUNCTION(program) {
  task.set_value(std::filesystem::read_symlink("/proc/self/exe").string());
}

// Uses what strata-worker must export.
STRATA_WORKER_ORCHESTRATION(program_below) {
  const auto id = worker.add(strata::Callable::in_library(CONSUMER_TASKS, "program"));
  run.submit(strata::Call(id), on(worker.sub(0)));
}
