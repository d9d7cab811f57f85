// Which algorithm an all_reduce takes by itself, and how much data travels with a post.
//
// The figures are those of `strata-bench comm/table`: see docs/design/comm.md. In one phase each
// rank reads what all have, which grows with the number of ranks, but waits once; in two phases it
// reads as much as one rank has, and waits twice.
#include <array>

#include "comm/algorithms.hpp"

namespace strata::comm {
namespace {

struct Row {
  std::uint32_t ranks;         ///< Up to so many.
  std::uint64_t one_phase_to;  ///< Bytes of one rank's input up to which one phase is faster.
};
constexpr std::array<Row, 4> kTable = {{{2, 1024}, {4, 8192}, {8, 4096}, {kMaxRanks, 1024}}};

}  // namespace

std::uint64_t small_limit(std::uint32_t ranks) noexcept {
  for (const Row& row : kTable) {
    if (ranks <= row.ranks) return row.one_phase_to;
  }
  return 0;
}

CollectiveAlgorithm choose_all_reduce(std::uint32_t ranks, std::uint64_t bytes) noexcept {
  return bytes <= small_limit(ranks) ? CollectiveAlgorithm::one_phase
                                     : CollectiveAlgorithm::two_phase;
}

}  // namespace strata::comm
