// One tile of sum = a + b, on a vector core.
#include <strata/kernel.hpp>

STRATA_KERNEL(add) {
  const auto a = kernel.tensor(0);
  const auto b = kernel.tensor(1);
  const auto sum = kernel.tensor(2);
  for (std::int64_t i = 0; i < sum.extent(0); ++i)
    sum.at<float>(i) = a.at<float>(i) + b.at<float>(i);
}
