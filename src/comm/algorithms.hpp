// The algorithms of the collectives, after all ranks have agreed on the call (Call::meet).
//
// docs/design/comm.md says where each comes from and why no rank overwrites what another still
// reads.
//
// Thread safety: each function runs in the calling thread and ends when this rank's part is done.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/call.hpp"

namespace strata::comm {

/// How large the two sides of a call are, in bytes.
struct CallBytes {
  std::uint64_t in = 0;
  std::uint64_t out = 0;
};
[[nodiscard]] CallBytes bytes_of(const detail::CollectiveCall& call, std::uint32_t ranks) noexcept;

/// A run of elements.
struct Part {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
};
/// Part `index` of `of` nearly equal ones; they begin at multiples of a cache line.
[[nodiscard]] constexpr Part part(std::uint64_t count, std::size_t element_bytes,
                                  std::uint32_t index, std::uint32_t of) noexcept {
  const std::uint64_t line = std::max<std::uint64_t>(64 / element_bytes, 1);
  const std::uint64_t lines = (count + line - 1) / line;
  const std::uint64_t each = (lines + of - 1) / of * line;
  const std::uint64_t begin = std::min(count, index * each);
  return {begin, std::min(count - begin, each)};
}
/// Piece `index` of pieces of `each` elements.
[[nodiscard]] constexpr Part piece(std::uint64_t count, std::uint64_t each,
                                   std::uint64_t index) noexcept {
  const std::uint64_t begin = std::min(count, index * each);
  return {begin, std::min(count - begin, each)};
}

/// Where another rank's input or output is. Requires that it is in that rank's window.
[[nodiscard]] inline const std::byte* input_of(const Call& call, std::uint32_t rank) noexcept {
  return call.domain().windows[rank] + call.record(rank).in;
}
[[nodiscard]] inline std::byte* output_of(const Call& call, std::uint32_t rank) noexcept {
  return call.domain().windows[rank] + call.record(rank).out;
}
[[nodiscard]] inline const std::byte* own_input(const Call& call) noexcept {
  return static_cast<const std::byte*>(call.what().in);
}
[[nodiscard]] inline std::byte* own_output(const Call& call) noexcept {
  return static_cast<std::byte*>(call.what().out);
}
[[nodiscard]] bool all_inputs_in_windows(const Call& call) noexcept;
[[nodiscard]] bool all_outputs_in_windows(const Call& call) noexcept;
/// Whether some rank's output is its input.
[[nodiscard]] bool any_in_place(const Call& call) noexcept;

/// Copies unless both are the same.
void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

/// Every collective whose inputs came with the posts: nothing is waited for any more.
void finish_small(Call& call);
/// The others.
void all_reduce(Call& call, CollectiveAlgorithm algorithm);
void reduce_scatter(Call& call);
void all_gather(Call& call);
void broadcast(Call& call);
void all_to_all(Call& call);
void reduce(Call& call);

/// all_reduce by ring; `both_ways` halves go round in opposite directions.
enum class Ring : std::uint8_t { one_way, both_ways };
void all_reduce_ring(Call& call, Ring ring);

/// What CollectiveAlgorithm::automatic means for an all_reduce: measured, see the source.
[[nodiscard]] CollectiveAlgorithm choose_all_reduce(std::uint32_t ranks,
                                                    std::uint64_t bytes) noexcept;
/// Up to how many bytes inputs travel with the post, if the domain has room for that.
[[nodiscard]] std::uint64_t small_limit(std::uint32_t ranks) noexcept;

}  // namespace strata::comm
