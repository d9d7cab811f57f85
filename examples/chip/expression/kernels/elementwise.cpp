// Elementwise kernels on vectors. One source may define several.
#include <strata/kernel.hpp>

// out = a + b
STRATA_KERNEL(add) {
  const auto a = kernel.tensor(0);
  const auto b = kernel.tensor(1);
  const auto out = kernel.tensor(2);
  for (std::int64_t i = 0; i < out.extent(0); ++i)
    out.at<float>(i) = a.at<float>(i) + b.at<float>(i);
}

// out = a + scalar
STRATA_KERNEL(add_scalar) {
  const auto a = kernel.tensor(0);
  const auto out = kernel.tensor(1);
  const auto term = kernel.scalar<float>(0);
  for (std::int64_t i = 0; i < out.extent(0); ++i)
    out.at<float>(i) = a.at<float>(i) + term;
}

// out = a * b
STRATA_KERNEL(multiply) {
  const auto a = kernel.tensor(0);
  const auto b = kernel.tensor(1);
  const auto out = kernel.tensor(2);
  for (std::int64_t i = 0; i < out.extent(0); ++i)
    out.at<float>(i) = a.at<float>(i) * b.at<float>(i);
}

// total += a
STRATA_KERNEL(accumulate) {
  const auto a = kernel.tensor(0);
  const auto total = kernel.tensor(1);
  for (std::int64_t i = 0; i < total.extent(0); ++i)
    total.at<float>(i) += a.at<float>(i);
}
