// A vector lane: y = activation(product + bias) for its half of the block's rows. Runs on both AIVs
// of the cluster; each takes its products from a pipe of its own.
#include <array>
#include <cmath>
#include <span>

#include "tiles.hpp"

namespace {

float relu(float v) { return v > 0 ? v : 0; }
float gelu(float v) { return 0.5F * v * (1 + std::erf(v * 0.70710678F)); }

}  // namespace

STRATA_KERNEL(activate) {
  const auto bias = kernel.tensor(2);
  const auto y = kernel.tensor(3);
  const bool use_gelu = kernel.scalar<std::int64_t>(0) != 0;
  const unsigned lane = kernel.vector_lane();
  const tiles::Range rows = tiles::rows_of_lane(tiles::rows_of_block(kernel, y.extent(0)), lane);
  if (rows.size() == 0) return;  // The last block may have one row only.

  std::array<float, tiles::kRows * tiles::kColumns> tile;
  for (std::int64_t column = 0; column < y.extent(1); column += tiles::kColumns) {
    const std::int64_t width = std::min(tiles::kColumns, y.extent(1) - column);
    kernel.pop(tiles::pipe_to(lane),
               std::span(tile.data(), static_cast<std::size_t>(rows.size() * width)));
    const float* next = tile.data();
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      for (std::int64_t j = column; j < column + width; ++j) {
        const float sum = *next++ + bias.at<float>(j);
        y.at<float>(i, j) = use_gelu ? gelu(sum) : relu(sum);
      }
    }
  }
}
