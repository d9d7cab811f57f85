#include <strata/chip.hpp>

#include "collectives.hpp"

using namespace strata;

STRATA_CHIP_ORCHESTRATION(collectives) {
  chip.submit(chip.aiv("collective"), in(chip.tensor(0)), in(chip.tensor(1)), inout(chip.tensor(2)),
              scalar(chip.scalar<test::KernelCollective>(0)), scalar(chip.scalar<std::uint64_t>(1)),
              named("collective"));
}
