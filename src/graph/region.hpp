// Region: the bytes that a tensor argument covers, in one canonical form, and exact overlap of two.
//
// Canonical form: the byte offset of the lowest byte, and dimensions sorted by descending byte
// stride, each with extent >= 2 and a positive stride, with the element's own bytes as the innermost
// dimension, and dimensions that continue each other merged. Thus all views that cover the same
// bytes by the same lattice (transposed, reversed, other dtype over contiguous bytes) are equal.
//
// Thread safety: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "strata/tensor.hpp"

namespace strata::graph {

/// One canonical dimension: `extent` steps of `stride` bytes.
struct RegionDim {
  std::int64_t extent;
  std::int64_t stride;
  friend bool operator==(const RegionDim&, const RegionDim&) = default;
};

/// At most kMaxRank dimensions of the tensor and one for the bytes of an element.
inline constexpr int kMaxRegionDims = kMaxRank + 1;

struct Region {
  std::int64_t begin = 0;  ///< Lowest byte covered.
  std::int64_t end = 0;    ///< One past the highest byte covered; begin == end: covers nothing.
  std::int32_t dim_count = 0;
  /// Only the first dim_count are meaningful. The innermost has stride 1 (a run of bytes); an
  /// empty region has dim_count 0.
  std::array<RegionDim, kMaxRegionDims> dims;

  [[nodiscard]] bool empty() const noexcept { return begin == end; }
  [[nodiscard]] bool contiguous() const noexcept { return dim_count == 1; }
  [[nodiscard]] std::uint64_t hash() const noexcept;
  friend bool operator==(const Region& a, const Region& b) noexcept;
};

/// Canonical region of a tensor. The tensor's reach must have been checked (no overflow).
/// Broadcast dimensions (stride 0) cover no further bytes and vanish.
[[nodiscard]] Region region_of(const Tensor& tensor) noexcept;

/// Lowest and one-past-highest byte, or a reason why there is none.
struct Reach {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool overflow = false;  ///< The reach does not fit in 63 bits.
};
[[nodiscard]] Reach reach_of(const Tensor& tensor) noexcept;

/// Outcome of an overlap test. `assumed`: could not be decided within bounded effort, so taken as an
/// overlap.
enum class Overlap : std::uint8_t { none, proven, assumed };

/// Which tier decided; for the published hit rates.
enum class OverlapTier : std::uint8_t { bounds, boxes, search };

struct OverlapResult {
  Overlap overlap;
  OverlapTier tier;
};

/// Do two regions of one buffer share a byte? Exact for boxes of a common layout (a chain of
/// strides, each dividing the one before: row and column blocks, tiles of any rank, constant steps),
/// at any size; beyond that a bounded search over the strides, with gcd and bounds to prune, decides
/// most cases; what it can't decide is `assumed`. Never says `none` for regions that share a byte.
[[nodiscard]] OverlapResult overlap(const Region& a, const Region& b) noexcept;

/// True only if it is proven that every byte of `inner` is in `outer`. May say false for a
/// containment that is hard to prove. Exact for boxes of a common layout.
[[nodiscard]] bool contains(const Region& outer, const Region& inner) noexcept;

/// A half-open range of bytes.
struct ByteRange {
  std::int64_t begin;
  std::int64_t end;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// A set of bytes as disjoint, sorted, non-adjacent ranges.
class ByteSet {
 public:
  ByteSet() = default;
  /// The bytes of a region. A region of more than `max_ranges` runs is widened to its bounds and
  /// `exact()` turns false.
  explicit ByteSet(const Region& region, std::size_t max_ranges = kDefaultMaxRanges);

  static constexpr std::size_t kDefaultMaxRanges = 65536;

  [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }
  [[nodiscard]] bool exact() const noexcept { return exact_; }
  [[nodiscard]] std::span<const ByteRange> ranges() const noexcept { return ranges_; }
  [[nodiscard]] bool intersects(const ByteSet& other) const noexcept;
  void subtract(const ByteSet& other);
  void unite(const ByteSet& other);

 private:
  std::vector<ByteRange> ranges_;
  bool exact_ = true;
};

}  // namespace strata::graph
