#include "chip/staging.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "graph/region.hpp"
#include "strata/chip_error.hpp"

namespace strata::chip {

namespace {

/// Copies begin where the originals do, counted from a multiple of this: what a kernel finds
/// aligned in place is aligned in the copy.
constexpr std::uintptr_t kAlignment = 64;

/// The bytes of an argument, counted from the first of its range.
graph::Region region_of(const detail::TensorRecord& tensor, std::uintptr_t range_begin) {
  const auto rank = std::size_t{tensor.rank};
  const auto offset =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.data) - range_begin);
  return graph::region_of(
      Tensor(BufferId{1}, offset, tensor.dtype, {tensor.dims, rank}, {tensor.dims + rank, rank}));
}

/// Copies the bytes of a region from one copy of a range to another.
void copy_region(const graph::Region& region, const std::byte* from, std::byte* to) {
  if (region.empty()) return;
  const auto outer = static_cast<std::size_t>(region.dim_count - 1);
  const auto run = static_cast<std::size_t>(region.dims[outer].extent);  // Bytes in one piece.
  std::array<std::int64_t, graph::kMaxRegionDims> index{};
  std::int64_t at = region.begin;
  for (;;) {
    std::memcpy(to + at, from + at, run);
    std::size_t d = outer;
    while (d != 0 && index[d - 1] + 1 == region.dims[d - 1].extent) {
      at -= index[d - 1] * region.dims[d - 1].stride;
      index[d - 1] = 0;
      --d;
    }
    if (d == 0) return;
    ++index[d - 1];
    at += region.dims[d - 1].stride;
  }
}

}  // namespace

void Staging::copy_in(const detail::ArgumentBlock& arguments, const ArgumentRanges& ranges,
                      std::span<const AddressRange> on_chip, std::string_view program) {
  places_.clear();
  // First as offsets: the memory may move.
  std::size_t needed = 0;
  for (const AddressRange& range : ranges.ranges()) {
    const bool there = std::any_of(on_chip.begin(), on_chip.end(), [&](const AddressRange& memory) {
      return memory.contains(range);
    });
    if (there) {
      places_.push_back(range.data());
      continue;
    }
    needed = (needed + kAlignment - 1) / kAlignment * kAlignment + range.begin % kAlignment;
    places_.push_back(nullptr);
    needed += range.bytes();
  }
  if (needed > capacity_) {
    throw ChipError(ErrorCode::out_of_chip_memory,
                    fmt::format("the arguments of chip program '{}' take {} bytes on the chip, "
                                "which has {}; give it fewer at a time, or a larger memory to the "
                                "platform (memory=...)",
                                program, needed, capacity_));
  }
  if (memory_.size() < needed) memory_ = os::Mapping::anonymous(needed);
  std::size_t at = 0;
  for (std::size_t r = 0; r < places_.size(); ++r) {
    if (places_[r] != nullptr) continue;
    const AddressRange& range = ranges.ranges()[r];
    at = (at + kAlignment - 1) / kAlignment * kAlignment + range.begin % kAlignment;
    places_[r] = memory_.data() + at;
    at += range.bytes();
  }
  for (std::uint32_t i = 0; i < arguments.tensor_count; ++i) {
    const std::int32_t r = ranges.range_of(i);
    if (r == ArgumentRanges::kNone || arguments.tensors[i].access == Access::out) continue;
    const auto range = static_cast<std::size_t>(r);
    const std::byte* const host = ranges.ranges()[range].data();
    if (host == places_[range]) continue;
    copy_region(region_of(arguments.tensors[i], ranges.ranges()[range].begin), host,
                places_[range]);
  }
}

void Staging::copy_out(const detail::ArgumentBlock& arguments, const ArgumentRanges& ranges) const {
  for (std::uint32_t i = 0; i < arguments.tensor_count; ++i) {
    const std::int32_t r = ranges.range_of(i);
    if (r == ArgumentRanges::kNone || arguments.tensors[i].access == Access::in) continue;
    const auto range = static_cast<std::size_t>(r);
    std::byte* const host = ranges.ranges()[range].data();
    if (host == places_[range]) continue;
    copy_region(region_of(arguments.tensors[i], ranges.ranges()[range].begin), places_[range],
                host);
  }
}

}  // namespace strata::chip
