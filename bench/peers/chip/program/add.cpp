#include <strata/kernel.hpp>

STRATA_KERNEL(add) {
  const float* const a = kernel.data<float>(0);
  const float* const b = kernel.data<float>(1);
  float* const out = kernel.data<float>(2);
  for (std::int64_t i = 0; i < kernel.tensor(2).extent(0); ++i)
    out[i] = a[i] + b[i];
}
