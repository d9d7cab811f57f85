// Workers of workers: two next-level workers with two subs each. A task for a next-level worker is
// an orchestration: it submits tasks to the workers below, over the same memory.
//
//   node
//     node/next[0]      node/next[1]
//       .../sub[0]        .../sub[0]
//       .../sub[1]        .../sub[1]
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <strata/strata.hpp>
#include <string>

namespace {

/// One element more; 13 is refused.
const strata::WorkerFunction add_one("add_one", [](strata::WorkerTask& task) {
  for (std::int64_t i = 0; i < task.tensor(0).extent(0); ++i) {
    std::int32_t& x = task.data<std::int32_t>(0)[i];
    if (x == 13) throw std::out_of_range("13 is not counted on");
    ++x;
  }
});

/// Runs in a next-level worker: `worker` is the Worker of that process, `graph` a run of it. The
/// tensor of the task is one to submit with here. The task ends when this run has ended.
const strata::WorkerFunction add_in_halves("add_in_halves", [](strata::Worker& worker,
                                                               strata::Orchestration& graph,
                                                               strata::WorkerTask& task) {
  const auto add = worker.add(strata::Callable::in_program("add_one"));
  const strata::Tensor& all = task.as_tensor(0);
  const std::int64_t half = all.extent(0) / 2;
  graph.submit(strata::Call(add), inout(all.slice(0, 0, half)), strata::named("first half"));
  graph.submit(strata::Call(add), inout(all.slice(0, half, all.extent(0))),
               strata::named("second half"));
});

strata::WorkerOptions node_options() {
  constexpr auto kThisProgram = strata::WorkerProgram::this_program;
  const strata::WorkerOptions below{.subs = {{.count = 2, .program = kThisProgram}},
                                    .program = kThisProgram};
  return {.next_level = {below, below}};
}

}  // namespace

int main(int argc, char** argv) {
  const strata::ProcessScope scope(argc, argv);

  strata::Worker worker(node_options());
  const auto halves = worker.add(strata::Callable::in_program("add_in_halves").as_orchestration());
  constexpr std::int64_t kSize = 1000;
  strata::Buffer memory = worker.create_buffer(kSize * sizeof(std::int32_t));
  const strata::Tensor all = memory.tensor(strata::DType::int32, {kSize});
  worker.init();  // Six processes on two levels, in parallel.

  const auto work = [&](strata::Orchestration& graph) {
    for (int round = 0; round < 3; ++round) {
      graph.submit(strata::Call(halves), inout(all.slice(0, 0, 600)), on(worker.any_next()));
      graph.submit(strata::Call(halves), inout(all.slice(0, 600, kSize)), on(worker.any_next()));
    }
  };
  worker.run(work);
  for (const std::int32_t x : memory.as<std::int32_t>()) {
    if (x != 3) return 1;
  }
  std::printf("all 3 after 3 rounds\n");

  // What fails two levels down is told here, with the path of the worker that it failed in.
  memory.as<std::int32_t>()[999] = 13;
  try {
    worker.run(work);
    return 1;  // Not reached.
  } catch (const strata::RunFailed& failed) {
    try {
      std::rethrow_exception(failed.failed().front().exception);
    } catch (const strata::RemoteError& error) {
      std::printf("%s\n", error.what());
      return error.fault().type == "std::out_of_range" ? 0 : 1;
    }
  }
}
