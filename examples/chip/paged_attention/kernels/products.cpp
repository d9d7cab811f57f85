// The two matrix products of attention, for the query heads that share one key/value head and one
// block of the cache.
#include <strata/kernel.hpp>

// scores[h, t] = scale * query[h, :] . key[t, :]
STRATA_KERNEL(scores) {
  const auto query = kernel.tensor(0);
  const auto key = kernel.tensor(1);
  const auto scores = kernel.tensor(2);
  const auto scale = kernel.scalar<float>(0);
  for (std::int64_t h = 0; h < query.extent(0); ++h) {
    for (std::int64_t t = 0; t < key.extent(0); ++t) {
      float sum = 0;
      for (std::int64_t d = 0; d < query.extent(1); ++d)
        sum += query.at<float>(h, d) * key.at<float>(t, d);
      scores.at<float>(h, t) = scale * sum;
    }
  }
}

// out[h, :] = sum over t of weights[h, t] * value[t, :]
STRATA_KERNEL(weighted_values) {
  const auto weights = kernel.tensor(0);
  const auto value = kernel.tensor(1);
  const auto out = kernel.tensor(2);
  for (std::int64_t h = 0; h < weights.extent(0); ++h) {
    for (std::int64_t d = 0; d < value.extent(1); ++d)
      out.at<float>(h, d) = 0;
    for (std::int64_t t = 0; t < weights.extent(1); ++t) {
      const float weight = weights.at<float>(h, t);
      for (std::int64_t d = 0; d < value.extent(1); ++d)
        out.at<float>(h, d) += weight * value.at<float>(t, d);
    }
  }
}
