// A blocked matrix product on the matrix cores of one chip, submitted task by task and as recorded
// sub-graphs.
#include "../host.hpp"

int main(int argc, char** argv) {
  return example::run(
      argc, argv, "matmul", {{"m", 200}, {"n", 160}, {"k", 180}, {"tile", 64}},
      [](example::Host& host) {
        const std::int64_t m = host.size("m");
        const std::int64_t n = host.size("n");
        const std::int64_t k = host.size("k");
        const auto a = host.array<float>({m, k});
        const auto b = host.array<float>({k, n});
        const auto c = host.array<float>({m, n});
        a.fill_random(1);
        b.fill_random(2);

        // Element by element, as the definition has it.
        std::vector<double> expected(c.data.size());
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (std::int64_t l = 0; l < k; ++l)
              sum += static_cast<double>(a.at(i, l)) * static_cast<double>(b.at(l, j));
            expected[static_cast<std::size_t>(i * n + j)] = sum;
          }
        }
        for (const std::int64_t recorded : {0, 1}) {
          c.fill(-1);
          host.run(in(a.tensor), in(b.tensor), out(c.tensor), strata::scalar(host.size("tile")),
                   strata::scalar(recorded));
          host.check(recorded != 0 ? "a b, recorded" : "a b", c.data, expected, 1e-4);
        }
      });
}
