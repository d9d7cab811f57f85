// The tasks of the benchmarks, as a library that worker processes load.
#include <unistd.h>

#include "strata/worker_task.hpp"

STRATA_WORKER_FUNCTION(nothing) {}

/// Ends only with its process.
STRATA_WORKER_FUNCTION(sleep_for_ever) {
  for (;;)
    pause();
}
