// The matrix lane: x times weights for the rows of one block, some columns at a time. Each half of
// the rows goes to one vector lane through a pipe, while the next columns are being multiplied.
#include <array>
#include <span>

#include "tiles.hpp"

namespace {

std::array<float, tiles::kRows * tiles::kColumns> multiply(const strata::KernelTensor& x,
                                                           const strata::KernelTensor& weights,
                                                           tiles::Range rows,
                                                           tiles::Range columns) {
  std::array<float, tiles::kRows * tiles::kColumns> product{};
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    float* const row = &product[static_cast<std::size_t>((i - rows.begin) * columns.size())];
    for (std::int64_t k = 0; k < weights.extent(0); ++k) {
      const float factor = x.at<float>(i, k);
      for (std::int64_t j = columns.begin; j < columns.end; ++j)
        row[j - columns.begin] += factor * weights.at<float>(k, j);
    }
  }
  return product;
}

}  // namespace

STRATA_KERNEL(product) {
  const auto x = kernel.tensor(0);
  const auto weights = kernel.tensor(1);
  const tiles::Range rows = tiles::rows_of_block(kernel, x.extent(0));
  for (std::int64_t column = 0; column < weights.extent(1); column += tiles::kColumns) {
    const tiles::Range columns{column, std::min(column + tiles::kColumns, weights.extent(1))};
    const auto tile = multiply(x, weights, rows, columns);
    const float* next = tile.data();
    for (unsigned lane = 0; lane < 2; ++lane) {
      const std::int64_t size = tiles::rows_of_lane(rows, lane).size() * columns.size();
      if (size > 0) {
        kernel.push(tiles::pipe_to(lane), std::span(next, static_cast<std::size_t>(size)));
      }
      next += size;
    }
  }
}
