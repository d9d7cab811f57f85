#include <strata/kernel.hpp>

STRATA_KERNEL(meet_cube) { kernel.barrier(); }
