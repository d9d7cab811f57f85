// Softmax of each row of x. A row is divided by columns among as many vector cores as the chip has
// (or `blocks`, if that is fewer), which meet at a barrier: so they must all start together.
#include <algorithm>
#include <strata/chip.hpp>

using namespace strata;

STRATA_CHIP_ORCHESTRATION(row_softmax) {
  const Tensor& x = chip.tensor(0);
  const Tensor& y = chip.tensor(1);
  const auto rows_at_once = chip.scalar<std::int64_t>(0);
  const auto wanted = chip.scalar<std::int64_t>(1);
  if (rows_at_once < 1 || wanted < 1) chip.fail(1, "rows_at_once and blocks are at least 1");
  if (x.extent(1) == 0) return;

  // How many vector cores this run has: to start more together than those is refused.
  const std::int64_t blocks = std::min({wanted, std::int64_t{chip.aivs()}, x.extent(1)});
  const Launch softmax = chip.aiv("softmax").blocks(static_cast<std::uint32_t>(blocks)).together();
  for (std::int64_t begin = 0; begin < x.extent(0); begin += rows_at_once) {
    const std::int64_t end = std::min(begin + rows_at_once, x.extent(0));
    const Scope scope = chip.scope();
    Tensor parts(DType::float32, {blocks, end - begin, 2});
    chip.submit(softmax, in(x.slice(0, begin, end)), out(parts), out(y.slice(0, begin, end)),
                named("softmax"));
  }
}
