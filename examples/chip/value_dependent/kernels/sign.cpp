// An eigenvector has no sign of its own: these give it one.
#include <cmath>
#include <strata/kernel.hpp>

// negative = 1 if the component of x that is largest in size is below zero, else 0.
STRATA_KERNEL(sign) {
  const auto x = kernel.tensor(0);
  float largest = 0;
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    if (std::fabs(x.at<float>(i)) > std::fabs(largest)) largest = x.at<float>(i);
  }
  kernel.tensor(1).at<std::int32_t>(0) = largest < 0 ? 1 : 0;
}

// x = -x
STRATA_KERNEL(negate) {
  const auto x = kernel.tensor(0);
  for (std::int64_t i = 0; i < x.extent(0); ++i)
    x.at<float>(i) = -x.at<float>(i);
}
