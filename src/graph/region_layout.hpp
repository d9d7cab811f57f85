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

/// Divides by a fixed number by multiplying with its reciprocal.
class Divisor {
 public:
  Divisor() = default;
  /// Requires 0 < divisor <= 2^62.
  explicit Divisor(std::int64_t divisor) noexcept
      : divisor_(divisor), inverse_((std::int64_t{1} << kShift) / divisor + 1) {}

  [[nodiscard]] std::int64_t value() const noexcept { return divisor_; }

  /// The quotient rounded down, or one off where dividend * divisor is beyond 2^62 or below 0.
  /// Never falls when the dividend rises.
  [[nodiscard]] std::int64_t about(std::int64_t dividend) const noexcept {
    return static_cast<std::int64_t>((static_cast<Product>(dividend) * inverse_) >> kShift);
  }

  /// The quotient rounded down. Requires |dividend| <= 2^62.
  [[nodiscard]] std::int64_t floor(std::int64_t dividend) const noexcept {
    std::int64_t quotient = about(dividend);
    // Unsigned: the product may be beyond 64 bits where the rest is not.
    const auto rest = static_cast<std::int64_t>(static_cast<std::uint64_t>(dividend) -
                                                static_cast<std::uint64_t>(quotient) *
                                                    static_cast<std::uint64_t>(divisor_));
    quotient -= rest < 0 ? 1 : 0;
    quotient += rest >= divisor_ ? 1 : 0;
    return quotient;
  }

 private:
  __extension__ using Product = __int128;
  static constexpr int kShift = 62;
  std::int64_t divisor_ = 1;
  std::int64_t inverse_ = (std::int64_t{1} << kShift) + 1;
};

/// Closed intervals of coordinates; unused ones are [0, 0]. One cache line.
struct alignas(64) LayoutBox {
  static constexpr std::size_t kLevels = 4;
  std::array<std::int64_t, kLevels> low{};
  std::array<std::int64_t, kLevels> high{};

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

/// The box of a region.
struct RegionBox {
  LayoutBox bounds;
  /// A coordinate is wider than it had to be, since the region runs over the end of a row: rows
  /// begin elsewhere than the layout thinks.
  bool wraps = false;
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

  [[nodiscard]] RegionBox box_of(const Region& region) const noexcept {
    RegionBox box;
    find_box(region, box);
    return box;
  }

  /// box_of() into a box that stays where it is: to copy one that was just written is slow.
  void find_box(const Region& region, RegionBox& box) const noexcept {
    box.wraps = false;
    std::int64_t first = region.begin - origin_;      // First byte within the current row, and ...
    std::int64_t length = region.end - region.begin;  // ... bytes from there to the last one.
    std::int64_t row = 0;                             // Coordinates in a row of this level.
    for (std::size_t level = 0; level < count_; ++level) {
      const Divisor& stride = strides_[level];
      const std::int64_t index = stride.floor(first);
      first -= index * stride.value();
      const std::int64_t last = first + length - 1;
      set(box, level, index, last < stride.value() ? index : index + stride.floor(last), row);
      // Dimensions whose stride is a multiple of this one do not move within a row of it.
      length = 1;
      for (int d = region.dim_count - 1; d >= 0; --d) {
        const RegionDim& dim = region.dims[static_cast<std::size_t>(d)];
        if (!multiple(dim.stride, level)) length += (dim.extent - 1) * dim.stride;
      }
      row = rows_[level];
    }
    set(box, count_, first, first + length - 1, row);
    for (std::size_t level = count_ + 1; level < LayoutBox::kLevels; ++level)
      box.bounds.low[level] = box.bounds.high[level] = 0;
  }

 private:
  /// Bounds of one coordinate; a region that runs over the end of its row may be anywhere in it.
  /// `row`: coordinates in one; 0: unbounded.
  static void set(RegionBox& box, std::size_t level, std::int64_t first, std::int64_t last,
                  std::int64_t row) noexcept {
    const bool over = row != 0 && last >= row;
    box.wraps |= over && last - first < row - 1;
    box.bounds.low[level] = over ? 0 : first;
    box.bounds.high[level] = over ? row - 1 : last;
  }

  [[nodiscard]] std::int64_t stride_at(std::size_t level) const noexcept {
    return strides_[level].value();
  }

  /// Is `stride` a multiple of the layout's stride at `level`?
  [[nodiscard]] bool multiple(std::int64_t stride, std::size_t level) const noexcept {
    if (stride < stride_at(level)) return false;
    for (std::size_t i = 0; i <= level; ++i) {
      if (stride_at(i) == stride) return true;  // Spares the division in nearly all cases.
    }
    return stride % stride_at(level) == 0;
  }

  /// Where `stride` stands, or would stand, in the chain.
  [[nodiscard]] std::size_t place_of(std::int64_t stride) const noexcept {
    std::size_t at = 0;
    while (at < count_ && stride_at(at) > stride)
      ++at;
    return at;
  }
  [[nodiscard]] bool has(std::size_t at, std::int64_t stride) const noexcept {
    return at < count_ && stride_at(at) == stride;
  }
  /// Would the chain still be one with `stride` put in at its place?
  [[nodiscard]] bool joins(std::size_t at, std::int64_t stride) const noexcept {
    return (at == count_ || stride % stride_at(at) == 0) &&
           (at == 0 || stride_at(at - 1) % stride == 0);
  }

  bool take(std::int64_t stride) noexcept {
    const std::size_t at = place_of(stride);
    if (has(at, stride) || count_ == kMaxStrides || !joins(at, stride)) return false;
    for (std::size_t i = count_; i > at; --i)
      strides_[i] = strides_[i - 1];
    strides_[at] = Divisor(stride);
    ++count_;
    for (std::size_t i = 0; i < count_; ++i)
      rows_[i] = i + 1 < count_ ? stride_at(i) / stride_at(i + 1) : stride_at(i);
    return true;
  }

  std::array<Divisor, kMaxStrides> strides_;
  std::array<std::int64_t, kMaxStrides> rows_{};  ///< Coordinates of the next level in a stride.
  std::size_t count_ = 0;
  std::int64_t origin_ = 0;
  int shifts_left_ = kMaxShifts;
};

}  // namespace strata::graph
