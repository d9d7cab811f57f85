// How long a report takes to get the stacks of many threads in many processes.
#include <signal.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "diag/tree_report.hpp"
#include "measures.hpp"
#include "os/procfs.hpp"

namespace strata::bench {
namespace {

using namespace std::chrono_literals;

constexpr int kThreads = 20;

double ms_of(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

/// Waits until a worker has all its threads, and they sleep.
void wait_for_threads(pid_t pid) {
  for (;;) {
    const auto info = os::read_process(pid);
    if (!info) throw std::runtime_error("a worker has died");
    if (info->threads >= kThreads) break;
    std::this_thread::sleep_for(1ms);
  }
  std::this_thread::sleep_for(20ms);
}

}  // namespace

Values measure_dump(std::string_view who, unsigned workers, double budget_ns) {
  if (who != "own" && who != "outside") throw std::invalid_argument("own or outside?");
  const diag::CollectOptions options{.stacks = who == "own" ? diag::StackTaker::process
                                                            : diag::StackTaker::outside};
  Worker worker(options_for("subs", workers));
  const CallableId fill =
      worker.add(Callable::in_library(empty_task().library, "fill_with_threads"));
  worker.init();
  const Run run = worker.submit([&](Orchestration& orchestration) {
    for (unsigned i = 0; i < workers; ++i)
      // The main thread, the service thread and the lifeline thread are there already.
      orchestration.submit(Call(fill), scalar(std::int64_t{kThreads - 3}), on(worker.sub(i)));
  });
  for (const ProcessStatus& process : worker.processes())
    wait_for_threads(process.pid);
  std::vector<double> copied;
  std::vector<double> stacks;
  const auto report = [&] {
    const diag::TreeReport made = diag::collect(getpid(), options);
    copied.push_back(ms_of(made.copying_took));
    stacks.push_back(ms_of(made.stacks_took));
    return ms_of(made.took);
  };
  (void)report();  // The files that debug information is read from are in memory afterwards.
  copied.clear();
  stacks.clear();
  Values values{{"report", summary(sample_for(budget_ns, 3, report), "ms")}};
  values["copied"] = summary(copied, "ms");
  values["stacks"] = summary(stacks, "ms");
  for (const ProcessStatus& process : worker.processes())
    kill(process.pid, SIGKILL);  // Tasks that never end need not be waited for.
  return values;
}

}  // namespace strata::bench
