// Adds a piece to the total of all pieces before it.
#include <strata/kernel.hpp>

#include "../statistics.hpp"

using namespace statistics;

STRATA_KERNEL(merge) {
  const auto* const piece = kernel.data<const std::int64_t>(0);
  auto* const total = kernel.data<std::int64_t>(1);
  const Words words = words_of(total).followed_by(words_of(piece));
  for (std::int64_t i = 0; i < kCounts; ++i)
    total[i] += piece[i];
  set_words(total, words);
}
