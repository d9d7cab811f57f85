#include "chip/host_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "chip/element_value.hpp"
#include "strata/error.hpp"

namespace strata::chip {
namespace {

std::string type_text(const HostTensor& tensor) {
  return fmt::format("{}[{}]", name_of(tensor.dtype), fmt::join(tensor.shape, ", "));
}

std::vector<std::int64_t> index_of(std::uint64_t element, std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    const auto extent = static_cast<std::uint64_t>(shape[i]);
    index[i] = static_cast<std::int64_t>(element % extent);
    element /= extent;
  }
  return index;
}

template <class Equal>
TensorDifference compare(const HostTensor& expected, const HostTensor& found, const Equal& equal) {
  if (expected.dtype != found.dtype || expected.shape != found.shape) {
    throw InvalidArgument(fmt::format("tensor '{}' is {}, which can't be compared with {}",
                                      found.name, type_text(found), type_text(expected)));
  }
  TensorDifference difference;
  const std::size_t size = size_of(expected.dtype);
  for (std::uint64_t i = 0; i < expected.elements(); ++i) {
    const std::byte* const a = expected.bytes.data() + i * size;
    const std::byte* const b = found.bytes.data() + i * size;
    if (equal(a, b)) continue;
    if (difference.elements++ > 0) continue;
    difference.index = index_of(i, expected.shape);
    difference.expected = element_text(expected.dtype, a);
    difference.found = element_text(expected.dtype, b);
  }
  return difference;
}

}  // namespace

std::size_t bytes_of(DType dtype, std::span<const std::int64_t> shape) {
  std::uint64_t bytes = size_of(dtype);
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes) ||
        bytes > std::uint64_t{1} << 46U) {
      throw InvalidArgument(
          fmt::format("[{}] is no shape that a tensor can have here", fmt::join(shape, ", ")));
    }
  }
  return bytes;
}

HostArgumentBlock::HostArgumentBlock(HostArguments& arguments) : arguments_(arguments) {
  dims_.reserve(arguments.tensors.size());
  records_.reserve(arguments.tensors.size());
  for (HostTensor& tensor : arguments.tensors) {
    std::vector<std::int64_t> dims = tensor.shape;
    dims.resize(2 * tensor.shape.size());
    std::int64_t stride = 1;
    for (std::size_t i = tensor.shape.size(); i-- > 0;) {
      dims[tensor.shape.size() + i] = stride;
      stride *= tensor.shape[i];
    }
    dims_.push_back(std::move(dims));
    records_.push_back({.data = tensor.bytes.data(),
                        .dims = dims_.back().data(),
                        .buffer = {},
                        .byte_offset = 0,
                        .dtype = tensor.dtype,
                        .access = tensor.access,
                        .tracking = Tracking::full,
                        .rank = static_cast<std::uint8_t>(tensor.shape.size()),
                        .flags = 0});
  }
}

detail::ArgumentBlock HostArgumentBlock::block() const noexcept {
  return {.tensors = records_.data(),
          .scalars = arguments_.scalars.data(),
          .tensor_count = static_cast<std::uint32_t>(records_.size()),
          .scalar_count = static_cast<std::uint32_t>(arguments_.scalars.size())};
}

TensorDifference compare_bits(const HostTensor& expected, const HostTensor& found) {
  const std::size_t size = size_of(expected.dtype);
  return compare(expected, found, [size](const std::byte* a, const std::byte* b) {
    return std::memcmp(a, b, size) == 0;
  });
}

TensorDifference compare_values(const HostTensor& expected, const HostTensor& found,
                                double tolerance) {
  const DType dtype = expected.dtype;
  const std::size_t size = size_of(dtype);
  return compare(expected, found, [=](const std::byte* a, const std::byte* b) {
    if (std::memcmp(a, b, size) == 0) return true;
    const double x = element_value(dtype, a);
    const double y = element_value(dtype, b);
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    return std::fabs(x - y) <= tolerance * std::max(1.0, std::fabs(x));
  });
}

}  // namespace strata::chip
