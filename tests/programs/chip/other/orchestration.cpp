#include <strata/chip.hpp>

STRATA_CHIP_ORCHESTRATION(other) {}
