#include "kernels.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace demo {

namespace {

// A block of the result has kBlock x kBlock elements: eight registers of two doubles each.
constexpr std::int64_t kBlock = 4;

/// Columns [first, first + kBlock) of a tile, one row behind the other; zeros where there are none.
/// Packed like this the innermost loop reads memory in order, whatever the matrix's row length.
void pack(const Tile& a, std::int64_t first, double* packed) {
  const std::int64_t width = std::min(kBlock, a.cols - first);
  for (std::int64_t k = 0; k < a.rows; ++k) {
    const double* row = a.row(k) + first;
    for (std::int64_t i = 0; i < kBlock; ++i)
      packed[k * kBlock + i] = i < width ? row[i] : 0.0;
  }
}

std::vector<double> pack_all(const Tile& a) {
  const std::int64_t panels = (a.cols + kBlock - 1) / kBlock;
  std::vector<double> packed(static_cast<std::size_t>(panels * kBlock * a.rows));
  for (std::int64_t p = 0; p < panels; ++p) {
    pack(a, p * kBlock, packed.data() + p * kBlock * a.rows);
  }
  return packed;
}

/// One block of a^T b, from packed columns of both.
std::array<double, kBlock * kBlock> product(const double* a, const double* b, std::int64_t depth) {
  std::array<double, kBlock * kBlock> sum{};
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t i = 0; i < kBlock; ++i) {
      for (std::int64_t j = 0; j < kBlock; ++j) {
        sum[static_cast<std::size_t>(i * kBlock + j)] += a[k * kBlock + i] * b[k * kBlock + j];
      }
    }
  }
  return sum;
}

/// c = c - a^T b; if `upper`, on and above the diagonal only.
void subtract_product(const Tile& a, const Tile& b, const Tile& c, bool upper) {
  const std::vector<double> packed_a = pack_all(a);
  const std::vector<double> packed_b = upper ? std::vector<double>{} : pack_all(b);
  const double* right = upper ? packed_a.data() : packed_b.data();
  for (std::int64_t i = 0; i < c.rows; i += kBlock) {
    const std::int64_t height = std::min(kBlock, c.rows - i);
    for (std::int64_t j = upper ? i : 0; j < c.cols; j += kBlock) {
      const std::int64_t width = std::min(kBlock, c.cols - j);
      const auto block = product(packed_a.data() + i * a.rows, right + j * a.rows, a.rows);
      for (std::int64_t r = 0; r < height; ++r) {
        for (std::int64_t s = upper && i == j ? r : 0; s < width; ++s) {
          c.row(i + r)[j + s] -= block[static_cast<std::size_t>(r * kBlock + s)];
        }
      }
    }
  }
}

}  // namespace

void potrf(const Tile& a, std::int64_t first) {
  for (std::int64_t k = 0; k < a.rows; ++k) {
    double* pivot_row = a.row(k);
    const double pivot = pivot_row[k];
    if (!(pivot > 0)) {  // Also for a NaN.
      throw NotPositiveDefinite("the matrix is not positive definite: the pivot of row " +
                                std::to_string(first + k) + " is " + std::to_string(pivot));
    }
    const double root = std::sqrt(pivot);
    pivot_row[k] = root;
    for (std::int64_t j = k + 1; j < a.cols; ++j)
      pivot_row[j] /= root;
    for (std::int64_t i = k + 1; i < a.rows; ++i) {
      const double factor = pivot_row[i];
      double* row = a.row(i);
      for (std::int64_t j = i; j < a.cols; ++j)
        row[j] -= factor * pivot_row[j];
    }
  }
}

void trsm(const Tile& u, const Tile& b) {
  for (std::int64_t k = 0; k < b.rows; ++k) {
    double* solved = b.row(k);
    const double pivot = u.row(k)[k];
    for (std::int64_t j = 0; j < b.cols; ++j)
      solved[j] /= pivot;
    for (std::int64_t i = k + 1; i < b.rows; ++i) {
      const double factor = u.row(k)[i];
      double* row = b.row(i);
      for (std::int64_t j = 0; j < b.cols; ++j)
        row[j] -= factor * solved[j];
    }
  }
}

void syrk(const Tile& a, const Tile& c) { subtract_product(a, a, c, /*upper=*/true); }

void gemm(const Tile& a, const Tile& b, const Tile& c) {
  subtract_product(a, b, c, /*upper=*/false);
}

}  // namespace demo
