// Elements of any reducible type, for tests: small numbers that all of them hold exactly, and what
// a reduction of those has to give, bit for bit.
//
// Thread safety: free functions without state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "strata/domain_context.hpp"
#include "support/random.hpp"

namespace strata::comm {

inline constexpr std::array kReducible = {DType::float32, DType::float16, DType::bfloat16,
                                          DType::int32,   DType::int64,   DType::uint8};
inline constexpr std::array kOps = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max};

/// A small integer as float16. Exact.
inline std::uint16_t half_of(std::int64_t value) {
  if (value == 0) return 0;
  const std::uint64_t magnitude = static_cast<std::uint64_t>(value < 0 ? -value : value);
  const int top = 63 - __builtin_clzll(magnitude);
  const auto mantissa = static_cast<std::uint32_t>((magnitude << 10 >> top) & 0x3ffU);
  return static_cast<std::uint16_t>((value < 0 ? 0x8000U : 0U) |
                                    static_cast<std::uint32_t>(top + 15) << 10 | mantissa);
}

/// Stores a small integer as element `i`; an integer type takes its low bits.
inline void store(DType dtype, std::byte* to, std::size_t i, std::int64_t value) {
  const auto put = [&](auto typed) { std::memcpy(to + i * sizeof typed, &typed, sizeof typed); };
  switch (dtype) {
    case DType::float32:
      return put(static_cast<float>(value));
    case DType::float16:
      return put(half_of(value));
    case DType::bfloat16: {
      std::uint32_t bits = 0;
      const auto typed = static_cast<float>(value);
      std::memcpy(&bits, &typed, sizeof bits);
      return put(static_cast<std::uint16_t>(bits >> 16));
    }
    case DType::int32:
      return put(static_cast<std::int32_t>(value));
    case DType::int64:
      return put(value);
    default:
      return put(static_cast<std::uint8_t>(value));
  }
}

/// What rank `rank` has as element `i` of its input.
inline std::int64_t element(DType dtype, ReduceOp op, std::uint32_t rank, std::uint64_t i) {
  const std::uint64_t mixed = test::mix(rank * 1000003 + i);
  // Products of powers of two are exact however many there are.
  if (op == ReduceOp::prod) return (mixed & 1U) == 0 ? 1 : dtype == DType::uint8 ? 3 : 2;
  const auto value = static_cast<std::int64_t>(mixed % 15);
  return dtype == DType::uint8 ? value : value - 7;
}

inline std::int64_t combined(ReduceOp op, std::int64_t a, std::int64_t b) {
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

/// `count` elements of a rank's input, from element `begin` on.
inline std::vector<std::byte> input(DType dtype, ReduceOp op, std::uint32_t rank,
                                    std::uint64_t count, std::uint64_t begin = 0) {
  std::vector<std::byte> data(count * size_of(dtype));
  for (std::uint64_t i = 0; i < count; ++i)
    store(dtype, data.data(), i, element(dtype, op, rank, begin + i));
  return data;
}

/// The inputs of all ranks combined, from element `begin` on.
inline std::vector<std::byte> expected(DType dtype, ReduceOp op, std::uint32_t ranks,
                                       std::uint64_t count, std::uint64_t begin = 0) {
  std::vector<std::byte> data(count * size_of(dtype));
  for (std::uint64_t i = 0; i < count; ++i) {
    std::int64_t value = element(dtype, op, 0, begin + i);
    for (std::uint32_t r = 1; r < ranks; ++r)
      value = combined(op, value, element(dtype, op, r, begin + i));
    store(dtype, data.data(), i, value);
  }
  return data;
}

// ---- Whole collectives --------------------------------------------------------------------------

inline constexpr std::array kKinds = {
    detail::CollectiveKind::all_reduce, detail::CollectiveKind::reduce_scatter,
    detail::CollectiveKind::all_gather, detail::CollectiveKind::broadcast,
    detail::CollectiveKind::all_to_all, detail::CollectiveKind::reduce};
inline constexpr std::array kAlgorithms = {
    CollectiveAlgorithm::automatic, CollectiveAlgorithm::one_phase, CollectiveAlgorithm::two_phase,
    CollectiveAlgorithm::ring, CollectiveAlgorithm::bidirectional_ring};

/// How many times the count of a collective the input of a rank has.
inline std::uint32_t in_parts(detail::CollectiveKind kind, std::uint32_t ranks) {
  using enum detail::CollectiveKind;
  return kind == reduce_scatter || kind == all_to_all ? ranks : 1;
}
/// The same of its output.
inline std::uint32_t out_parts(detail::CollectiveKind kind, std::uint32_t ranks) {
  using enum detail::CollectiveKind;
  return kind == all_gather || kind == all_to_all ? ranks : 1;
}

/// One collective over `ranks`, whose inputs are those of input().
struct Collective {
  detail::CollectiveKind kind;
  DType dtype;
  ReduceOp op;
  std::uint32_t root;
  std::uint64_t count;  ///< As in CollectiveCall.
};
/// The output of a rank that has one.
inline std::vector<std::byte> expected(const Collective& what, std::uint32_t ranks,
                                       std::uint32_t rank) {
  using enum detail::CollectiveKind;
  const auto [kind, dtype, op, root, count] = what;
  std::vector<std::byte> all;
  switch (kind) {
    case all_gather:
    case all_to_all:
      for (std::uint32_t from = 0; from < ranks; ++from) {
        const auto one = input(dtype, op, from, count, kind == all_gather ? 0 : rank * count);
        all.insert(all.end(), one.begin(), one.end());
      }
      return all;
    case broadcast:
      return input(dtype, op, root, count);
    case reduce_scatter:
      return expected(dtype, op, ranks, count, rank * count);
    default:
      return expected(dtype, op, ranks, count);
  }
}

}  // namespace strata::comm
