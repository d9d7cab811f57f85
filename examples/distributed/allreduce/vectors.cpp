#include "vectors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include <strata/error.hpp>

#include "chip/element_value.hpp"
#include "chip/npy.hpp"
#include "chip/random_values.hpp"
#include "comm/reduce_kernels.hpp"

namespace allreduce {
namespace {

using strata::DType;
using strata::ReduceOp;
using strata::chip::HostTensor;

/// What is known of a float type.
struct FloatType {
  double rounding;  ///< Half the distance of 1 to the next number.
  double largest;
  double tiniest;
};

std::optional<FloatType> float_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return FloatType{0x1p-24, std::numeric_limits<float>::max(), 0x1p-149};
    case DType::float16:
      return FloatType{0x1p-11, 65504, 0x1p-24};
    case DType::bfloat16:
      return FloatType{0x1p-8, 0x1.fep127, 0x1p-133};
    default:
      return std::nullopt;
  }
}

double combine(ReduceOp op, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  switch (op) {
    case ReduceOp::sum:
      return a + b;
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
  }
  return 0;
}

template <class T>
T combine_integers(ReduceOp op, T a, T b) {
  const auto wide_a = static_cast<std::uint64_t>(a);
  const auto wide_b = static_cast<std::uint64_t>(b);
  switch (op) {
    case ReduceOp::sum:
      return static_cast<T>(wide_a + wide_b);
    case ReduceOp::prod:
      return static_cast<T>(wide_a * wide_b);
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
  }
  return 0;
}

template <class T>
double integer_reference(std::span<const HostTensor> vectors, ReduceOp op, std::uint64_t i) {
  const auto at = [i](const HostTensor& vector) {
    T value;
    std::memcpy(&value, vector.bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  };
  T value = at(vectors[0]);
  for (std::size_t r = 1; r < vectors.size(); ++r)
    value = combine_integers(op, value, at(vectors[r]));
  return static_cast<double>(value);
}

/// Each step rounds once; a sum's intermediate values are at most the sum of the magnitudes.
double allowed_error(const FloatType& type, ReduceOp op, std::size_t ranks, double expected,
                     double magnitudes) {
  const double size = op == ReduceOp::sum ? magnitudes : std::fabs(expected);
  if (op == ReduceOp::min || op == ReduceOp::max) return 0;
  const double steps = static_cast<double>(ranks);
  return steps * (type.rounding * size * (1 + steps * type.rounding) + type.tiniest);
}

void require_alike(const HostTensor& first, const HostTensor& other, const std::string& first_file,
                   const std::string& file) {
  if (first.dtype == other.dtype && first.shape == other.shape) return;
  throw strata::Error(
      fmt::format("'{}' has {} x {} and '{}' has {} x {}: all ranks must contribute the same",
                  first_file, first.elements(), strata::name_of(first.dtype), file,
                  other.elements(), strata::name_of(other.dtype)));
}

std::vector<HostTensor> read_vectors(Options& options) {
  std::vector<HostTensor> vectors;
  vectors.reserve(options.devices.size());
  const std::string first_file = for_rank(options.input, 0);
  for (std::size_t rank = 0; rank < options.devices.size(); ++rank) {
    const std::string file = for_rank(options.input, rank);
    HostTensor vector = strata::chip::read_npy(file);
    if (options.dtype_given)
      vector = strata::chip::as_dtype(std::move(vector), options.dtype, file);
    vectors.push_back(std::move(vector));
    require_alike(vectors.front(), vectors.back(), first_file, file);
  }
  if (options.count_given && options.count != vectors[0].elements()) {
    throw strata::Error(fmt::format("'{}' has {} elements, and --count says {}", first_file,
                                    vectors[0].elements(), options.count));
  }
  options.count = vectors[0].elements();
  options.dtype = vectors[0].dtype;
  if (options.count == 0) throw strata::Error("'" + first_file + "' has no elements");
  if (!strata::comm::is_reducible(options.dtype)) {
    throw strata::Error(fmt::format(
        "'{}' has elements of {}, which can't be combined; float32, float16, bfloat16, int32, "
        "int64 and uint8 can",
        first_file, strata::name_of(options.dtype)));
  }
  return vectors;
}

}  // namespace

std::vector<HostTensor> make_vectors(Options& options) {
  if (!options.input.empty()) return read_vectors(options);
  std::vector<HostTensor> vectors(options.devices.size());
  for (std::size_t rank = 0; rank < vectors.size(); ++rank) {
    HostTensor& vector = vectors[rank];
    vector.dtype = options.dtype;
    vector.shape = {static_cast<std::int64_t>(options.count)};
    vector.bytes.resize(strata::chip::bytes_of(vector.dtype, vector.shape));
    strata::chip::fill_random(vector, options.seed + rank);
  }
  return vectors;
}

Reference::Reference(std::span<const HostTensor> vectors, ReduceOp op)
    : dtype_(vectors[0].dtype),
      expected_(vectors[0].elements()),
      allowed_(vectors[0].elements(), 0) {
  const std::optional<FloatType> type = float_type(dtype_);
  const std::size_t size = strata::size_of(dtype_);
  for (std::uint64_t i = 0; i < expected_.size(); ++i) {
    if (!type) {
      expected_[i] = dtype_ == DType::int32   ? integer_reference<std::int32_t>(vectors, op, i)
                     : dtype_ == DType::int64 ? integer_reference<std::int64_t>(vectors, op, i)
                                              : integer_reference<std::uint8_t>(vectors, op, i);
      continue;
    }
    const auto value = [&](std::size_t rank) {
      return strata::chip::element_value(dtype_, vectors[rank].bytes.data() + i * size);
    };
    double combined = value(0);
    double magnitudes = std::fabs(combined);
    for (std::size_t r = 1; r < vectors.size(); ++r) {
      combined = combine(op, combined, value(r));
      magnitudes += std::fabs(value(r));
    }
    expected_[i] = combined;
    allowed_[i] = allowed_error(*type, op, vectors.size(), combined, magnitudes);
  }
}

void Reference::spoil() { expected_[expected_.size() / 2] += 1; }

Comparison Reference::compare(std::span<const std::byte> result) const {
  Comparison comparison;
  const std::size_t size = strata::size_of(dtype_);
  const std::optional<FloatType> type = float_type(dtype_);
  const double largest = type ? type->largest : std::numeric_limits<double>::infinity();
  for (std::uint64_t i = 0; i < expected_.size(); ++i) {
    const double found = strata::chip::element_value(dtype_, result.data() + i * size);
    const double expected = expected_[i];
    if (std::isnan(expected) && std::isnan(found)) continue;
    // Beyond the largest number of the type there is only infinity.
    if (std::isinf(found) && std::fabs(expected) + allowed_[i] > largest) continue;
    double error = found == expected ? 0 : std::fabs(found - expected);
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    if (error > allowed_[i] && comparison.wrong++ == 0) comparison.first_wrong = i;
    comparison.max_error = std::max(comparison.max_error, error);
  }
  return comparison;
}

}  // namespace allreduce
