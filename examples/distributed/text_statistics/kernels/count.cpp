// Counts one piece.
#include <strata/kernel.hpp>

#include "../statistics.hpp"

STRATA_KERNEL(count) {
  statistics::count(kernel.data<const unsigned char>(0), kernel.tensor(0).elements(),
                    kernel.scalar<std::int64_t>(0) != 0, kernel.data<std::int64_t>(1));
}
