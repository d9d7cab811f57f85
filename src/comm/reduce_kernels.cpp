#include "comm/reduce_kernels.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#include <emmintrin.h>
#endif

namespace strata::comm {

extern const ReduceLoops kReduceLoopsPlain;
#if defined(STRATA_REDUCE_X86)
extern const ReduceLoops kReduceLoopsAvx2;
extern const ReduceLoops kReduceLoopsAvx512;
#endif

namespace {

/// What the machine can run, the best one last.
struct Versions {
  std::array<const ReduceLoops*, 3> all = {};
  std::size_t count = 0;
};

#if defined(STRATA_REDUCE_X86)
/// __builtin_cpu_supports of clang does not know it.
bool has_f16c() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

Versions find_versions() noexcept {
  Versions found;
  found.all[found.count++] = &kReduceLoopsPlain;
#if defined(STRATA_REDUCE_X86)
  if (__builtin_cpu_supports("avx2") && has_f16c()) {
    found.all[found.count++] = &kReduceLoopsAvx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      found.all[found.count++] = &kReduceLoopsAvx512;
  }
#endif
  return found;
}

const Versions& versions() noexcept {
  static const Versions found = find_versions();
  return found;
}

/// Row of the table; kReducibleTypes if there is none.
std::size_t row_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::float32:
      return 0;
    case DType::float16:
      return 1;
    case DType::bfloat16:
      return 2;
    case DType::int32:
      return 3;
    case DType::int64:
      return 4;
    case DType::uint8:
      return 5;
    default:
      return kReducibleTypes;
  }
}

/// Copies without bringing the target into a cache.
void stream(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  const std::size_t head =
      std::min(bytes, (16 - (reinterpret_cast<std::uintptr_t>(to) & 15U)) & 15U);
  std::memcpy(to, from, head);
  std::size_t done = head;
  for (; done + 16 <= bytes; done += 16) {
    const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + done), value);
  }
  std::memcpy(to + done, from + done, bytes - done);
#else
  std::memcpy(to, from, bytes);
#endif
}

/// Streamed stores are not ordered with the store that tells of them, unless by this.
void end_streaming() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace

bool is_reducible(DType dtype) noexcept { return row_of(dtype) != kReducibleTypes; }

std::span<const ReduceLoops* const> reduce_loops() noexcept {
  const Versions& found = versions();
  return {found.all.data(), found.count};
}

void reduce_arrays_with(const ReduceLoops& loops, DType dtype, ReduceOp op,
                        std::span<const std::byte* const> inputs,
                        std::span<std::byte* const> outputs, std::size_t count,
                        Stores stores) noexcept {
  const ReduceBlock block = loops.block[row_of(dtype)][static_cast<std::size_t>(op)];
  const std::size_t size = size_of(dtype);
  std::array<const std::byte*, kMaxRanks> at = {};
  std::copy(inputs.begin(), inputs.end(), at.begin());
  alignas(64) std::array<std::byte, kReduceBlock * sizeof(std::int64_t)> aside;
  for (std::size_t begin = 0; begin < count; begin += kReduceBlock) {
    const std::size_t elements = std::min(kReduceBlock, count - begin);
    const std::size_t offset = begin * size;
    const std::size_t bytes = elements * size;
    if (stores == Stores::past_caches) {
      block(at.data(), inputs.size(), aside.data(), nullptr, elements);
      for (std::byte* const output : outputs)
        stream(output + offset, aside.data(), bytes);
    } else {
      std::byte* const first = outputs[0] + offset;
      const bool two = stores == Stores::at_once && outputs.size() > 1;
      block(at.data(), inputs.size(), first, two ? outputs[1] + offset : nullptr, elements);
      for (std::size_t i = two ? 2 : 1; i < outputs.size(); ++i)
        std::memcpy(outputs[i] + offset, first, bytes);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i)
      at[i] += bytes;
  }
  if (stores == Stores::past_caches) end_streaming();
}

void reduce_arrays(DType dtype, ReduceOp op, std::span<const std::byte* const> inputs,
                   std::span<std::byte* const> outputs, std::size_t count, Stores stores) noexcept {
  static const ReduceLoops& best = *reduce_loops().back();
  reduce_arrays_with(best, dtype, op, inputs, outputs, count, stores);
}

}  // namespace strata::comm
