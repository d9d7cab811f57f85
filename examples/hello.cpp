// Three tasks over one vector. Strata finds who must wait for whom.
#include <cstdint>
#include <cstdio>
#include <strata/strata.hpp>
#include <vector>

int main() {
  std::vector<float> data(1000, 1.0F);
  strata::Engine engine;                           // One lane for each CPU.
  const strata::Tensor all = engine.tensor(data);  // No copy: a name for the vector's bytes.

  const auto twice = [](strata::TaskContext& task) {
    const strata::TensorView x = task.tensor(0);
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      x.data_as<float>()[i] *= 2;
  };
  engine.run([&](strata::Orchestration& run) {
    run.submit(twice, inout(all.slice(0, 0, 500)));     // These two share no byte:
    run.submit(twice, inout(all.slice(0, 500, 1000)));  // they may run at the same time.
    run.submit(twice, inout(all));  // This one shares bytes with both: it waits for them.
  });
  std::printf("first %g, last %g\n", data.front(), data.back());
  return data.front() == 4 && data.back() == 4 ? 0 : 1;
}
