// ArgumentRanges: the memory in which the tensor arguments of a run lie.
//
// Arguments that share bytes, or whose bytes touch, are parts of one range: the engine follows it
// as one buffer, so that a task that writes the one is ordered with a task that reads the other,
// and a platform with memory of its own keeps one copy of it.
//
// Thread safety: one thread at a time.
//
// Invariants
//   (1) Ranges are not empty, disjoint, do not touch, and lie in ascending order.
//   (2) Every byte of every argument is in the range that range_of() names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "strata/task_context.hpp"

namespace strata::chip {

/// Addresses of this process, begin <= address < end.
struct AddressRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  [[nodiscard]] bool empty() const noexcept { return begin == end; }
  [[nodiscard]] std::size_t bytes() const noexcept { return end - begin; }
  [[nodiscard]] std::byte* data() const noexcept {
    return reinterpret_cast<std::byte*>(begin);  // NOLINT(performance-no-int-to-ptr)
  }
  [[nodiscard]] bool contains(const AddressRange& other) const noexcept {
    return begin <= other.begin && other.end <= end;
  }
  [[nodiscard]] bool overlaps(const AddressRange& other) const noexcept {
    return begin < other.end && other.begin < end;
  }
};

/// The bytes that a tensor covers, from the lowest to the highest; nothing if their addresses are
/// beyond what there can be.
[[nodiscard]] std::optional<AddressRange> reach_of(const detail::TensorRecord& tensor) noexcept;

class ArgumentRanges {
 public:
  static constexpr std::int32_t kNone = -1;

  /// Forgets what was there. Throws InvalidArgument that names the program and the argument if one
  /// covers bytes but has no address.
  void assign(const detail::ArgumentBlock& arguments, std::string_view program);

  [[nodiscard]] std::span<const AddressRange> ranges() const noexcept { return ranges_; }
  /// Index of the range that argument i lies in; kNone if it covers nothing.
  [[nodiscard]] std::int32_t range_of(std::size_t argument) const noexcept {
    return range_of_[argument];
  }
  /// Index of the range that all of `wanted` lies in; kNone if there is none.
  [[nodiscard]] std::int32_t find(const AddressRange& wanted) const noexcept;

 private:
  std::vector<AddressRange> reaches_ = {};  ///< Of the arguments.
  std::vector<AddressRange> ranges_ = {};
  std::vector<std::int32_t> range_of_ = {};
};

}  // namespace strata::chip
