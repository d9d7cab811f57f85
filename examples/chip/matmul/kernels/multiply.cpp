// Products of tiles, on a matrix core. Tiles are views: their rows lie as far apart as those of the
// whole matrix.
#include <algorithm>
#include <strata/kernel.hpp>

namespace {

/// c += a b. The rows of all three must be contiguous.
void add_product(const strata::KernelTensor& a, const strata::KernelTensor& b,
                 const strata::KernelTensor& c) {
  const std::int64_t columns = c.extent(1);
  for (std::int64_t i = 0; i < c.extent(0); ++i) {
    float* row = &c.at<float>(i);
    for (std::int64_t k = 0; k < a.extent(1); ++k) {
      const float factor = a.at<float>(i, k);
      const float* other = &b.at<float>(k);
      for (std::int64_t j = 0; j < columns; ++j)
        row[j] += factor * other[j];
    }
  }
}

}  // namespace

// c = a b
STRATA_KERNEL(multiply) {
  const auto c = kernel.tensor(2);
  for (std::int64_t i = 0; i < c.extent(0); ++i)
    std::fill_n(&c.at<float>(i), c.extent(1), 0.0F);
  add_product(kernel.tensor(0), kernel.tensor(1), c);
}

// c += a b
STRATA_KERNEL(multiply_add) { add_product(kernel.tensor(0), kernel.tensor(1), kernel.tensor(2)); }
