#include <strata/chip.hpp>

#include "ranks.hpp"

using namespace strata;

STRATA_CHIP_ORCHESTRATION(ranks) {
  constexpr const char* kKernels[] = {"pass_on",         "sum_up",    "sum_for_ever",
                                      "wait_for_signal", "tell_next", "stay_away"};
  const char* const kernel = kKernels[static_cast<std::size_t>(chip.scalar<std::int64_t>(0))];
  chip.submit(chip.aiv(kernel), in(chip.tensor(0)), inout(chip.tensor(1)),
              scalar(chip.scalar<std::int64_t>(1)), named(kernel));
}
