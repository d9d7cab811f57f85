// What this chip has counted, so that the sum over all chips has everything.
#include <algorithm>
#include <strata/kernel.hpp>

#include "../statistics.hpp"

using namespace statistics;

STRATA_KERNEL(publish) {
  const auto* const total = kernel.data<const std::int64_t>(0);
  auto* const shared = kernel.data<std::int64_t>(1);
  std::copy(total, total + kCounts, shared);
  std::fill(shared + kCounts, shared + kShared, 0);
  std::int64_t* const edges = shared + kEdges + kernel.scalar<std::int64_t>(0) * kEdgesPerRank;
  std::copy(total + kHead, total + kSpaces + 1, edges);
  std::fill(shared + kHead, shared + kSpaces + 1, 0);
}
