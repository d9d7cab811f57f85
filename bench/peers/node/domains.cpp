// How long it takes chips to come up as ranks, and to get another domain.
#include "measures.hpp"

namespace strata::bench {
namespace {

constexpr double kMs = 1e6;

DomainOptions over_all(const Worker& worker, unsigned workers) {
  DomainOptions options{.name = "bench", .slices = {{"numbers", DType::float32, 1024}}};
  options.chips.reserve(workers);
  for (unsigned chip = 0; chip < workers; ++chip)
    options.chips.push_back(worker.chip(chip));
  return options;
}

/// Makes a domain and drops it; the time until it was there.
double create(Worker& worker, const DomainOptions& options) {
  const double begin = now_ns();
  const Domain domain = worker.create_domain(options);
  return (now_ns() - begin) / kMs;
}

}  // namespace

Values measure_bring_up(unsigned workers, double budget_ns) {
  // The first in a Worker: functions are registered, the communicator is brought up.
  const auto first = [&] {
    Worker worker(options_for("chips", workers));
    worker.init();
    const double time = create(worker, over_all(worker, workers));
    worker.close();
    return time;
  };
  return {{"", summary(sample_for(budget_ns, 5, first), "ms")}};
}

Values measure_create_domain(unsigned workers, double budget_ns) {
  Worker worker(options_for("chips", workers));
  worker.init();
  const DomainOptions options = over_all(worker, workers);
  (void)create(worker, options);
  Values values;
  values[""] = summary(sample_for(budget_ns, 20, [&] { return create(worker, options); }), "ms");
  worker.close();
  return values;
}

}  // namespace strata::bench
