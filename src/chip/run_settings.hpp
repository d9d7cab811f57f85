// RunSettings: ChipRunOptions with everything decided: the run's own, else the environment's, else
// the platform's.
//
// Thread safety: plain values and pure functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "strata/chip_run_options.hpp"
#include "strata/platform.hpp"

namespace strata::chip {

struct RunSettings {
  OrchestrationMode mode = OrchestrationMode::device;
  std::size_t window = 0;
  std::size_t heap = 0;
  unsigned threads = 0;  ///< 0: as many as the pool likes.
};

/// What the environment of this process sets (STRATA_CHIP_MODE, _WINDOW, _HEAP, _THREADS). Throws
/// ChipError (bad_configuration) that names the variable.
[[nodiscard]] ChipRunOptions options_of_environment();

[[nodiscard]] RunSettings settings_of(const ChipRunOptions& options,
                                      const ChipRunOptions& environment, const Platform& platform);

}  // namespace strata::chip
