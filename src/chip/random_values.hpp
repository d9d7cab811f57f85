// Random values for tensors of the host: what `random:SEED` means.
//
// Thread safety: a function of its arguments.
#pragma once

#include <cstdint>

#include "chip/host_arguments.hpp"

namespace strata::chip {

/// Floats in [-1, 1), bits of booleans, small integers. The same for a seed on every machine.
void fill_random(HostTensor& tensor, std::uint64_t seed);

}  // namespace strata::chip
