// ByteSet: the bytes of regions spelled out, for bookkeeping that needs differences.
#include <algorithm>

#include "graph/region.hpp"

namespace strata::graph {
namespace {

/// Appends a range that begins no earlier than the last one, joining what touches.
void append(std::vector<ByteRange>& ranges, ByteRange range) {
  if (!ranges.empty() && range.begin <= ranges.back().end) {
    ranges.back().end = std::max(ranges.back().end, range.end);
  } else {
    ranges.push_back(range);
  }
}

}  // namespace

ByteSet::ByteSet(const Region& region, std::size_t max_ranges) {
  if (region.empty()) return;
  const int outer_dims = region.dim_count - 1;
  std::size_t runs = 1;
  for (int d = 0; d < outer_dims; ++d) {
    const auto extent = static_cast<std::size_t>(region.dims[static_cast<std::size_t>(d)].extent);
    if (__builtin_mul_overflow(runs, extent, &runs) || runs > max_ranges) {
      ranges_.push_back({region.begin, region.end});
      exact_ = false;
      return;
    }
  }
  std::vector<ByteRange> all;
  all.reserve(runs);
  const std::int64_t run = region.dims[static_cast<std::size_t>(outer_dims)].extent;
  std::array<std::int64_t, kMaxRegionDims> index{};
  std::int64_t at = region.begin;
  for (std::size_t i = 0; i < runs; ++i) {
    all.push_back({at, at + run});
    for (int d = outer_dims - 1; d >= 0; --d) {
      const RegionDim& dim = region.dims[static_cast<std::size_t>(d)];
      at += dim.stride;
      if (++index[static_cast<std::size_t>(d)] < dim.extent) break;
      at -= dim.stride * dim.extent;
      index[static_cast<std::size_t>(d)] = 0;
    }
  }
  // Rows that overlay each other come out of order.
  const auto before = [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; };
  if (!std::is_sorted(all.begin(), all.end(), before)) std::sort(all.begin(), all.end(), before);
  for (const ByteRange& range : all)
    append(ranges_, range);
}

bool ByteSet::intersects(const ByteSet& other) const noexcept {
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    if (a->end <= b->begin) {
      ++a;
    } else if (b->end <= a->begin) {
      ++b;
    } else {
      return true;
    }
  }
  return false;
}

void ByteSet::subtract(const ByteSet& other) {
  if (!other.exact_) {
    exact_ = exact_ && !intersects(other);
    return;
  }
  std::vector<ByteRange> left;
  left.reserve(ranges_.size());
  auto hole = other.ranges_.begin();
  for (ByteRange range : ranges_) {
    while (hole != other.ranges_.end() && hole->end <= range.begin)
      ++hole;
    // A hole may reach into the next range too, so it is left for that one to skip.
    for (auto h = hole; h != other.ranges_.end() && h->begin < range.end; ++h) {
      if (range.begin < h->begin) left.push_back({range.begin, h->begin});
      range.begin = std::max(range.begin, h->end);
      if (base::planted("bytes.subtract_off_by_one")) ++range.begin;
    }
    if (range.begin < range.end) left.push_back(range);
  }
  ranges_ = std::move(left);
}

void ByteSet::unite(const ByteSet& other) {
  exact_ = exact_ && other.exact_;
  std::vector<ByteRange> all;
  all.reserve(ranges_.size() + other.ranges_.size());
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() || b != other.ranges_.end()) {
    const bool take_a = b == other.ranges_.end() || (a != ranges_.end() && a->begin <= b->begin);
    append(all, take_a ? *a++ : *b++);
  }
  ranges_ = std::move(all);
}

}  // namespace strata::graph
