// RegionLayout: coordinates in which the regions of one buffer are boxes.
//
// The layout is a chain of strides P0 > P1 > P2, each dividing the one before. A byte x (relative
// to an origin) has the coordinates
//
//     x / P0,  (x mod P0) / P1,  (x mod P1) / P2,  x mod P2
//
// (with fewer strides, fewer coordinates). A region's box holds the coordinates of all its bytes,
// so regions that share a byte have boxes that meet. For a tile of a matrix whose rows lie P0 bytes
// apart, the box is the tile's rows and columns.
//
// Thread safety: plain values.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "graph/region.hpp"

namespace strata::graph {

/// Closed intervals of coordinates; unused ones are [0, 0].
struct LayoutBox {
  static constexpr std::size_t kLevels = 4;
  std::array<std::int64_t, kLevels> low{};
  std::array<std::int64_t, kLevels> high{};
  /// A coordinate is wider than it had to be, since the region runs over the end of a row: rows
  /// begin elsewhere than the layout thinks.
  bool wraps = false;

  [[nodiscard]] bool meets(const LayoutBox& other) const noexcept {
    bool apart = false;
    for (std::size_t i = 0; i < kLevels; ++i) {
      apart |= low[i] > other.high[i];
      apart |= other.low[i] > high[i];
    }
    if (base::planted("index.bounds_off_by_one")) {
      apart |= low[0] == other.high[0] && other.low[0] != high[0];
    }
    return !apart;
  }
  [[nodiscard]] bool same_bounds(const LayoutBox& other) const noexcept {
    return low == other.low && high == other.high;
  }
  void include(const LayoutBox& other) noexcept {
    for (std::size_t i = 0; i < kLevels; ++i) {
      low[i] = std::min(low[i], other.low[i]);
      high[i] = std::max(high[i], other.high[i]);
    }
  }
};

class RegionLayout {
 public:
  static constexpr std::size_t kMaxStrides = LayoutBox::kLevels - 1;
  static constexpr int kMaxShifts = 4;  ///< For one chain; each costs a re-build.

  /// Takes in those of the region's strides (above one byte) that keep the chain a chain, the
  /// outermost first, as far as there is room. True if the layout changed.
  bool extend(const Region& region) noexcept {
    bool changed = false;
    for (int d = 0; d < region.dim_count - 1; ++d) {
      changed |= take(region.dims[static_cast<std::size_t>(d)].stride);
    }
    if (changed) shifts_left_ = kMaxShifts;
    return changed;
  }

  /// Coordinates in use.
  [[nodiscard]] std::size_t levels() const noexcept { return count_ + 1; }

  /// Rows begin at this byte (and at all bytes that are whole rows away from it).
  void set_origin(std::int64_t origin) noexcept { origin_ = origin; }

  /// set_origin(), but not for ever: a few times for each chain. True if that changed the layout.
  bool shift(std::int64_t origin) noexcept {
    if (shifts_left_ > 0) --shifts_left_;
    return std::exchange(origin_, origin) != origin;
  }
  [[nodiscard]] bool may_shift() const noexcept { return shifts_left_ > 0; }

  /// True if the region's strides and the layout's form one chain: the box is then as good as the
  /// four coordinates allow.
  [[nodiscard]] bool fits(const Region& region) const noexcept {
    for (int d = 0; d < region.dim_count - 1; ++d) {
      const std::int64_t stride = region.dims[static_cast<std::size_t>(d)].stride;
      const std::size_t at = place_of(stride);
      if (!has(at, stride) && !joins(at, stride)) return false;
    }
    return true;
  }

  [[nodiscard]] LayoutBox box_of(const Region& region) const noexcept {
    LayoutBox box;
    std::int64_t first = region.begin - origin_;      // First byte within the current row, and ...
    std::int64_t length = region.end - region.begin;  // ... bytes from there to the last one.
    std::int64_t row = 0;                             // Bytes of the current row; 0: unbounded.
    for (std::size_t level = 0; level < count_; ++level) {
      const std::int64_t stride = strides_[level];
      const std::int64_t last = first + length - 1;
      const std::int64_t index = floor_div(first, stride);
      set(box, level, index, first, last, row, stride);
      // Dimensions whose stride is a multiple of this one do not move within a row of it.
      length = 1;
      for (int d = region.dim_count - 1; d >= 0; --d) {
        const RegionDim& dim = region.dims[static_cast<std::size_t>(d)];
        if (!multiple(dim.stride, level)) length += (dim.extent - 1) * dim.stride;
      }
      first -= index * stride;
      row = stride;
    }
    set(box, count_, first, first, first + length - 1, row, 1);
    return box;
  }

 private:
  using Strides = std::array<std::int64_t, kMaxStrides>;

  static std::int64_t floor_div(std::int64_t a, std::int64_t b) noexcept {
    const std::int64_t quotient = a / b;
    return quotient * b > a ? quotient - 1 : quotient;
  }

  /// Bounds of one coordinate; a region that runs over the end of its row may be anywhere in it.
  static void set(LayoutBox& box, std::size_t level, std::int64_t index, std::int64_t first,
                  std::int64_t last, std::int64_t row, std::int64_t stride) noexcept {
    if (row != 0 && last >= row) {
      box.wraps |= last - first < row - 1;
      box.low[level] = 0;
      box.high[level] = stride == 1 ? row - 1 : row / stride - 1;
    } else {
      box.low[level] = index;
      box.high[level] = stride == 1 ? last : floor_div(last, stride);
    }
  }

  /// Is `stride` a multiple of the layout's stride at `level`?
  [[nodiscard]] bool multiple(std::int64_t stride, std::size_t level) const noexcept {
    if (stride < strides_[level]) return false;
    for (std::size_t i = 0; i <= level; ++i) {
      if (strides_[i] == stride) return true;  // Spares the division in nearly all cases.
    }
    return stride % strides_[level] == 0;
  }

  /// Where `stride` stands, or would stand, in the chain.
  [[nodiscard]] std::size_t place_of(std::int64_t stride) const noexcept {
    std::size_t at = 0;
    while (at < count_ && strides_[at] > stride)
      ++at;
    return at;
  }
  [[nodiscard]] bool has(std::size_t at, std::int64_t stride) const noexcept {
    return at < count_ && strides_[at] == stride;
  }
  /// Would the chain still be one with `stride` put in at its place?
  [[nodiscard]] bool joins(std::size_t at, std::int64_t stride) const noexcept {
    return (at == count_ || stride % strides_[at] == 0) &&
           (at == 0 || strides_[at - 1] % stride == 0);
  }

  bool take(std::int64_t stride) noexcept {
    const std::size_t at = place_of(stride);
    if (has(at, stride) || count_ == kMaxStrides || !joins(at, stride)) return false;
    for (std::size_t i = count_; i > at; --i)
      strides_[i] = strides_[i - 1];
    strides_[at] = stride;
    ++count_;
    return true;
  }

  Strides strides_{};
  std::size_t count_ = 0;
  std::int64_t origin_ = 0;
  int shifts_left_ = kMaxShifts;
};

}  // namespace strata::graph
