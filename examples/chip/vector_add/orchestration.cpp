// sum = a + b, in tiles of `tile` elements. No two tiles share a byte, so all may run at once.
#include <algorithm>
#include <strata/chip.hpp>

using namespace strata;

STRATA_CHIP_ORCHESTRATION(vector_add) {
  const Tensor& a = chip.tensor(0);
  const Tensor& b = chip.tensor(1);
  const Tensor& sum = chip.tensor(2);
  const auto tile = chip.scalar<std::int64_t>(0);
  if (tile < 1) chip.fail(1, "a tile has at least one element");

  const Launch add = chip.aiv("add");
  for (std::int64_t begin = 0; begin < sum.extent(0); begin += tile) {
    const std::int64_t end = std::min(begin + tile, sum.extent(0));
    chip.submit(add, in(a.slice(0, begin, end)), in(b.slice(0, begin, end)),
                out(sum.slice(0, begin, end)), named("add"));
  }
}
