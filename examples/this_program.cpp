// Tasks in processes of this very program: one file, no shared library.
//
// A worker process is a fresh start of the executable, never a copy of the living program. It finds
// its functions by the names that they have at namespace scope; nothing after ProcessScope in main
// is run there.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <strata/strata.hpp>
#include <string>

namespace {

/// How many numbers of [begin, end) are prime, as the value of the task.
const strata::WorkerFunction count_primes("count_primes", [](strata::WorkerTask& task) {
  long count = 0;
  for (long n = task.scalar<long>(0); n < task.scalar<long>(1) && !task.cancelled(); ++n) {
    bool prime = n > 1;
    for (long d = 2; d * d <= n && prime; ++d)
      prime = n % d != 0;
    count += prime ? 1 : 0;
  }
  task.set_value(std::to_string(count));
});

const strata::WorkerFunction process_id("process_id", [](strata::WorkerTask& task) {
  task.set_value(std::to_string(getpid()));
});

}  // namespace

int main(int argc, char** argv) {
  const strata::ProcessScope scope(argc, argv);  // First of all: a worker process stays in here.

  strata::Worker worker({.subs = {{.count = 2, .program = strata::WorkerProgram::this_program}}});
  const auto primes = worker.add(strata::Callable::in_program("count_primes"));
  const auto pid = worker.add(strata::Callable::in_program("process_id"));
  worker.init();

  const strata::Run run = worker.run([&](strata::Orchestration& graph) {
    for (long begin = 0; begin < 100'000; begin += 10'000) {
      graph.submit(strata::Call(primes), strata::scalar(begin), strata::scalar(begin + 10'000));
    }
  });
  long total = 0;
  for (const auto& [task, value] : run.values())
    total += std::stol(value);
  std::printf("%ld primes below 100000\n", total);

  // Both workers are processes of their own.
  const strata::Run who = worker.run([&](strata::Orchestration& graph) {
    graph.submit(strata::Call(pid), on(worker.sub(0)));
    graph.submit(strata::Call(pid), on(worker.sub(1)));
  });
  std::printf("this is process %d, its workers are", getpid());
  for (const auto& [task, value] : who.values()) {
    std::printf(" %s", value.c_str());
    if (value == std::to_string(getpid())) return 1;
  }
  std::printf("\n");
  return total == 9592 ? 0 : 1;
}
