#include "chip/argument_ranges.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "strata/error.hpp"

namespace strata::chip {

std::optional<AddressRange> reach_of(const detail::TensorRecord& tensor) noexcept {
  const auto start = reinterpret_cast<std::uintptr_t>(tensor.data);
  for (int d = 0; d < tensor.rank; ++d) {
    if (tensor.dims[d] == 0) return AddressRange{start, start};
  }
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  std::int64_t below = 0;
  std::int64_t above = size;
  for (int d = 0; d < tensor.rank; ++d) {
    std::int64_t steps = 0;
    if (__builtin_mul_overflow(tensor.dims[d] - 1, tensor.dims[tensor.rank + d], &steps) ||
        __builtin_mul_overflow(steps, size, &steps) ||
        __builtin_add_overflow(steps < 0 ? below : above, steps, steps < 0 ? &below : &above)) {
      return std::nullopt;
    }
  }
  // Unsigned from here on: below is at most zero.
  const auto down = static_cast<std::uintptr_t>(-below);
  AddressRange reach;
  if (start < down ||
      __builtin_add_overflow(start, static_cast<std::uintptr_t>(above), &reach.end)) {
    return std::nullopt;
  }
  reach.begin = start - down;
  return reach;
}

void ArgumentRanges::assign(const detail::ArgumentBlock& arguments, std::string_view program) {
  reaches_.clear();
  ranges_.clear();
  range_of_.assign(arguments.tensor_count, kNone);
  for (std::uint32_t i = 0; i < arguments.tensor_count; ++i) {
    const detail::TensorRecord& tensor = arguments.tensors[i];
    const std::optional<AddressRange> reach = reach_of(tensor);
    if (!reach || (tensor.data == nullptr && !reach->empty())) {
      throw InvalidArgument(fmt::format(
          "chip program '{}': tensor argument {} {}", program, i,
          reach ? "has no address in the chip's process" : "reaches beyond the address space"));
    }
    reaches_.push_back(*reach);
    if (!reach->empty()) ranges_.push_back(*reach);
  }
  std::sort(ranges_.begin(), ranges_.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.begin < b.begin; });
  // What overlaps or touches the range before it becomes part of that.
  std::size_t kept = 0;
  for (const AddressRange& next : ranges_) {
    if (kept != 0 && next.begin <= ranges_[kept - 1].end) {
      ranges_[kept - 1].end = std::max(ranges_[kept - 1].end, next.end);
    } else {
      ranges_[kept++] = next;
    }
  }
  ranges_.resize(kept);
  for (std::size_t i = 0; i < reaches_.size(); ++i) {
    if (!reaches_[i].empty()) range_of_[i] = find(reaches_[i]);
  }
}

std::int32_t ArgumentRanges::find(const AddressRange& wanted) const noexcept {
  const auto behind = std::upper_bound(
      ranges_.begin(), ranges_.end(), wanted.begin,
      [](std::uintptr_t address, const AddressRange& range) { return address < range.begin; });
  if (behind == ranges_.begin() || !(behind - 1)->contains(wanted)) return kNone;
  return static_cast<std::int32_t>(behind - ranges_.begin() - 1);
}

}  // namespace strata::chip
