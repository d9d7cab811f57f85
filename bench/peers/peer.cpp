#include "peer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "figures.hpp"
#include "timing.hpp"

namespace strata::bench {
namespace {

/// The warm-up: a run in which the tasks check their order.
void run_checked(const Workload& workload, const std::function<void()>& run) {
  const OrderCheck check(workload);
  run();
  if (!check.passed())
    throw std::runtime_error("tasks of " + workload.name + " ran in a wrong order");
}

Values measure_runs(const Workload& workload, double budget_ns, const std::function<void()>& run) {
  run_checked(workload, run);
  const double tasks = static_cast<double>(workload.tasks());
  return {{"", summary(sample_for(budget_ns, 3, [&] { return timed(run) / tasks; }), "ns/task")}};
}

Values measure_submission(Adapter& adapter, const Workload& workload, double budget_ns,
                          bool with_tenths) {
  // With boxes that overlap others the order check, which knows regions by name, has no say.
  const bool overlapping = workload.grid > 0 && workload.regions > workload.grid * workload.grid;
  if (overlapping) {
    adapter.submit_held();
  } else {
    run_checked(workload, [&] { adapter.submit_held(); });
  }
  std::vector<double> first, last;
  const auto sample = [&] {
    const Tenths tenths = adapter.submit_held();
    first.push_back(tenths.front());
    last.push_back(tenths.back());
    double sum = 0;
    for (const double tenth : tenths)
      sum += tenth;
    return sum / static_cast<double>(tenths.size());
  };
  const std::vector<double> whole = sample_for(budget_ns, 3, sample);
  Values values{{"", summary(whole, "ns/task")}};
  if (with_tenths) {
    values["first-tenth"] = summary(first, "ns/task");
    values["last-tenth"] = summary(last, "ns/task");
  }
  return values;
}

/// Nanoseconds an iteration of compute() takes when `threads` threads compute at once.
double iteration_ns(unsigned threads) {
  constexpr std::uint64_t kIterations = 1'000'000;
  std::vector<double> samples;
  for (int i = 0; i < 7; ++i) {
    samples.push_back(parallel_ns(threads, [](unsigned) { compute(kIterations); }));
  }
  return median(samples) / static_cast<double>(kIterations);
}

/// METG(50 %) as Task Bench defines it: the shortest task granularity, elapsed time x threads /
/// tasks, at which the threads still spend half of their time in kernels. The kernels' time is what
/// the same number of threads need for them without any runtime.
Values measure_metg(Adapter& adapter, unsigned threads, double ns_per_iteration) {
  constexpr double kTarget = 0.5;
  constexpr double kShortest = 30, kLongest = 2e6;  // ns a kernel
  const auto efficiency = [&](double kernel_ns) {
    const auto steps =
        std::clamp<std::uint32_t>(static_cast<std::uint32_t>(10e6 / kernel_ns / 2), 50, 1000);
    const Workload workload = make_stencil(2 * threads, steps);
    const auto iterations = static_cast<std::uint64_t>(kernel_ns / ns_per_iteration);
    set_iterations(iterations);
    adapter.prepare(workload);
    adapter.run();
    std::vector<double> elapsed;
    for (int i = 0; i < 3; ++i)
      elapsed.push_back(timed([&] { adapter.run(); }));
    set_iterations(0);
    const double work = static_cast<double>(iterations) * ns_per_iteration *
                        static_cast<double>(workload.tasks()) / threads;
    return work / median(elapsed);
  };
  const Workload checked = make_stencil(2 * threads, 1000);
  adapter.prepare(checked);
  run_checked(checked, [&] { adapter.run(); });

  double low = kShortest, high = kLongest;
  if (efficiency(high) < kTarget)
    throw std::runtime_error("less than 50 % efficient at any length");
  for (int i = 0; i < 10; ++i) {
    const double middle = std::sqrt(low * high);
    (efficiency(middle) < kTarget ? low : high) = middle;
  }
  const double granularity_us = std::sqrt(low * high) / kTarget / 1000;
  return {{"", {granularity_us, granularity_us, "us"}}};
}

double resident_kib() {
  std::ifstream file("/proc/self/statm");
  long size = 0, resident = 0;
  file >> size >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1024;
}

/// From nothing to the end of the first task; memory then, and after a run of 2r1w. What the peer
/// program itself allocates to describe a workload is left out.
Values measure_engine(unsigned threads) {
  const Workload one = make_workload("one"), many = make_workload("2r1w");
  std::unique_ptr<Adapter> adapter;
  const double before = resident_kib();
  const double start = timed([&] {
    adapter = make_adapter(threads);
    adapter->prepare(one);
    adapter->run();
  });
  const double idle = resident_kib() - before;
  adapter->prepare(many);
  const double prepared = resident_kib();
  for (int i = 0; i < 3; ++i)
    adapter->run();
  const double used = idle + resident_kib() - prepared;
  return {{"start-us", {start / 1000, start / 1000, "us"}},
          {"idle-kib", {idle, idle, "KiB"}},
          {"used-kib", {used, used, "KiB"}}};
}

/// What the runtime can't do is told apart from what failed.
struct Unsupported {};

Values measure(Adapter& adapter, std::string_view kind, const Workload& workload,
               double budget_ns) {
  const double tasks = static_cast<double>(workload.tasks());
  if (kind == "run") {
    adapter.prepare(workload);
    return measure_runs(workload, budget_ns, [&] { adapter.run(); });
  }
  if (kind == "replay") {
    if (!adapter.prepare_replay(workload)) throw Unsupported();
    return measure_runs(workload, budget_ns, [&] { adapter.replay(); });
  }
  if (kind == "submit" || kind == "growth") {
    if (!adapter.prepare_held(workload)) throw Unsupported();
    return measure_submission(adapter, workload, budget_ns, kind == "growth");
  }
  if (kind == "replay-submit") {
    if (!adapter.prepare_replay_held(workload)) throw Unsupported();
    run_checked(workload, [&] { adapter.replay_held(); });
    const auto sample = [&] { return adapter.replay_held() / tasks; };
    return {{"", summary(sample_for(budget_ns, 3, sample), "ns/task")}};
  }
  throw std::invalid_argument("no measure is called '" + std::string(kind) + "'");
}

void print(const Values& values, Adapter* adapter) {
  print_values(values, adapter == nullptr || adapter->infers(),
               adapter == nullptr ? std::string() : adapter->note());
}

void measure_and_print(std::string_view what, unsigned threads, double budget_ns) {
  if (what == "engine") return print(measure_engine(threads), nullptr);
  // Measured before there is a runtime whose threads could spin meanwhile.
  const double ns_per_iteration = what == "metg" ? iteration_ns(threads) : 0;
  Workload workload;  // outlives the adapter
  const std::unique_ptr<Adapter> adapter = make_adapter(threads);
  if (what == "metg")
    return print(measure_metg(*adapter, threads, ns_per_iteration), adapter.get());
  const std::size_t colon = what.find(':');
  if (colon == std::string_view::npos) throw std::invalid_argument("a measure is KIND:WORKLOAD");
  workload = make_workload(what.substr(colon + 1));
  print(measure(*adapter, what.substr(0, colon), workload, budget_ns), adapter.get());
}

/// Starts this program anew if a variable of kEnvironment is not set.
void require_environment(char** argv) {
  bool changed = false;
  for (const EnvironmentSetting setting : kEnvironment) {
    if (std::getenv(setting.name) != nullptr) continue;
    setenv(setting.name, setting.value, 1);
    changed = true;
  }
  if (changed) execv("/proc/self/exe", argv);
}

}  // namespace

TenthsTimer::TenthsTimer(std::size_t first, std::size_t last) noexcept
    : first_(first), last_(last), laps_(last - first < 1000 ? 1 : 10), next_(first) {}

void TenthsTimer::take() noexcept {
  at_[taken_] = now_ns();
  ++taken_;
  next_ = begin_of(taken_);  // after the last lap: a task that never comes
}

Tenths TenthsTimer::finish() noexcept {
  at_[laps_] = now_ns();
  Tenths tenths{};
  for (std::size_t i = 0; i < tenths.size(); ++i) {
    const std::size_t lap = i * laps_ / tenths.size();
    const auto tasks = static_cast<double>(begin_of(lap + 1) - begin_of(lap));
    tenths[i] = (at_[lap + 1] - at_[lap]) / tasks;
  }
  return tenths;
}

}  // namespace strata::bench

int main(int argc, char** argv) {
  using namespace strata::bench;
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: %s MEASURE THREADS [BUDGET_MS]    see bench/peers/peer.hpp\n",
                 argv[0]);
    return 2;
  }
  require_environment(argv);
  try {
    const auto threads = static_cast<unsigned>(std::max(1, std::atoi(argv[2])));
    const double budget_ns = (argc > 3 ? std::atof(argv[3]) : 50) * 1e6;
    measure_and_print(argv[1], threads, budget_ns);
  } catch (const Unsupported&) {
    std::printf("{\"unsupported\": true}\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  std::fflush(stdout);
  return 0;
}
