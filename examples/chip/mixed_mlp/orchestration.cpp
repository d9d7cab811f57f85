// One layer of a perceptron: y = activation(x weights + bias), by one mixed task of many blocks. A
// block takes the AIC and both AIVs of one cluster; there may be more blocks than clusters.
#include <strata/chip.hpp>

#include "kernels/tiles.hpp"

using namespace strata;

STRATA_CHIP_ORCHESTRATION(mixed_mlp) {
  const Tensor& y = chip.tensor(3);
  const KernelId activate = chip.kernel("activate");
  const auto blocks = static_cast<std::uint32_t>((y.extent(0) + tiles::kRows - 1) / tiles::kRows);
  if (blocks == 0) return;
  chip.submit(chip.mixed(chip.kernel("product"), activate, activate).blocks(blocks),
              in(chip.tensor(0)), in(chip.tensor(1)), in(chip.tensor(2)), out(y),
              scalar(chip.scalar<std::int64_t>(0)), named("layer"));
}
