// usage: with_library EXPECTED_WORKER [by_package]
// A user's program whose workers are strata-worker, which must be the file EXPECTED_WORKER. It is
// found by the program itself, or where the CMake package says.
#include <cstdio>
#include <cstring>
#include <strata/strata.hpp>

int main(int argc, char** argv) {
  strata::WorkerOptions options;
  options.chips = {strata::ChipOptions{}};
  options.next_level.emplace_back().subs.emplace_back();
  if (argc > 2) options.worker_program = STRATA_WORKER;
  strata::Worker worker(options);
  const auto program = worker.add(strata::Callable::in_library(CONSUMER_TASKS, "program"));
  const auto below =
      worker.add(strata::Callable::in_library(CONSUMER_TASKS, "program_below").as_orchestration());
  worker.init();
  const strata::Run run = worker.run([&](strata::Orchestration& graph) {
    graph.submit(strata::Call(program), on(worker.chip(0)));
    graph.submit(strata::Call(below), on(worker.next(0)));
  });
  worker.close();
  for (const auto& [task, value] : run.values()) {
    std::printf("a worker is %s\n", value.c_str());
    if (argc > 1 && value != argv[1]) return 1;
  }
  return run.values().size() == 1 ? 0 : 1;
}
