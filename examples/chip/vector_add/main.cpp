// The first chip program: sum = a + b on the vector cores of one chip.
#include "../host.hpp"

int main(int argc, char** argv) {
  return example::run(
      argc, argv, "vector_add", {{"size", 100'003}, {"tile", 4096}}, [](example::Host& host) {
        const std::int64_t size = host.size("size");
        const auto a = host.array<float>({size});
        const auto b = host.array<float>({size});
        const auto sum = host.array<float>({size});
        a.fill_random(1);
        b.fill_random(2);

        host.run(in(a.tensor), in(b.tensor), out(sum.tensor), strata::scalar(host.size("tile")));

        std::vector<double> expected(static_cast<std::size_t>(size));
        for (std::size_t i = 0; i < expected.size(); ++i)
          expected[i] = static_cast<double>(a.data[i]) + static_cast<double>(b.data[i]);
        host.check("a + b", sum.data, expected, 1e-6);
      });
}
