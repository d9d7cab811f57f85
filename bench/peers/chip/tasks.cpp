// What one task of a chip costs.
#include <atomic>

#include "in_process.hpp"
#include "measures.hpp"

namespace strata::bench {
namespace {

constexpr int kTasks = 10'000;
constexpr int kSpmdTasks = 500;
constexpr std::int64_t kLine = 16;  ///< Floats of one cache line.

void nothing(const Kernel&) {}

/// Line i of the argument.
Tensor line(const Tensor& all, std::int64_t i) { return all.select(0, i); }

void independent(ChipOrchestration& chip) {
  const Launch launch = chip.aiv("vector");
  for (std::int64_t i = 0; i < kTasks; ++i)
    chip.submit(launch, inout(line(chip.tensor(0), i)));
}

void chain(ChipOrchestration& chip) {
  const Launch launch = chip.aiv("vector");
  const Tensor tensor = line(chip.tensor(0), 0);
  for (int i = 0; i < kTasks; ++i)
    chip.submit(launch, inout(tensor));
}

void mixed(ChipOrchestration& chip) {
  const KernelId vector = chip.kernel("vector");
  const Launch launch = chip.mixed(chip.kernel("cube"), vector, vector);
  for (std::int64_t i = 0; i < kSpmdTasks; ++i)
    chip.submit(launch, inout(line(chip.tensor(0), i)));
}

void spmd(ChipOrchestration& chip) {
  const Launch launch = chip.aiv("vector").blocks(24);
  const Tensor tensor = line(chip.tensor(0), 0);
  for (int i = 0; i < kSpmdTasks; ++i)
    chip.submit(launch, inout(tensor));
}

void spmd_together(ChipOrchestration& chip) {
  const Launch launch = chip.aiv("vector").blocks(24).together();
  const Tensor tensor = line(chip.tensor(0), 0);
  for (int i = 0; i < kSpmdTasks; ++i)
    chip.submit(launch, inout(tensor));
}

void one_graph(ChipOrchestration& chip, const GraphArguments& arguments) {
  const Launch launch = chip.aiv("vector");
  for (std::int64_t i = 0; i < kTasks; ++i)
    chip.submit(launch, inout(line(arguments.tensor(0), i)));
}

void graph(ChipOrchestration& chip) { chip.graph(one_graph, {chip.tensor(0)}, {}); }

/// One run at a time: what its orchestration and the kernel that holds its tasks back know.
struct HeldRun {
  /// Whether the tasks may begin. The orchestration sets it last, the kernel waits for it.
  std::atomic<bool> open{false};
  double submission_ns = 0;  ///< The orchestration writes it, and who started the run reads it.
};
HeldRun held;

void hold(const Kernel&) { held.open.wait(false, std::memory_order_acquire); }

/// Each task reads what the held one writes, and has a line of its own: none can begin meanwhile.
void submission(ChipOrchestration& chip) {
  const Launch launch = chip.aiv("vector");
  const Tensor gate = line(chip.tensor(0), kTasks);
  chip.submit(chip.aiv("hold"), inout(gate));
  held.submission_ns = timed([&] {
    for (std::int64_t i = 0; i < kTasks; ++i)
      chip.submit(launch, in(gate), inout(line(chip.tensor(0), i)));
  });
  held.open.store(true, std::memory_order_release);
  held.open.notify_all();
}

Values measure(chip::OrchestrationFunction orchestration, unsigned threads, int tasks,
               double budget_ns) {
  InProcessChip chip("a2a3sim", threads);
  chip.set_program({{"vector", CoreType::aiv, nothing}, {"cube", CoreType::aic, nothing}},
                   orchestration);
  std::vector<float> data(kTasks * kLine);
  Arguments arguments;
  arguments.add(data, {kTasks, kLine}, Access::inout);
  const auto run = [&] { chip.run(arguments.block()); };
  for (int i = 0; i < 3; ++i)
    run();
  return {{"", summary(sample_for(budget_ns, 3, [&] { return timed(run) / tasks; }), "ns/task")}};
}

}  // namespace

Values measure_independent(unsigned threads, double budget_ns) {
  return measure(independent, threads, kTasks, budget_ns);
}

Values measure_submission(unsigned threads, double budget_ns) {
  InProcessChip chip("a2a3sim", threads, 2 * kTasks);
  chip.set_program({{"vector", CoreType::aiv, nothing}, {"hold", CoreType::aiv, hold}}, submission);
  std::vector<float> data((kTasks + 1) * kLine);
  Arguments arguments;
  arguments.add(data, {kTasks + 1, kLine}, Access::inout);
  const auto run = [&] {
    held.open.store(false, std::memory_order_relaxed);
    chip.run(arguments.block());
    return held.submission_ns / kTasks;
  };
  for (int i = 0; i < 3; ++i)
    run();
  return {{"", summary(sample_for(budget_ns, 3, run), "ns/task")}};
}

Values measure_chain(unsigned threads, double budget_ns) {
  return measure(chain, threads, kTasks, budget_ns);
}

Values measure_mixed(unsigned threads, double budget_ns) {
  return measure(mixed, threads, kSpmdTasks, budget_ns);
}

Values measure_spmd(unsigned threads, bool together, double budget_ns) {
  return measure(together ? spmd_together : spmd, threads, kSpmdTasks, budget_ns);
}

Values measure_replay(unsigned threads, double budget_ns) {
  return measure(graph, threads, kTasks, budget_ns);
}

}  // namespace strata::bench
