// How the lanes of one block share its work: what the matrix lane pushes and what the vector lanes
// expect must be the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <strata/kernel.hpp>

namespace tiles {

inline constexpr std::int64_t kRows = 16;     ///< Rows of y that one block computes.
inline constexpr std::int64_t kColumns = 32;  ///< Columns that go through the pipe at once.

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

/// Rows of y that a block computes ...
inline Range rows_of_block(const strata::Kernel& kernel, std::int64_t rows) {
  const std::int64_t begin = std::int64_t{kernel.block()} * kRows;
  return {begin, std::min(begin + kRows, rows)};
}
/// ... and which of them go to vector lane `lane`: the first half, or the second.
inline Range rows_of_lane(Range block, unsigned lane) {
  const std::int64_t middle = block.begin + (block.size() + 1) / 2;
  return lane == 0 ? Range{block.begin, middle} : Range{middle, block.end};
}

/// Pipe that leads to a vector lane.
constexpr unsigned pipe_to(unsigned lane) { return lane; }

}  // namespace tiles
