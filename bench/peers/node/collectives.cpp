// Collectives as tasks: what the engine adds to each, and how long a run of one takes.
#include "strata/collectives.hpp"
#include <array>
#include <cstdint>
#include <vector>

#include "measures.hpp"

namespace strata::bench {
namespace {

constexpr int kCalls = 1000;

/// A group whose members call the collective `kCalls` times: what a kernel group that is running
/// pays for each.
TaskId submit_loop(Orchestration& run, const Domain& domain, const std::vector<Tensor>& data,
                   CallableId loop) {
  const Scalar scalars[] = {scalar(std::int64_t{kCalls})};
  std::vector<Tensor> contexts;
  std::vector<std::array<TensorArg, 2>> arguments(domain.size());
  std::vector<GroupMember> members(domain.size());
  contexts.reserve(domain.size());
  for (std::uint32_t rank = 0; rank < domain.size(); ++rank) {
    contexts.push_back(domain.context(rank));
    arguments[rank] = {in(contexts[rank]), inout(data[rank])};
    members[rank].lane = domain.chip(rank);
    members[rank].body = Call(loop);
    members[rank].tensors = arguments[rank];
    members[rank].scalars = scalars;
  }
  return run.submit_group({.members = members, .name = "loop"});
}

}  // namespace

Values measure_collective(std::size_t bytes, unsigned ranks, double budget_ns) {
  Worker worker(options_for("chips", ranks));
  const CallableId loop = worker.add(Callable::in_library(STRATA_BENCH_TASKS, "all_reduce_loop"));
  worker.init();
  const std::uint64_t count = bytes / sizeof(float);
  DomainOptions options{.slices = {{"data", DType::float32, count}}};
  for (unsigned rank = 0; rank < ranks; ++rank)
    options.chips.push_back(worker.chip(rank));
  const Domain domain = worker.create_domain(options);
  std::vector<Tensor> data;
  for (unsigned rank = 0; rank < ranks; ++rank)
    data.push_back(domain.slice(rank, "data"));

  const auto one_run = [&] {
    worker.run([&](Orchestration& run) { all_reduce(run, domain, data, data, ReduceOp::sum); });
  };
  const auto chain = [&] {
    worker.run([&](Orchestration& run) {
      for (int i = 0; i < kCalls; ++i)
        all_reduce(run, domain, data, data, ReduceOp::sum);
    });
  };
  const auto called = [&] {
    worker.run([&](Orchestration& run) { submit_loop(run, domain, data, loop); });
  };
  for (int i = 0; i < 100; ++i)
    one_run();
  called();
  std::vector<double> runs, tasks, calls, on_top;
  // In turns, so that all of them see the same machine.
  (void)sample_for(budget_ns, 5, [&] {
    for (int i = 0; i < 100; ++i)
      runs.push_back(timed(one_run) / 1000);
    tasks.push_back(timed(chain) / kCalls / 1000);
    calls.push_back(timed(called) / kCalls / 1000);
    on_top.push_back(tasks.back() - calls.back());
    return 0.0;
  });
  worker.close();
  return {{"run", summary(runs, "us")},
          {"task", summary(tasks, "us")},
          {"call", summary(calls, "us")},
          {"on-top", summary(on_top, "us")}};
}

}  // namespace strata::bench
