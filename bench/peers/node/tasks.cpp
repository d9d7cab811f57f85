// The tasks of the benchmarks, as a library that worker processes load.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "comm/plain_waits.hpp"
#include "strata/communicator.hpp"
#include "strata/worker_task.hpp"

STRATA_WORKER_FUNCTION(nothing) {}

/// Ends only with its process.
STRATA_WORKER_FUNCTION(sleep_for_ever) {
  for (;;)
    pause();
}

/// scalar: how many threads. Ends only with its process.
STRATA_WORKER_FUNCTION(fill_with_threads) {
  static std::atomic<int> never{0};
  for (std::int64_t i = 0; i < task.scalar<std::int64_t>(0); ++i)
    std::thread([] { never.wait(0); }).detach();
  never.wait(0);
}

/// in the domain's context, inout a tensor of the window, scalar: how often.
STRATA_WORKER_FUNCTION(all_reduce_loop) {
  const strata::comm::PlainWaits waits;
  const strata::Communicator ranks(waits, *task.data<strata::DomainContext>(0));
  const std::span<float> data(task.data<float>(1),
                              static_cast<std::size_t>(task.tensor(1).extent(0)));
  for (std::int64_t i = 0; i < task.scalar<std::int64_t>(0); ++i)
    ranks.all_reduce<float>(data, data, strata::ReduceOp::sum);
}
