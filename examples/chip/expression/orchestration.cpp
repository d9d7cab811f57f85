// f = (a + b + 1)(a + b + 2) + (a + b), tile by tile.
//
// Scopes say how long the tensors between the kernels live. Each tile has a scope of its own, so
// the heap never holds more than the tiles that are in flight; within it, the two factors go as
// soon as they are multiplied, while the sum a + b lives on.
#include <algorithm>
#include <strata/chip.hpp>

using namespace strata;

namespace {

void one_tile(ChipOrchestration& chip, const Tensor& a, const Tensor& b, const Tensor& f) {
  const Scope tile = chip.scope({.name = "tile"});
  Tensor sum(DType::float32, a.shape());  // No storage yet: the task that writes it gets some.
  chip.submit(chip.aiv("add"), in(a), in(b), out(sum), named("a+b"));
  {
    const Scope factors = chip.scope({.name = "factors"});
    Tensor left(DType::float32, a.shape());
    Tensor right(DType::float32, a.shape());
    chip.submit(chip.aiv("add_scalar"), in(sum), out(left), scalar(1.0F), named("a+b+1"));
    chip.submit(chip.aiv("add_scalar"), in(sum), out(right), scalar(2.0F), named("a+b+2"));
    chip.submit(chip.aiv("multiply"), in(left), in(right), out(f), named("product"));
  }
  chip.submit(chip.aiv("accumulate"), in(sum), inout(f), named("plus a+b"));
}

}  // namespace

STRATA_CHIP_ORCHESTRATION(expression) {
  const Tensor& f = chip.tensor(2);
  const auto tile = chip.scalar<std::int64_t>(0);
  if (tile < 1) chip.fail(1, "a tile has at least one element");
  for (std::int64_t begin = 0; begin < f.extent(0); begin += tile) {
    const std::int64_t end = std::min(begin + tile, f.extent(0));
    one_tile(chip, chip.tensor(0).slice(0, begin, end), chip.tensor(1).slice(0, begin, end),
             f.slice(0, begin, end));
  }
}
