#include "strata/tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "strata/error.hpp"

namespace strata {
namespace {

using Extents = std::span<const std::int64_t>;

/// "[4, 8]". Not fmt::join, in which g++ 12 at -O3 sees an overflow that is none.
template <class Number>
std::string list(std::span<const Number> values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(values[i]);
  }
  return text + "]";
}

/// Refuses a rank above kMaxRank, negative extents and more bytes than 63 bits can count. Zero
/// extents count as one, so that row-major strides fit as well.
void check_shape(DType dtype, Extents shape) {
  if (shape.size() > kMaxRank) {
    throw InvalidArgument(
        fmt::format("a tensor of shape {} has {} dimensions; at most {} are allowed", list(shape),
                    shape.size(), kMaxRank));
  }
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 0) {
      throw InvalidArgument(fmt::format("dimension {} of shape {} has the negative extent {}", d,
                                        list(shape), shape[d]));
    }
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(shape[d], 1), &bytes)) {
      throw InvalidArgument(fmt::format(
          "a tensor of shape {} and type {} overflows: with dimension {} (extent {}) it "
          "has more than {} bytes",
          list(shape), name_of(dtype), d, shape[d], std::numeric_limits<std::int64_t>::max()));
    }
  }
}

/// Requires a checked shape.
void set_row_major(Extents shape, std::int64_t* strides) {
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<std::int64_t>(shape[d], 1);
  }
}

/// A view is tied to bytes, so there must be some.
void check_storage(const Tensor& tensor, std::string_view what) {
  if (!tensor.has_storage()) {
    throw InvalidArgument(
        fmt::format("{} of {}: it has no storage yet; take views of the tensor that has been given "
                    "storage by its first task",
                    what, tensor.to_string()));
  }
}

void check_dim(const Tensor& tensor, int dim, std::string_view what) {
  if (dim < 0 || dim >= tensor.rank()) {
    throw InvalidArgument(fmt::format("{} dimension {} of {}: it has {} dimensions", what, dim,
                                      tensor.to_string(), tensor.rank()));
  }
}

/// Byte offset of element `index` of dimension `dim`, all other indices being zero.
std::int64_t offset_of(const Tensor& tensor, int dim, std::int64_t index) {
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype()));
  std::int64_t offset = 0;
  if (__builtin_mul_overflow(tensor.stride(dim), index, &offset) ||
      __builtin_mul_overflow(offset, size, &offset) ||
      __builtin_add_overflow(offset, tensor.byte_offset(), &offset)) {
    throw InvalidArgument(fmt::format("index {} of dimension {} of {}: its byte offset overflows",
                                      index, dim, tensor.to_string()));
  }
  return offset;
}

}  // namespace

std::string_view name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::boolean:
      return "bool";
    case DType::int8:
      return "int8";
    case DType::uint8:
      return "uint8";
    case DType::int16:
      return "int16";
    case DType::uint16:
      return "uint16";
    case DType::int32:
      return "int32";
    case DType::uint32:
      return "uint32";
    case DType::int64:
      return "int64";
    case DType::uint64:
      return "uint64";
    case DType::float16:
      return "float16";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::float8_e4m3:
      return "float8_e4m3";
    case DType::float8_e8m0:
      return "float8_e8m0";
    case DType::float4_e2m1x2:
      return "float4_e2m1x2";
  }
  return "unknown type";
}

Tensor::Tensor(DType dtype, Extents shape) : Tensor(BufferId{}, 0, dtype, shape) {}

Tensor::Tensor(BufferId buffer, std::int64_t byte_offset, DType dtype, Extents shape)
    : buffer_(buffer), byte_offset_(byte_offset), dtype_(dtype) {
  check_shape(dtype, shape);
  rank_ = static_cast<std::uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), shape_);
  set_row_major(shape, strides_);
}

Tensor::Tensor(BufferId buffer, std::int64_t byte_offset, DType dtype, Extents shape,
               Extents strides)
    : buffer_(buffer), byte_offset_(byte_offset), dtype_(dtype) {
  check_shape(dtype, shape);
  if (shape.size() != strides.size()) {
    throw InvalidArgument(fmt::format("shape {} has {} dimensions but strides {} has {}",
                                      list(shape), shape.size(), list(strides), strides.size()));
  }
  rank_ = static_cast<std::uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), shape_);
  std::copy(strides.begin(), strides.end(), strides_);
}

std::int64_t Tensor::elements() const noexcept {
  // Can't overflow: the constructors checked, and views only shrink.
  std::int64_t count = 1;
  for (const std::int64_t extent : shape())
    count *= extent;
  return count;
}

std::int64_t Tensor::bytes() const noexcept {
  return elements() * static_cast<std::int64_t>(size_of(dtype_));
}

bool Tensor::contiguous() const noexcept {
  if (elements() == 0) return true;
  std::int64_t expected = 1;
  for (int d = rank_ - 1; d >= 0; --d) {
    if (shape_[d] == 1) continue;
    if (strides_[d] != expected) return false;
    expected *= shape_[d];
  }
  return true;
}

Tensor Tensor::slice(int dim, std::int64_t start, std::int64_t stop, std::int64_t step) const {
  check_storage(*this, "slice");
  check_dim(*this, dim, "slice of");
  if (step < 1) {
    throw InvalidArgument(
        fmt::format("slice of dimension {} of {}: step {} is below 1", dim, to_string(), step));
  }
  Tensor result = *this;
  if (start == stop) {
    // It covers nothing, so it doesn't matter where that is.
    result.shape_[dim] = 0;
    return result;
  }
  if (start < 0 || stop < start || stop > shape_[dim]) {
    throw InvalidArgument(
        fmt::format("slice [{}, {}) of dimension {} of {}: not within its extent [0, {})", start,
                    stop, dim, to_string(), shape_[dim]));
  }
  result.byte_offset_ = offset_of(*this, dim, start);
  const std::int64_t length = stop - start;
  result.shape_[dim] = length / step + (length % step != 0 ? 1 : 0);
  // A single element needs no stride; so a step beyond the end can't overflow it.
  if (result.shape_[dim] > 1 &&
      __builtin_mul_overflow(strides_[dim], step, &result.strides_[dim])) {
    throw InvalidArgument(
        fmt::format("slice of dimension {} of {}: stride {} times step {} overflows", dim,
                    to_string(), strides_[dim], step));
  }
  return result;
}

Tensor Tensor::tile(Extents start, Extents size) const {
  check_storage(*this, "tile");
  const auto rank = static_cast<std::size_t>(rank_);
  if (start.size() != rank || size.size() != rank) {
    throw InvalidArgument(fmt::format("tile at {} of size {} of {}: it has {} dimensions",
                                      list(start), list(size), to_string(), rank));
  }
  Tensor result = *this;
  const auto is_zero = [](std::int64_t extent) { return extent == 0; };
  const auto is_negative = [](std::int64_t extent) { return extent < 0; };
  if (std::any_of(size.begin(), size.end(), is_zero) &&
      std::none_of(size.begin(), size.end(), is_negative)) {
    check_shape(dtype_, size);
    std::copy(size.begin(), size.end(), result.shape_);
    return result;  // As an empty slice.
  }
  for (int d = 0; d < rank_; ++d) {
    const auto i = static_cast<std::size_t>(d);
    // In this order so that no sum can overflow.
    if (start[i] < 0 || start[i] > shape_[d] || size[i] < 0 || size[i] > shape_[d] - start[i]) {
      throw InvalidArgument(fmt::format(
          "tile at {} of size {} of {}: dimension {} starts at {} with {} elements, not within its "
          "extent {}",
          list(start), list(size), to_string(), d, start[i], size[i], shape_[d]));
    }
    result.byte_offset_ = offset_of(result, d, start[i]);
    result.shape_[d] = size[i];
  }
  return result;
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  check_storage(*this, "select");
  check_dim(*this, dim, "select of");
  if (index < 0 || index >= shape_[dim]) {
    throw InvalidArgument(fmt::format("select of index {} of dimension {} of {}: its extent is {}",
                                      index, dim, to_string(), shape_[dim]));
  }
  Tensor result = *this;
  result.byte_offset_ = offset_of(*this, dim, index);
  std::copy(shape_ + dim + 1, shape_ + rank_, result.shape_ + dim);
  std::copy(strides_ + dim + 1, strides_ + rank_, result.strides_ + dim);
  --result.rank_;
  result.shape_[result.rank_] = 0;
  result.strides_[result.rank_] = 0;
  return result;
}

Tensor Tensor::transpose(int a, int b) const {
  check_storage(*this, "transpose");
  check_dim(*this, a, "transpose of");
  check_dim(*this, b, "transpose of");
  Tensor result = *this;
  std::swap(result.shape_[a], result.shape_[b]);
  std::swap(result.strides_[a], result.strides_[b]);
  return result;
}

Tensor Tensor::permute(std::span<const int> order) const {
  check_storage(*this, "permute");
  std::array<bool, kMaxRank> seen{};
  Tensor result = *this;
  if (order.size() != static_cast<std::size_t>(rank_)) {
    throw InvalidArgument(fmt::format("permute of {} by {}: it has {} dimensions, not {}",
                                      to_string(), list(order), rank_, order.size()));
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    check_dim(*this, order[i], "permute of");
    bool& was_seen = seen[static_cast<std::size_t>(order[i])];
    if (was_seen) {
      throw InvalidArgument(fmt::format("permute of {} by {}: dimension {} comes twice",
                                        to_string(), list(order), order[i]));
    }
    was_seen = true;
    result.shape_[i] = shape_[order[i]];
    result.strides_[i] = strides_[order[i]];
  }
  return result;
}

Tensor Tensor::reshape(Extents shape) const {
  Tensor result(buffer_, byte_offset_, dtype_, shape);
  result.tracking_ = tracking_;
  if (result.elements() != elements()) {
    throw InvalidArgument(fmt::format("reshape of {} to {}: it has {} elements, not {}",
                                      to_string(), list(shape), elements(), result.elements()));
  }
  if (!contiguous()) {
    throw InvalidArgument(
        fmt::format("reshape of {} to {}: its elements do not lie one behind the other",
                    to_string(), list(shape)));
  }
  return result;
}

Tensor Tensor::as(DType dtype) const {
  if (size_of(dtype) != size_of(dtype_)) {
    throw InvalidArgument(fmt::format("{} as {}: an element has {} bytes, not {}", to_string(),
                                      name_of(dtype), size_of(dtype_), size_of(dtype)));
  }
  Tensor result = *this;
  result.dtype_ = dtype;
  return result;
}

std::string Tensor::to_string() const {
  std::string text =
      fmt::format("{}{} strides {}", name_of(dtype_), list(shape()), list(strides()));
  if (!has_storage()) return text + " without storage";
  return text + fmt::format(" at byte {} of buffer {}", byte_offset_, buffer_.value);
}

}  // namespace strata
