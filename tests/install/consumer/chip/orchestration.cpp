#include <strata/chip.hpp>

STRATA_CHIP_ORCHESTRATION(consumer) { chip.submit(chip.aiv("add_one"), inout(chip.tensor(0))); }
