// Attention over a paged key/value cache with an online softmax: dependencies found from the
// tensors, and the same graph with every edge named.
#include "../host.hpp"

namespace {

/// Context lengths that are no multiples of a block: short, long, one full block, one token.
std::vector<std::int32_t> context_lengths(std::int64_t sequences, std::int64_t most,
                                          std::int64_t block) {
  std::vector<std::int32_t> lengths;
  for (std::int64_t i = 0; i < sequences; ++i) {
    const std::int64_t choices[] = {most, block, 1, most / 2 + 1, most / 3 + 2};
    lengths.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(choices[i % 5], 1, most)));
  }
  return lengths;
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(
      argc, argv, "paged_attention",
      {{"sequences", 4},
       {"heads", 8},
       {"key-heads", 2},
       {"head-size", 32},
       {"block", 16},
       {"context", 75}},
      [](example::Host& host) {
        const std::int64_t sequences = host.size("sequences");
        const std::int64_t heads = host.size("heads");
        const std::int64_t key_heads = host.size("key-heads");
        const std::int64_t size = host.size("head-size");
        const std::int64_t block = host.size("block");
        const std::int64_t most = (host.size("context") + block - 1) / block;
        const auto query = host.array<float>({sequences, heads, size});
        const auto keys = host.array<float>({sequences * most, block, key_heads, size});
        const auto values = host.array<float>({sequences * most, block, key_heads, size});
        const auto table = host.array<std::int32_t>({sequences, most});
        const auto lengths = host.array<std::int32_t>({sequences});
        const auto output = host.array<float>({sequences, heads, size});
        query.fill_random(1);
        keys.fill_random(2);
        values.fill_random(3);
        // Blocks lie in the cache in any order.
        std::iota(table.data.begin(), table.data.end(), 0);
        std::shuffle(table.data.begin(), table.data.end(), std::mt19937(4));
        const auto chosen = context_lengths(sequences, host.size("context"), block);
        std::copy(chosen.begin(), chosen.end(), lengths.data.begin());

        // All tokens of a sequence at once, in double: scores, exponentials, weighted mean.
        std::vector<double> expected;
        for (std::int64_t s = 0; s < sequences; ++s) {
          for (std::int64_t h = 0; h < heads; ++h) {
            const std::int64_t key_head = h / (heads / key_heads);
            std::vector<double> mean(static_cast<std::size_t>(size));
            double sum = 0;
            for (std::int64_t t = 0; t < lengths.at(s); ++t) {
              const std::int64_t place = table.at(s, t / block);
              double score = 0;
              for (std::int64_t d = 0; d < size; ++d) {
                score += static_cast<double>(query.at(s, h, d)) *
                         static_cast<double>(keys.at(place, t % block, key_head, d));
              }
              const double weight = std::exp(score / std::sqrt(static_cast<double>(size)));
              sum += weight;
              for (std::int64_t d = 0; d < size; ++d) {
                mean[static_cast<std::size_t>(d)] +=
                    weight * static_cast<double>(values.at(place, t % block, key_head, d));
              }
            }
            for (const double value : mean)
              expected.push_back(value / sum);
          }
        }
        for (const std::int64_t manual : {0, 1}) {
          output.fill(-1);
          host.run(in(query.tensor), in(keys.tensor), in(values.tensor), in(table.tensor),
                   in(lengths.tensor), out(output.tensor), strata::scalar(manual));
          host.check(manual != 0 ? "attention, edges named" : "attention", output.data, expected,
                     1e-5);
        }
      });
}
