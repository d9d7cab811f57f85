#include <strata/kernel.hpp>

STRATA_KERNEL(meet_vector) { kernel.barrier(); }
