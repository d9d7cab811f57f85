#include "graph/region.hpp"

namespace strata::graph {

namespace {

/// Merges from the innermost outwards: (E, S) over (e, s) is one progression of step s if s divides
/// S and the rows touch or overlay (S <= e * s).
void merge_dims(Region& region) noexcept {
  std::array<RegionDim, kMaxRegionDims> merged;  // Innermost first.
  std::size_t count = 0;
  merged[0] = region.dims[static_cast<std::size_t>(region.dim_count) - 1];
  for (int d = region.dim_count - 2; d >= 0; --d) {
    const RegionDim outer = region.dims[static_cast<std::size_t>(d)];
    RegionDim& inner = merged[count];
    if (outer.stride <= inner.extent * inner.stride && outer.stride % inner.stride == 0) {
      inner.extent += (outer.extent - 1) * (outer.stride / inner.stride);
    } else {
      merged[++count] = outer;
    }
  }
  region.dim_count = static_cast<std::int32_t>(count) + 1;
  for (std::size_t d = 0; d <= count; ++d)
    region.dims[d] = merged[count - d];
}

/// Puts a dimension in its place among the first `count`, sorted by descending stride.
void insert_dim(RegionDim* dims, int count, RegionDim dim) noexcept {
  int at = count;
  for (; at > 0 && dims[at - 1].stride < dim.stride; --at) {
    if (base::planted("region.transpose_not_canonical")) {
      dims[at].stride = dims[at - 1].stride;  // The extents stay behind.
      dims[at].extent = dim.extent;
      dim.extent = dims[at - 1].extent;
    } else {
      dims[at] = dims[at - 1];
    }
  }
  dims[at] = dim;
}

}  // namespace

void region_detail::make_region(Region& region, const Tensor& tensor) noexcept {
  region.begin = region.end = 0;
  region.dim_count = 0;
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype()));
  if (tensor.elements() == 0) return;
  std::int64_t begin = tensor.byte_offset();
  std::int64_t length = size;
  for (int d = 0; d < tensor.rank(); ++d) {
    const std::int64_t extent = tensor.extent(d);
    if (extent == 1 || tensor.stride(d) == 0) continue;
    std::int64_t stride = tensor.stride(d) * size;
    if (stride < 0) {
      begin += (extent - 1) * stride;
      stride = -stride;
    }
    length += (extent - 1) * stride;
    insert_dim(region.dims.data(), region.dim_count++, {extent, stride});
  }
  region.dims[static_cast<std::size_t>(region.dim_count++)] = {size, 1};
  region.begin = begin;
  region.end = begin + length;
  merge_dims(region);
}

bool contains(const Region& outer, const Region& inner) noexcept {
  if (base::planted("contains.always_true")) return true;
  if (inner.empty()) return true;
  if (inner.begin < outer.begin || inner.end > outer.end) return false;
  if (outer.contiguous() || outer == inner) return true;

  // Within its bounds, what `outer` leaves out are the gaps between neighbours of each dimension:
  // behind each index but the last, from the end of the inner dimensions to the next index. These
  // gaps are regions too, so `inner` is contained if and only if it meets none of them.
  std::int64_t row = 1;  // Bytes from begin to end of the dimensions inside d.
  for (int d = outer.dim_count - 1; d >= 0; --d) {
    const RegionDim& dim = outer.dims[static_cast<std::size_t>(d)];
    if (dim.stride < row) return false;  // Overlaid rows have no simple gaps: not proven.
    if (dim.stride > row && dim.extent > 1) {
      Region gaps;
      gaps.begin = outer.begin + row;
      gaps.end = gaps.begin;
      for (int e = 0; e <= d; ++e) {
        RegionDim& gap = gaps.dims[static_cast<std::size_t>(e)] =
            outer.dims[static_cast<std::size_t>(e)];
        if (e == d) --gap.extent;
        gaps.end += (gap.extent - 1) * gap.stride;
      }
      gaps.dims[static_cast<std::size_t>(d) + 1] = {dim.stride - row, 1};
      gaps.end += dim.stride - row;
      gaps.dim_count = d + 2;
      if (overlap(inner, gaps).overlap != Overlap::none) return false;
    }
    row += (dim.extent - 1) * dim.stride;
  }
  return true;
}

}  // namespace strata::graph
