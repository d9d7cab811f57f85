// Control flow that depends on what kernels compute: iterations until a residual is small, and a
// task that runs only if a kernel's result says so.
#include "../host.hpp"

int main(int argc, char** argv) {
  return example::run(
      argc, argv, "value_dependent", {{"size", 96}, {"tile", 32}, {"limit", 200}},
      [](example::Host& host) {
        const std::int64_t size = host.size("size");
        const auto matrix = host.array<float>({size, size});
        const auto vector = host.array<float>({size});
        const auto eigenvalue = host.array<double>({1});
        const auto iterations = host.array<std::int32_t>({1});

        // A matrix whose eigenvectors are known: A = H D H, where D is diagonal and H = 1 - 2 u u^T
        // is a reflection. The largest entry of D is D[0] = 4, so the vector is H's first column.
        const auto n = static_cast<std::size_t>(size);
        std::vector<double> u(n);
        double length = 0;
        for (std::size_t i = 0; i < n; ++i) {
          u[i] = i == 0 ? 1 : 1 / (2.0 + static_cast<double>(i));
          length += u[i] * u[i];
        }
        const auto reflection = [&](std::size_t i, std::size_t j) {
          return (i == j ? 1.0 : 0.0) - 2 * u[i] * u[j] / length;
        };
        for (std::size_t i = 0; i < n; ++i) {
          for (std::size_t j = 0; j < n; ++j) {
            double sum = 0;
            for (std::size_t k = 0; k < n; ++k) {
              const double d = k == 0 ? 4 : 2.0 / (1.0 + static_cast<double>(k));
              sum += reflection(i, k) * d * reflection(k, j);
            }
            matrix.data[i * n + j] = static_cast<float>(sum);
          }
        }
        std::vector<double> expected(n);
        for (std::size_t i = 0; i < n; ++i)
          expected[i] = reflection(i, 0);
        const auto largest =
            *std::max_element(expected.begin(), expected.end(),
                              [](double a, double b) { return std::abs(a) < std::abs(b); });
        if (largest < 0) {
          for (double& value : expected)
            value = -value;
        }

        // From opposite starts the iteration ends at opposite vectors; one of them is negated.
        for (const float start : {1.0F, -1.0F}) {
          vector.fill(start / std::sqrt(static_cast<float>(size)));
          host.run(in(matrix.tensor), inout(vector.tensor), out(eigenvalue.tensor),
                   out(iterations.tensor), strata::scalar(1e-4), strata::scalar(host.size("limit")),
                   strata::scalar(host.size("tile")));
          host.check(start > 0 ? "eigenvector" : "eigenvector, from the opposite start",
                     vector.data, expected, 1e-3);
          host.check("eigenvalue", eigenvalue.data, {4.0}, 1e-5);
          host.require("more than one step, fewer than the limit",
                       iterations.at(0) > 1 && iterations.at(0) < host.size("limit"));
        }
      });
}
