#include <strata/chip.hpp>

using namespace strata;

STRATA_CHIP_ORCHESTRATION(hangs) {
  const KernelId vector = chip.kernel("vector_lane");
  chip.submit(
      chip.mixed(chip.kernel("matrix_lane"), vector, vector).blocks(chip.clusters()).together(),
      inout(chip.tensor(0)), scalar(chip.scalar<std::int64_t>(0)),
      scalar(chip.scalar<std::int64_t>(1)), scalar(chip.scalar<std::int64_t>(2)), named("meets"));
}
