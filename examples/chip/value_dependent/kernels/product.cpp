// Some rows of y = A x.
#include <strata/kernel.hpp>

STRATA_KERNEL(product) {
  const auto rows = kernel.tensor(0);
  const auto x = kernel.tensor(1);
  const auto y = kernel.tensor(2);
  for (std::int64_t i = 0; i < rows.extent(0); ++i) {
    float sum = 0;
    for (std::int64_t j = 0; j < rows.extent(1); ++j)
      sum += rows.at<float>(i, j) * x.at<float>(j);
    y.at<float>(i) = sum;
  }
}
