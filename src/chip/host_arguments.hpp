// HostArguments: the arguments of a run of a chip program in memory of the host, by value: a copy
// is a fresh set, good for another run.
//
// Thread safety: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strata/task_context.hpp"

namespace strata::chip {

/// Row-major.
struct HostTensor {
  std::string name = {};
  Access access = Access::in;
  DType dtype = DType::uint8;
  std::vector<std::int64_t> shape = {};
  std::vector<std::byte> bytes = {};
  [[nodiscard]] std::uint64_t elements() const noexcept { return bytes.size() / size_of(dtype); }
};

/// Product of the extents, in bytes. Throws InvalidArgument if one is negative or it is too large.
[[nodiscard]] std::size_t bytes_of(DType dtype, std::span<const std::int64_t> shape);

struct HostArguments {
  std::vector<HostTensor> tensors = {};
  std::vector<std::uint64_t> scalars = {};
};

/// As a run takes them. Lives no longer than the arguments, which must not be changed meanwhile.
class HostArgumentBlock {
 public:
  explicit HostArgumentBlock(HostArguments& arguments);
  HostArgumentBlock(const HostArgumentBlock&) = delete;
  HostArgumentBlock& operator=(const HostArgumentBlock&) = delete;
  [[nodiscard]] detail::ArgumentBlock block() const noexcept;

 private:
  const HostArguments& arguments_;
  std::vector<std::vector<std::int64_t>> dims_;
  std::vector<detail::TensorRecord> records_;
};

/// Where two tensors of one type and shape differ, bit by bit.
struct TensorDifference {
  std::vector<std::int64_t> index = {};  ///< Of the first element.
  std::string expected = {};
  std::string found = {};
  std::uint64_t elements = 0;  ///< How many differ.
};
/// `elements` is 0 if none do. Throws InvalidArgument if type or shape differ.
[[nodiscard]] TensorDifference compare_bits(const HostTensor& expected, const HostTensor& found);
/// The same by value: |expected - found| <= tolerance * max(1, |expected|); NaN equals NaN.
[[nodiscard]] TensorDifference compare_values(const HostTensor& expected, const HostTensor& found,
                                              double tolerance);

}  // namespace strata::chip
