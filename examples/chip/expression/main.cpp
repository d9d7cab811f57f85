// (a + b + 1)(a + b + 2) + (a + b) with tensors that the runtime allocates, in nested scopes.
#include "../host.hpp"

int main(int argc, char** argv) {
  return example::run(
      argc, argv, "expression", {{"size", 50'001}, {"tile", 2048}}, [](example::Host& host) {
        const std::int64_t size = host.size("size");
        const auto a = host.array<float>({size});
        const auto b = host.array<float>({size});
        const auto f = host.array<float>({size});
        a.fill_random(1);
        b.fill_random(2);

        host.run(in(a.tensor), in(b.tensor), out(f.tensor), strata::scalar(host.size("tile")));

        // Multiplied out, with s = a + b: s^2 + 4 s + 2.
        std::vector<double> expected(static_cast<std::size_t>(size));
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const double s = static_cast<double>(a.data[i]) + static_cast<double>(b.data[i]);
          expected[i] = s * s + 4 * s + 2;
        }
        host.check("(a+b+1)(a+b+2)+(a+b)", f.data, expected, 1e-5);
      });
}
