// What a failed task takes with it, what it does not, and how to go on.
//
//   load ---> scale ---> sum       load throws: scale and sum need its result and are skipped.
//   peek - - > load                peek only had to be before load: it runs.
//   count                          has nothing to do with it: it runs.
#include <cstdio>
#include <stdexcept>
#include <strata/strata.hpp>
#include <vector>

int main() {
  std::vector<double> x(8, 1.0);
  std::vector<double> y(8, 0.0);
  std::vector<double> total(1, 0.0);
  std::vector<double> other(1, 0.0);
  strata::Engine engine;
  const strata::Tensor tx = engine.tensor(x);
  const strata::Tensor ty = engine.tensor(y);
  const strata::Tensor ttotal = engine.tensor(total);
  const strata::Tensor tother = engine.tensor(other);

  bool file_is_there = false;
  const auto peek = [](strata::TaskContext&) {};
  const auto load = [&](strata::TaskContext& task) {
    if (!file_is_there) throw std::runtime_error("no such file: x.bin");
    for (int i = 0; i < 8; ++i)
      task.data<double>(0)[i] = i;
  };
  const auto scale = [](strata::TaskContext& task) {
    for (int i = 0; i < 8; ++i)
      task.data<double>(1)[i] = 10 * task.data<const double>(0)[i];
  };
  const auto sum = [](strata::TaskContext& task) {
    double s = 0;
    for (int i = 0; i < 8; ++i)
      s += task.data<const double>(0)[i];
    *task.data<double>(1) = s;
  };
  const auto count = [](strata::TaskContext& task) { *task.data<double>(0) += 1; };
  const auto orchestration = [&](strata::Orchestration& run) {
    // The second time x is invalid. peek would be skipped, had not somebody overwritten x: we say
    // that what is in our vector is what x should be.
    if (file_is_there) run.overwrite(tx);
    run.submit(peek, in(tx), strata::named("peek"));
    run.submit(load, out(tx), strata::named("load"));
    run.submit(scale, in(tx), out(ty), strata::named("scale"));
    run.submit(sum, in(ty), out(ttotal), strata::named("sum"));
    run.submit(count, inout(tother), strata::named("count"));
  };

  // 1. The run fails. result() says why; the lists say what else.
  const strata::Run first = engine.submit(orchestration, {.name = "first"});
  try {
    first.result();
    return 1;  // Not reached.
  } catch (const strata::RunFailed& error) {
    std::printf("%s\n", error.what());
    for (const strata::TaskFailure& f : error.failed()) {
      std::printf("  failed   %-6s %s\n", f.name.c_str(), f.message.c_str());
    }
    for (const strata::TaskFailure& f : error.skipped()) {
      std::printf("  skipped  %-6s %s\n", f.name.c_str(), f.message.c_str());
    }
    if (error.failed().size() != 1 || error.skipped().size() != 2) return 1;
  }
  if (other[0] != 1) return 1;  // count has run.

  // 2. What was not written stays invalid, in later runs too: whoever reads it is skipped.
  bool refused = false;
  try {
    engine.run([&](strata::Orchestration& run) {
      run.submit(sum, in(ty), out(ttotal), strata::named("sum again"));
    });
  } catch (const strata::RunFailed& error) {
    std::printf("%s\n", error.what());
    refused = true;
  }
  if (!refused) return 1;

  // 3. Whoever overwrites it, a task or overwrite(), makes it valid. Nothing else is left of the
  // failure.
  file_is_there = true;
  engine.run(orchestration, {.name = "third"});
  std::printf("third went well: total %g, count %g\n", total[0], other[0]);
  return total[0] == 280 && other[0] == 2 ? 0 : 1;
}
