// Softmax over blocks that come one at a time. For each head there are the maximum of the scores
// seen so far and the sum of exp(score - maximum).
#include <algorithm>
#include <cmath>
#include <strata/kernel.hpp>

// scores[h, t] becomes exp(scores[h, t] - maximum of the block); maxima and sums are the block's.
STRATA_KERNEL(exponentials) {
  const auto scores = kernel.tensor(0);
  const auto maxima = kernel.tensor(1);
  const auto sums = kernel.tensor(2);
  for (std::int64_t h = 0; h < scores.extent(0); ++h) {
    float maximum = -INFINITY;
    for (std::int64_t t = 0; t < scores.extent(1); ++t)
      maximum = std::max(maximum, scores.at<float>(h, t));
    float sum = 0;
    for (std::int64_t t = 0; t < scores.extent(1); ++t) {
      scores.at<float>(h, t) = std::exp(scores.at<float>(h, t) - maximum);
      sum += scores.at<float>(h, t);
    }
    maxima.at<float>(h) = maximum;
    sums.at<float>(h) = sum;
  }
}

// Adds a block to the total: both are brought to the larger of the two maxima first.
STRATA_KERNEL(merge) {
  const auto block = kernel.tensor(0);
  const auto block_maxima = kernel.tensor(1);
  const auto block_sums = kernel.tensor(2);
  const auto total = kernel.tensor(3);
  const auto maxima = kernel.tensor(4);  // -infinity before the first block.
  const auto sums = kernel.tensor(5);
  for (std::int64_t h = 0; h < block.extent(0); ++h) {
    const float maximum = std::max(block_maxima.at<float>(h), maxima.at<float>(h));
    const float of_block = std::exp(block_maxima.at<float>(h) - maximum);
    const float of_total = std::exp(maxima.at<float>(h) - maximum);
    for (std::int64_t d = 0; d < block.extent(1); ++d)
      total.at<float>(h, d) = of_total * total.at<float>(h, d) + of_block * block.at<float>(h, d);
    sums.at<float>(h) = of_total * sums.at<float>(h) + of_block * block_sums.at<float>(h);
    maxima.at<float>(h) = maximum;
  }
}

// output = total / sum
STRATA_KERNEL(normalise) {
  const auto total = kernel.tensor(0);
  const auto sums = kernel.tensor(1);
  const auto output = kernel.tensor(2);
  for (std::int64_t h = 0; h < total.extent(0); ++h) {
    for (std::int64_t d = 0; d < total.extent(1); ++d)
      output.at<float>(h, d) = total.at<float>(h, d) / sums.at<float>(h);
  }
}
