// Tasks over vectors for workers.cpp; becomes libvectors.so.
//
// A function is one task. It runs in a worker process, one at a time there.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <strata/worker_task.hpp>
#include <string>

// y = a x + y
STRATA_WORKER_FUNCTION(axpy) {
  const auto a = task.scalar<float>(0);
  const auto* x = task.data<const float>(0);
  auto* y = task.data<float>(1);
  const std::int64_t n = task.tensor(0).extent(0);
  for (std::int64_t i = 0; i < n; ++i)
    y[i] += a * x[i];
}

// The sum of x, as a value of the task.
STRATA_WORKER_FUNCTION(sum) {
  double total = 0;
  for (std::int64_t i = 0; i < task.tensor(0).extent(0); ++i)
    total += task.data<const float>(0)[i];
  task.set_value(std::to_string(total));
}

// Square roots in place. What a task throws reaches whoever waits for the run.
STRATA_WORKER_FUNCTION(root) {
  for (std::int64_t i = 0; i < task.tensor(0).extent(0); ++i) {
    float& x = task.data<float>(0)[i];
    if (x < 0) throw std::domain_error("element " + std::to_string(i) + " is below zero");
    x = std::sqrt(x);
  }
}

// A fault that no exception tells of: the process dies.
STRATA_WORKER_FUNCTION(die) { std::abort(); }

// Where it runs.
STRATA_WORKER_FUNCTION(where) { task.set_value(std::string(task.worker())); }
