// Region: the bytes that a tensor argument covers, in one canonical form, and exact overlap of two.
//
// Canonical form: the byte offset of the lowest byte, and dimensions sorted by descending byte
// stride, each with extent >= 2 and a positive stride, with the element's own bytes as the
// innermost dimension, and dimensions that continue or overlay each other merged. Thus all views
// that cover the same bytes by the same lattice (transposed, reversed, other dtype over contiguous
// bytes) are equal.
//
// region_of, reach_of, hash and == run for every tensor of every submitted task, so they are
// inline, divide nothing and leave unused dimensions unwritten.
//
// Thread safety: plain values.
//
// Invariants of a region that region_of made
//   (1) begin and end lie within +-kReachLimit.
//   (2) Strides descend strictly; the last is 1. Every extent is >= 2, save that of the last.
//   (3) An outer stride that the inner one divides is larger than the inner extent * stride.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/planted_fault.hpp"
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

/// No byte of a region lies further than this from its buffer's first byte: the sums and
/// differences of two regions' bounds then fit in 64 bits.
inline constexpr std::int64_t kReachLimit = std::int64_t{1} << 61;

/// Canonical region of a tensor. The tensor's reach must have been checked (no overflow).
/// Broadcast dimensions (stride 0) cover no further bytes and vanish.
[[nodiscard]] Region region_of(const Tensor& tensor) noexcept;

/// Lowest and one-past-highest byte, or a reason why there is none.
struct Reach {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool overflow = false;  ///< The reach goes beyond kReachLimit; begin and end mean nothing.
};
/// A tensor with a zero extent reaches nothing: begin == end.
[[nodiscard]] Reach reach_of(const Tensor& tensor) noexcept;

/// Outcome of an overlap test. `assumed`: could not be decided within bounded effort, so taken as
/// an overlap.
enum class Overlap : std::uint8_t { none, proven, assumed };

/// Which tier decided; for the published hit rates. `boxes`: the strides of both form one chain.
enum class OverlapTier : std::uint8_t { bounds, boxes, search };

struct OverlapResult {
  Overlap overlap;
  OverlapTier tier;
};

/// Do two regions of one buffer share a byte? Exact for boxes of a common layout (a chain of
/// strides, each dividing the one before: row and column blocks, tiles of any rank, constant
/// steps), at any size; beyond that a bounded search over the strides, with gcd and bounds to
/// prune, decides most cases; what it can't decide is `assumed`. Never says `none` for regions that
/// share a byte.
[[nodiscard]] OverlapResult overlap(const Region& a, const Region& b) noexcept;

/// True only if it is proven that every byte of `inner` is in `outer`. May say false for a
/// containment that is hard to prove. Exact for boxes of a common layout. A region that covers
/// nothing is in every region.
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
  [[nodiscard]] std::span<const ByteRange> ranges() const& noexcept { return ranges_; }
  std::span<const ByteRange> ranges() const&& = delete;  ///< Would point into a set that is gone.
  [[nodiscard]] bool intersects(const ByteSet& other) const noexcept;
  /// A set that is not exact claims more bytes than it was given, so subtracting one removes
  /// nothing (and leaves this one inexact): no byte is ever lost.
  void subtract(const ByteSet& other);
  void unite(const ByteSet& other);

 private:
  std::vector<ByteRange> ranges_;
  bool exact_ = true;
};

// ---- Detail: the inline functions
// ----------------------------------------------------------------

namespace region_detail {

/// region_of for any tensor: sorts, turns negative strides, drops strides of zero, merges
/// dimensions that overlay each other. Overwrites `region`.
void make_region(Region& region, const Tensor& tensor) noexcept;

/// Product that wraps: what a dimension without elements claims must not be an overflow.
constexpr std::int64_t wrapping_product(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

/// Sum that wraps; for the same reason.
constexpr std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

__extension__ using Product = unsigned __int128;

/// High and low half of the product of two words, folded: one multiplication mixes two words well.
constexpr std::uint64_t mixed_product(std::uint64_t a, std::uint64_t b) noexcept {
  const Product product = static_cast<Product>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace region_detail

inline std::uint64_t Region::hash() const noexcept {
  // Odd constants from the fractional parts of sqrt(2), sqrt(3), sqrt(5). The products of the
  // dimensions do not wait for each other.
  constexpr std::uint64_t kBegin = 0x6a09e667f3bcc909;
  constexpr std::uint64_t kExtent = 0xbb67ae8584caa73b;
  constexpr std::uint64_t kStride = 0x3c6ef372fe94f82b;
  std::uint64_t sum = 0;
  for (int d = 0; d < dim_count; ++d) {
    const RegionDim& dim = dims[static_cast<std::size_t>(d)];
    sum = std::rotl(sum, 21) +
          region_detail::mixed_product(static_cast<std::uint64_t>(dim.extent) ^ kExtent,
                                       static_cast<std::uint64_t>(dim.stride) ^ kStride);
  }
  return region_detail::mixed_product(sum ^ kStride, static_cast<std::uint64_t>(begin) ^ kBegin);
}

inline bool operator==(const Region& a, const Region& b) noexcept {
  if (a.begin != b.begin || a.end != b.end || a.dim_count != b.dim_count) return false;
  for (int d = 0; d < a.dim_count; ++d) {
    if (a.dims[static_cast<std::size_t>(d)] != b.dims[static_cast<std::size_t>(d)]) return false;
  }
  return true;
}

inline Region region_of(const Tensor& tensor) noexcept {
  // One pass from the outermost dimension inwards, which is the order of a row-major tensor, or the
  // order of its transpose read backwards; anything else is left to the slow path. The dimension at
  // hand stays in registers until the next one is known not to continue it, and nothing that was
  // written is read again.
  Region region;
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype()));
  const int rank = tensor.rank();
  const std::int64_t* extents = tensor.shape().data();
  const std::int64_t* strides = tensor.strides().data();
  std::ptrdiff_t step = 1;
  if (rank > 1 && strides[0] < strides[rank - 1]) {
    extents += rank - 1;
    strides += rank - 1;
    step = -1;
  }
  std::int64_t length = size;
  std::int64_t held_extent = 1;
  std::int64_t held_stride = 0;  // 0: none yet.
  RegionDim* out = region.dims.data();
  bool simple = !base::planted("region.transpose_not_canonical");
  for (int d = 0; d < rank; ++d, extents += step, strides += step) {
    const std::int64_t extent = *extents;
    if (extent <= 1) {
      if (extent == 1) continue;
      return region;  // Covers nothing: begin == end == 0, no dimensions.
    }
    const std::int64_t stride = region_detail::wrapping_product(*strides, size);
    const std::int64_t row = region_detail::wrapping_product(extent, stride);
    length = region_detail::wrapping_sum(
        length, region_detail::wrapping_sum(row, region_detail::wrapping_product(stride, -1)));
    if (held_stride == row) {
      held_extent = region_detail::wrapping_product(held_extent, extent);
    } else {
      simple &= stride > 0 && (held_stride > row || held_stride == 0);
      if (held_stride != 0) *out++ = {held_extent, held_stride};
      held_extent = extent;
    }
    held_stride = stride;
  }
  if (!simple) [[unlikely]] {
    region_detail::make_region(region, tensor);
    return region;
  }
  if (held_stride == size) {
    *out++ = {held_extent * size, 1};
  } else {
    if (held_stride != 0) *out++ = {held_extent, held_stride};
    *out++ = {size, 1};
  }
  region.begin = tensor.byte_offset();
  region.end = region_detail::wrapping_sum(region.begin, length);
  region.dim_count = static_cast<std::int32_t>(out - region.dims.data());
  return region;
}

inline Reach reach_of(const Tensor& tensor) noexcept {
  std::int64_t low = 0;
  std::int64_t high = 0;  // Both in elements, relative to element (0, 0, ...).
  bool overflow = false;
  const int rank = tensor.rank();
  for (int d = 0; d < rank; ++d) {
    const std::int64_t extent = tensor.extent(d);
    if (extent == 0) return {tensor.byte_offset(), tensor.byte_offset(), false};
    std::int64_t reach = 0;
    overflow |= __builtin_mul_overflow(extent - 1, tensor.stride(d), &reach);
    std::int64_t& side = reach < 0 ? low : high;
    overflow |= __builtin_add_overflow(side, reach, &side);
  }
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype()));
  Reach result;
  overflow |= __builtin_mul_overflow(low, size, &low);
  overflow |= __builtin_mul_overflow(high, size, &high);
  overflow |= __builtin_add_overflow(tensor.byte_offset(), low, &result.begin);
  overflow |= __builtin_add_overflow(tensor.byte_offset(), high, &result.end);
  overflow |= __builtin_add_overflow(result.end, size, &result.end);
  result.overflow = overflow || result.begin < -kReachLimit || result.end > kReachLimit;
  return result;
}

}  // namespace strata::graph
