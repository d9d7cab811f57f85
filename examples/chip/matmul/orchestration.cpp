// c = a b in tiles of `tile` x `tile`, on the matrix cores.
//
// The products into one tile of c go one after the other, since each reads and writes it; tiles of
// c share no byte and go at the same time. That follows from the tensors; nothing else is said.
//
// If `recorded` is not 0, what computes one tile of c is a recorded sub-graph: it is inferred for
// the first tile of a shape and replayed for all others.
#include <algorithm>
#include <strata/chip.hpp>

using namespace strata;

namespace {

/// One tile of c from a row of tiles of a and a column of tiles of b.
void one_tile(ChipOrchestration& chip, const Tensor& a, const Tensor& b, const Tensor& c,
              std::int64_t tile) {
  for (std::int64_t k = 0; k < a.extent(1); k += tile) {
    const std::int64_t end = std::min(k + tile, a.extent(1));
    const Tensor left = a.slice(1, k, end);
    const Tensor right = b.slice(0, k, end);
    if (k == 0) {
      chip.submit(chip.aic("multiply"), in(left), in(right), out(c), named("multiply"));
    } else {
      chip.submit(chip.aic("multiply_add"), in(left), in(right), inout(c), named("multiply_add"));
    }
  }
}

/// The same as a sub-graph. `tile` is a construction parameter: another value records anew.
void recorded_tile(ChipOrchestration& chip, const GraphArguments& arguments, std::int64_t tile) {
  one_tile(chip, arguments.tensor(0), arguments.tensor(1), arguments.tensor(2), tile);
}

}  // namespace

STRATA_CHIP_ORCHESTRATION(matmul) {
  const Tensor& a = chip.tensor(0);
  const Tensor& b = chip.tensor(1);
  const Tensor& c = chip.tensor(2);
  const auto tile = chip.scalar<std::int64_t>(0);
  const bool recorded = chip.scalar<std::int64_t>(1) != 0;
  if (tile < 1) chip.fail(1, "a tile has at least one row");
  if (a.extent(0) != c.extent(0) || a.extent(1) != b.extent(0) || b.extent(1) != c.extent(1)) {
    chip.fail(2, "the shapes of a, b and c do not fit together");
  }
  for (std::int64_t i = 0; i < c.extent(0); i += tile) {
    for (std::int64_t j = 0; j < c.extent(1); j += tile) {
      const std::int64_t i_end = std::min(i + tile, c.extent(0));
      const std::int64_t j_end = std::min(j + tile, c.extent(1));
      const Tensor rows = a.slice(0, i, i_end);
      const Tensor columns = b.slice(1, j, j_end);
      const Tensor block = c.slice(0, i, i_end).slice(1, j, j_end);
      if (recorded) {
        chip.graph(recorded_tile, {rows, columns, block}, {}, tile);
      } else {
        one_tile(chip, rows, columns, block, tile);
      }
    }
  }
}
