// A matrix product whose tiles go through pipes to the vector cores, which add the bias and apply
// ReLU or GELU: mixed tasks, an AIC and both AIVs of a cluster together.
#include "../host.hpp"

namespace {

double activation(double v, bool gelu) {
  return gelu ? v * 0.5 * std::erfc(-v / std::sqrt(2.0)) : std::max(v, 0.0);
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(
      argc, argv, "mixed_mlp", {{"rows", 145}, {"inputs", 70}, {"outputs", 90}},
      [](example::Host& host) {
        const std::int64_t rows = host.size("rows");
        const std::int64_t inputs = host.size("inputs");
        const std::int64_t outputs = host.size("outputs");
        const auto x = host.array<float>({rows, inputs});
        const auto weights = host.array<float>({inputs, outputs});
        const auto bias = host.array<float>({outputs});
        const auto y = host.array<float>({rows, outputs});
        x.fill_random(1);
        weights.fill_random(2);
        bias.fill_random(3);

        for (const bool gelu : {false, true}) {
          std::vector<double> expected(y.data.size());
          for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t j = 0; j < outputs; ++j) {
              double sum = bias.at(j);
              for (std::int64_t k = 0; k < inputs; ++k)
                sum += static_cast<double>(x.at(i, k)) * static_cast<double>(weights.at(k, j));
              expected[static_cast<std::size_t>(i * outputs + j)] = activation(sum, gelu);
            }
          }
          y.fill(-1);
          host.run(in(x.tensor), in(weights.tensor), in(bias.tensor), out(y.tensor),
                   strata::scalar(std::int64_t{gelu}));
          host.check(gelu ? "gelu(x w + bias)" : "relu(x w + bias)", y.data, expected, 1e-4);
        }
      });
}
