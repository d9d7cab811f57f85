// The largest eigenvalue of a symmetric matrix and its vector, by power iteration.
//
// How many tasks there are depends on what the kernels compute: the orchestration reads the
// residual that each step writes, and goes on until it is small. And one task runs only if a kernel
// says so: the vector is negated if its largest component came out negative. That is decided on the
// chip (when()); the orchestration does not wait for it.
#include <algorithm>
#include <strata/chip.hpp>
#include <string>

using namespace strata;

STRATA_CHIP_ORCHESTRATION(value_dependent) {
  const Tensor& matrix = chip.tensor(0);
  const Tensor& x = chip.tensor(1);
  const Tensor& eigenvalue = chip.tensor(2);
  const Tensor& iterations = chip.tensor(3);
  const auto tolerance = chip.scalar<double>(0);
  const auto limit = chip.scalar<std::int64_t>(1);
  const auto tile = chip.scalar<std::int64_t>(2);
  if (tile < 1) chip.fail(1, "a tile has at least one row");

  const Allocation work =
      chip.allocate({{DType::float32, {x.extent(0)}}, {DType::float64, {1}}, {DType::int32, {1}}});
  const Tensor& y = work.tensors[0];
  const Tensor& residual = work.tensors[1];
  const Tensor& negative = work.tensors[2];

  std::int32_t steps = 0;
  double rest = 0;
  do {
    if (steps == limit) {
      chip.fail(2, "no convergence: after " + std::to_string(steps) + " steps the residual is " +
                       std::to_string(rest));
    }
    for (std::int64_t row = 0; row < matrix.extent(0); row += tile) {
      const std::int64_t end = std::min(row + tile, matrix.extent(0));
      chip.submit(chip.aic("product"), in(matrix.slice(0, row, end)), in(x),
                  out(y.slice(0, row, end)), named("product"));
    }
    chip.submit(chip.aiv("step"), in(y), inout(x), out(eigenvalue), out(residual), named("step"));
    ++steps;
    rest = chip.read<double>(residual, {0});  // Waits for the task that writes it.
  } while (rest > tolerance);

  chip.submit(chip.aiv("sign"), in(x), out(negative), named("sign"));
  chip.submit(chip.aiv("negate"), inout(x), when(negative, Compare::equal, 1), named("negate"));
  chip.write(iterations, {0}, steps);
}
