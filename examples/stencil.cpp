// Heat in a rod: a 1-D three-point stencil over two buffers that change roles at each step.
//
// A block of step t reads its own cells and one on each side, so it must wait for three blocks of
// step t - 1 (read after write), and may not overwrite what they still read (write after read).
// Nobody says so here: the tasks name the cells that they read and write, and that is enough.
// Blocks that are far apart run ahead of each other; there is no barrier between steps.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <strata/strata.hpp>
#include <utility>
#include <vector>

namespace {

constexpr std::int64_t kCells = 4096;  // Without the two ends, which stay as they are.
constexpr std::int64_t kBlock = 256;
constexpr int kSteps = 100;

/// new[i] = (old[i - 1] + 2 old[i] + old[i + 1]) / 4, for `count` cells from `now` on.
void step(const double* before, double* now, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    now[i] = 0.25 * (before[i - 1] + 2 * before[i] + before[i + 1]);
  }
}

void step_task(strata::TaskContext& task) {
  // Argument 0 begins one cell to the left of argument 1.
  step(task.data<const double>(0) + 1, task.data<double>(1), task.tensor(1).extent(0));
}

std::vector<double> initial() {
  std::vector<double> cells(kCells + 2, 0.0);
  cells.front() = 100.0;
  cells[kCells / 2] = 1000.0;
  return cells;
}

}  // namespace

int main() {
  // Serially, to compare with.
  std::vector<double> expected = initial();
  std::vector<double> other = expected;
  for (int t = 0; t < kSteps; ++t) {
    step(expected.data() + 1, other.data() + 1, kCells);
    std::swap(expected, other);
  }

  // As a task graph.
  std::vector<double> a = initial();
  std::vector<double> b = a;
  strata::Engine engine;
  strata::Tensor from = engine.tensor(a);
  strata::Tensor to = engine.tensor(b);
  const strata::Run run = engine.run([&](strata::Orchestration& orchestration) {
    for (int t = 0; t < kSteps; ++t) {
      for (std::int64_t begin = 1; begin <= kCells; begin += kBlock) {
        const std::int64_t end = std::min(begin + kBlock, kCells + 1);
        orchestration.submit(step_task, in(from.slice(0, begin - 1, end + 1)),
                             out(to.slice(0, begin, end)), strata::named("step"));
      }
      std::swap(from, to);
    }
  });

  const std::vector<double>& result = kSteps % 2 == 0 ? a : b;
  std::printf("%d steps of %lld cells in %llu tasks: %s\n", kSteps, static_cast<long long>(kCells),
              static_cast<unsigned long long>(run.stats().tasks),
              result == expected ? "equal to the serial loop" : "WRONG");
  return result == expected ? 0 : 1;
}
