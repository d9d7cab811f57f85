// Tile kernels of the Cholesky factorisation A = U^T U of a row-major matrix (U upper triangular).
//
// Plain loops, written so that the compiler keeps a block of the result in vector registers. They
// are here to make the demo independent of how fast the installed BLAS is; use a BLAS for real
// work.
//
// Thread safety: each function may run on any number of threads at once, on tiles of their own.
#pragma once

#include <cstdint>
#include <stdexcept>

namespace demo {

/// A tile: `rows` x `cols` elements, rows `stride` elements apart.
struct Tile {
  double* data;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t stride;
  [[nodiscard]] double* row(std::int64_t i) const noexcept { return data + i * stride; }
};

/// The matrix is not positive definite.
class NotPositiveDefinite : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// a = U with U^T U = a; only the upper triangle is read and written. `first` is the matrix's row
/// in which the tile begins, for the message if the matrix is not positive definite.
void potrf(const Tile& a, std::int64_t first);
/// b = U^-T b, with U the upper triangle of u.
void trsm(const Tile& u, const Tile& b);
/// c = c - a^T a, upper triangle only.
void syrk(const Tile& a, const Tile& c);
/// c = c - a^T b.
void gemm(const Tile& a, const Tile& b, const Tile& c);

}  // namespace demo
