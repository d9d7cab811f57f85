#include <sched.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "measures.hpp"
#include "os/system_error.hpp"

namespace strata::bench {

WorkerOptions options_for(std::string_view kind, unsigned workers) {
  WorkerOptions options{.log_level = LogLevel::off, .worker_program = STRATA_BENCH_WORKER};
  if (kind == "chips") {
    options.chips.resize(workers);
  } else if (kind == "subs") {
    options.subs = {{.count = workers}};
  } else {
    throw std::invalid_argument("there are chips and subs, but no '" + std::string(kind) + "'");
  }
  return options;
}

Callable empty_task() { return Callable::in_library(STRATA_BENCH_TASKS, "nothing"); }

namespace {

/// Binds this thread, and what it starts, to the first CPU that it may use.
void bind_to_one_cpu() {
  cpu_set_t allowed, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) os::throw_errno("reading the CPUs");
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed))
    ++cpu;
  CPU_SET(cpu, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) os::throw_errno("binding to one CPU");
}

Values measure(std::string_view what, unsigned workers, double budget_ns) {
  constexpr std::string_view kOneCpu = ":one-cpu";
  if (what.ends_with(kOneCpu)) {
    bind_to_one_cpu();
    what.remove_suffix(kOneCpu.size());
  }
  const std::size_t colon = what.find(':');
  const std::string_view name = what.substr(0, colon);
  const std::string_view kind = colon == std::string_view::npos ? "" : what.substr(colon + 1);
  if (name == "start") return measure_start(kind, workers, budget_ns);
  if (name == "start-large") {
    constexpr std::size_t kGib = std::size_t{1} << 30U;
    const std::vector<char> resident(kGib, 'x');
    Values values = measure_start(kind, workers, budget_ns);
    if (resident[kGib / 2] != 'x') values.clear();  // So that it is used.
    return values;
  }
  if (name == "one") return measure_one(workers, budget_ns);
  if (name == "independent") return measure_independent(workers, false, budget_ns);
  if (name == "independent-tensor") return measure_independent(workers, true, budget_ns);
  if (name == "chain") return measure_chain(workers, budget_ns);
  if (name == "collective") {
    return measure_collective(std::strtoull(std::string(kind).c_str(), nullptr, 10), workers,
                              budget_ns);
  }
  if (name == "idle") return measure_idle(workers);
  if (name == "memory") return measure_memory(workers);
  if (name == "dump") return measure_dump(kind, workers, budget_ns);
  if (name == "bring-up") return measure_bring_up(workers, budget_ns);
  if (name == "create-domain") return measure_create_domain(workers, budget_ns);
  if (what == "death:child") return measure_death_of_child(workers, budget_ns);
  if (what == "death:root") return measure_death_of_root(workers, budget_ns);
  throw std::invalid_argument("no measure is called '" + std::string(what) + "'");
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  using namespace strata::bench;
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: %s MEASURE WORKERS [BUDGET_MS]    see measures.hpp\n", argv[0]);
    return 2;
  }
  try {
    const auto workers = static_cast<unsigned>(std::max(1, std::atoi(argv[2])));
    if (std::strcmp(argv[1], "root") == 0) be_a_root(workers);
    const double budget_ns = (argc > 3 ? std::atof(argv[3]) : 100) * 1e6;
    print_values(measure(argv[1], workers, budget_ns), true, "");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
