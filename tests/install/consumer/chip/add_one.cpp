#include <strata/kernel.hpp>

STRATA_KERNEL(add_one) { kernel.data<float>(0)[0] += 1; }
