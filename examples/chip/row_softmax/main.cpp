// Softmax of rows, each divided among vector cores that start together and meet at a barrier.
#include "../host.hpp"

int main(int argc, char** argv) {
  return example::run(argc, argv, "row_softmax",
                      {{"rows", 37}, {"columns", 301}, {"rows-at-once", 8}, {"blocks", 48}},
                      [](example::Host& host) {
                        const std::int64_t rows = host.size("rows");
                        const std::int64_t columns = host.size("columns");
                        const auto x = host.array<float>({rows, columns});
                        const auto y = host.array<float>({rows, columns});
                        x.fill_random(1, 20);

                        host.run(in(x.tensor), out(y.tensor),
                                 strata::scalar(host.size("rows-at-once")),
                                 strata::scalar(host.size("blocks")));

                        // By the definition: in double nothing overflows here, so no maximum is
                        // taken off.
                        std::vector<double> expected(y.data.size());
                        std::vector<double> sums(static_cast<std::size_t>(rows));
                        for (std::int64_t i = 0; i < rows; ++i) {
                          double sum = 0;
                          for (std::int64_t j = 0; j < columns; ++j)
                            sum += std::exp(static_cast<double>(x.at(i, j)));
                          for (std::int64_t j = 0; j < columns; ++j) {
                            expected[static_cast<std::size_t>(i * columns + j)] =
                                std::exp(static_cast<double>(x.at(i, j))) / sum;
                            sums[static_cast<std::size_t>(i)] += static_cast<double>(y.at(i, j));
                          }
                        }
                        host.check("softmax", y.data, expected, 1e-5);
                        host.check("sums of rows", std::span<const double>(sums),
                                   std::vector<double>(sums.size(), 1.0), 1e-5);
                      });
}
