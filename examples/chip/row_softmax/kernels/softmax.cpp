// Softmax of rows that are divided by columns among the blocks of one task.
//
// Each block writes the maximum of its columns and the sum of their exponentials, per row; at the
// barrier all wait for all; then each block puts the parts together and writes its own columns.
#include <algorithm>
#include <cmath>
#include <strata/kernel.hpp>

namespace {

struct Part {
  float maximum;
  float sum;  ///< Of exp(x - maximum).
};

}  // namespace

STRATA_KERNEL(softmax) {
  const auto x = kernel.tensor(0);
  const auto parts = kernel.tensor(1);  // [blocks, rows, 2]
  const auto y = kernel.tensor(2);
  const std::int64_t rows = x.extent(0);
  const std::int64_t begin = x.extent(1) * kernel.block() / kernel.blocks();
  const std::int64_t end = x.extent(1) * (kernel.block() + 1) / kernel.blocks();

  for (std::int64_t i = 0; i < rows; ++i) {
    Part part{-INFINITY, 0};
    for (std::int64_t j = begin; j < end; ++j)
      part.maximum = std::max(part.maximum, x.at<float>(i, j));
    for (std::int64_t j = begin; j < end; ++j)
      part.sum += std::exp(x.at<float>(i, j) - part.maximum);
    parts.at<float>(kernel.block(), i, 0) = part.maximum;
    parts.at<float>(kernel.block(), i, 1) = part.sum;
  }

  kernel.barrier();

  for (std::int64_t i = 0; i < rows; ++i) {
    Part total{-INFINITY, 0};
    for (std::uint32_t block = 0; block < kernel.blocks(); ++block)
      total.maximum = std::max(total.maximum, parts.at<float>(block, i, 0));
    for (std::uint32_t block = 0; block < kernel.blocks(); ++block) {
      total.sum +=
          parts.at<float>(block, i, 1) * std::exp(parts.at<float>(block, i, 0) - total.maximum);
    }
    for (std::int64_t j = begin; j < end; ++j)
      y.at<float>(i, j) = std::exp(x.at<float>(i, j) - total.maximum) / total.sum;
  }
}
