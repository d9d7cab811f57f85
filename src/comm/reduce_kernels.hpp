// reduce_kernels: combining arrays element by element, as fast as this CPU can.
//
// The loops are plain C++ in reduce_loops.inc, which is compiled once for every CPU and, on x86-64,
// again with AVX2 + F16C and with AVX-512; what the machine has is asked at the first call. All
// versions give the same bits: inputs are combined in the order in which they are listed, float16
// and bfloat16 in float32 with one rounding at the end.
//
// Thread safety: every function may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "strata/domain_context.hpp"

namespace strata::comm {

/// Whether elements of that type can be combined at all.
[[nodiscard]] bool is_reducible(DType dtype) noexcept;

/// How results are written.
enum class Stores : std::uint8_t {
  in_turn,      ///< A block to the first output, from there to the others.
  at_once,      ///< To two outputs element by element: for an output in another CPU's cache.
  past_caches,  ///< For results that are too large to be found in a cache again: saves reading the
                ///< memory before it is overwritten.
};

/// Sets element i of all outputs to that of all inputs combined, i < count. At least one of each.
/// An output may be one of the inputs; otherwise nothing overlaps. Requires is_reducible(dtype).
void reduce_arrays(DType dtype, ReduceOp op, std::span<const std::byte* const> inputs,
                   std::span<std::byte* const> outputs, std::size_t count, Stores stores) noexcept;

/// Elements of one dtype and op; `count` is at most kReduceBlock. `second` is another output, or
/// null.
using ReduceBlock = void (*)(const std::byte* const* inputs, std::size_t input_count,
                             std::byte* output, std::byte* second, std::size_t count) noexcept;
/// So few elements that inputs and result stay in the first-level cache.
inline constexpr std::size_t kReduceBlock = 1024;

inline constexpr std::size_t kReducibleTypes = 6;
inline constexpr std::size_t kReduceOps = 4;
/// One version of the loops. Types in the order float32, float16, bfloat16, int32, int64, uint8.
struct ReduceLoops {
  const char* name;
  ReduceBlock block[kReducibleTypes][kReduceOps];
};

/// All versions that this machine can run, the best one last; for tests and benchmarks.
[[nodiscard]] std::span<const ReduceLoops* const> reduce_loops() noexcept;
/// reduce_arrays with one version.
void reduce_arrays_with(const ReduceLoops& loops, DType dtype, ReduceOp op,
                        std::span<const std::byte* const> inputs,
                        std::span<std::byte* const> outputs, std::size_t count,
                        Stores stores) noexcept;

}  // namespace strata::comm
