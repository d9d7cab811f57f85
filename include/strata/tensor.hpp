// Tensor: a strided view of a buffer, a plain value.
//
// A tensor owns nothing. It names a buffer, a byte offset into it, an element type, and up to eight
// dimensions, each with an extent and a stride in elements. Views (slice, tile, transpose, ...) are
// new tensors over the same buffer; none of them touches memory.
//
// Thread safety: a value type; distinct objects may be used from distinct threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "strata/dtype.hpp"
#include "strata/ids.hpp"

namespace strata {

/// How the engine follows a tensor. The weaker modes exist for programs whose tasks meet through
/// memory on purpose, where an extra edge would be a deadlock.
enum class Tracking : std::uint8_t {
  full,          ///< Every hazard with every other access of the same bytes.
  creator_only,  ///< Wait for the task that allocated the storage and for nothing else.
  no_dep,        ///< As creator_only, and a write is not recorded: nobody waits for it either.
};

namespace graph {
struct TensorAccess;
}

inline constexpr int kMaxRank = 8;

class Tensor {
 public:
  /// A tensor of no elements and no buffer; of use only to be assigned to.
  Tensor() = default;

  /// A tensor that has no storage yet: row-major, given memory from the engine's heap by the first
  /// task that takes it as `out`. Throws InvalidArgument for a negative or overflowing size or a
  /// rank above kMaxRank.
  Tensor(DType dtype, std::span<const std::int64_t> shape);
  Tensor(DType dtype, std::initializer_list<std::int64_t> shape)
      : Tensor(dtype, std::span(shape.begin(), shape.size())) {}

  /// A tensor over `buffer`. Strides are in elements and may be zero or negative; what they reach
  /// is checked against the buffer when the tensor is submitted.
  Tensor(BufferId buffer, std::int64_t byte_offset, DType dtype,
         std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);
  /// The same with row-major strides.
  Tensor(BufferId buffer, std::int64_t byte_offset, DType dtype,
         std::span<const std::int64_t> shape);

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] std::span<const std::int64_t> shape() const noexcept {
    return {shape_, static_cast<std::size_t>(rank_)};
  }
  [[nodiscard]] std::span<const std::int64_t> strides() const noexcept {
    return {strides_, static_cast<std::size_t>(rank_)};
  }
  [[nodiscard]] std::int64_t extent(int dim) const noexcept { return shape_[dim]; }
  [[nodiscard]] std::int64_t stride(int dim) const noexcept { return strides_[dim]; }
  /// Bytes from the buffer's first byte to this tensor's element (0, 0, ...).
  [[nodiscard]] std::int64_t byte_offset() const noexcept { return byte_offset_; }
  [[nodiscard]] BufferId buffer() const noexcept { return buffer_; }
  [[nodiscard]] bool has_storage() const noexcept { return static_cast<bool>(buffer_); }
  [[nodiscard]] Tracking tracking() const noexcept { return tracking_; }

  /// Product of the extents; 1 for a rank of zero.
  [[nodiscard]] std::int64_t elements() const noexcept;
  /// elements() times the element size.
  [[nodiscard]] std::int64_t bytes() const noexcept;
  /// True if the elements lie one behind the other in row-major order.
  [[nodiscard]] bool contiguous() const noexcept;

  /// Elements start, start + step, ... below `stop` of dimension `dim`; step >= 1.
  [[nodiscard]] Tensor slice(int dim, std::int64_t start, std::int64_t stop,
                             std::int64_t step = 1) const;
  /// The box that begins at `start` and has `size` elements in each dimension.
  [[nodiscard]] Tensor tile(std::initializer_list<std::int64_t> start,
                            std::initializer_list<std::int64_t> size) const {
    return tile(std::span(start.begin(), start.size()), std::span(size.begin(), size.size()));
  }
  [[nodiscard]] Tensor tile(std::span<const std::int64_t> start,
                            std::span<const std::int64_t> size) const;
  /// Fixes dimension `dim` at `index` and drops it.
  [[nodiscard]] Tensor select(int dim, std::int64_t index) const;
  /// Swaps two dimensions.
  [[nodiscard]] Tensor transpose(int a, int b) const;
  /// Reorders the dimensions: result dimension i is this tensor's dimension order[i].
  [[nodiscard]] Tensor permute(std::span<const int> order) const;
  [[nodiscard]] Tensor permute(std::initializer_list<int> order) const {
    return permute(std::span(order.begin(), order.size()));
  }
  /// The same elements with another shape. Throws InvalidArgument unless contiguous().
  [[nodiscard]] Tensor reshape(std::span<const std::int64_t> shape) const;
  [[nodiscard]] Tensor reshape(std::initializer_list<std::int64_t> shape) const {
    return reshape(std::span(shape.begin(), shape.size()));
  }
  /// The same bytes as another element type of the same size. Throws InvalidArgument otherwise.
  [[nodiscard]] Tensor as(DType dtype) const;
  /// The same tensor followed in another way, in every task that takes it.
  [[nodiscard]] Tensor tracked(Tracking tracking) const noexcept {
    Tensor copy = *this;
    copy.tracking_ = tracking;
    return copy;
  }

  /// "float32[4, 8] strides [8, 1] at byte 64 of buffer 3", for messages.
  [[nodiscard]] std::string to_string() const;

 private:
  friend struct graph::TensorAccess;
  BufferId buffer_;
  std::int64_t byte_offset_ = 0;
  DType dtype_ = DType::uint8;
  Tracking tracking_ = Tracking::full;
  std::uint8_t rank_ = 0;
  std::int64_t shape_[kMaxRank] = {};
  std::int64_t strides_[kMaxRank] = {};
};

}  // namespace strata
