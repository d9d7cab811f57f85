// How fast a warm Worker runs tasks that do nothing.
#include <vector>

#include "measures.hpp"

namespace strata::bench {
namespace {

constexpr int kTasks = 10'000;

/// Runs until the first figures no longer count: callables confirmed, memory mapped, pages there.
template <class Run>
void warm_up(Run run) {
  for (int i = 0; i < 3; ++i)
    run();
}

}  // namespace

Values measure_one(unsigned workers, double budget_ns) {
  constexpr int kRuns = 1000;
  Worker worker(options_for("chips", workers));
  const CallableId nothing = worker.add(empty_task());
  worker.init();
  const LaneId lane = worker.chip(0);
  const auto runs = [&](const Engine::OrchestrationFn& orchestration) {
    const auto many = [&] {
      for (int i = 0; i < kRuns; ++i)
        (void)worker.run(orchestration);
    };
    warm_up(many);
    return summary(sample_for(budget_ns / 2, 3, [&] { return timed(many) / kRuns / 1000; }), "us");
  };
  Values values;
  values["task"] = runs([&](Orchestration& run) { run.submit(Call(nothing), on(lane)); });
  values["empty"] = runs([](Orchestration&) {});
  worker.close();
  return values;
}

Values measure_independent(unsigned workers, bool with_tensor, double budget_ns) {
  Worker worker(options_for("chips", workers));
  const CallableId nothing = worker.add(empty_task());
  constexpr std::size_t kLine = 64;
  const Buffer buffer = worker.create_buffer(kLine * kTasks);
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; with_tensor && i < kTasks; ++i)
    tensors.push_back(buffer.tensor(DType::float32, {16}, i * kLine));
  worker.init();
  const KindId chips = worker.any_chip();
  const auto tasks = [&] {
    (void)worker.run([&](Orchestration& run) {
      for (int i = 0; i < kTasks; ++i) {
        if (with_tensor) {
          run.submit(Call(nothing), inout(tensors[static_cast<std::size_t>(i)]), on(chips));
        } else {
          run.submit(Call(nothing), on(chips));
        }
      }
    });
  };
  warm_up(tasks);
  const auto samples = sample_for(budget_ns, 3, [&] { return timed(tasks) / kTasks / 1000; });
  worker.close();
  return {{"", summary(samples, "us/task")}};
}

Values measure_chain(unsigned workers, double budget_ns) {
  Worker worker(options_for("chips", workers));
  const CallableId nothing = worker.add(empty_task());
  const Buffer buffer = worker.create_buffer(4096);
  const Tensor tensor = buffer.tensor(DType::float32, {16});
  worker.init();
  std::vector<LaneId> lanes;
  for (unsigned i = 0; i < workers; ++i)
    lanes.push_back(worker.chip(i));
  const auto tasks = [&](int count) {
    (void)worker.run([&](Orchestration& run) {
      for (int i = 0; i < count; ++i) {
        run.submit(Call(nothing), inout(tensor), on(lanes[static_cast<std::size_t>(i) % workers]));
      }
    });
  };
  // Where each hand-over takes a switch between processes, as many tasks would take too long.
  constexpr int kFew = 500;
  warm_up([&] { tasks(kFew); });
  const int count = timed([&] { tasks(kFew); }) / kFew > 5000 ? kFew : kTasks;
  const auto samples =
      sample_for(budget_ns, 3, [&] { return timed([&] { tasks(count); }) / count / 1000; });
  worker.close();
  return {{"", summary(samples, "us/task")}};
}

}  // namespace strata::bench
