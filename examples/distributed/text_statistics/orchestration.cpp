// One chip's part of the text, in pieces: all can be counted at once, and are added up in their
// order, since words go across the borders.
//
//   text    -piece-|-piece-|-piece-|
//   tasks    count   count   count          into a table each
//            merge - merge - merge          into the total
//                            publish        in the form that all chips share
#include <algorithm>
#include <strata/chip.hpp>

#include "statistics.hpp"

using namespace strata;
using namespace statistics;

STRATA_CHIP_ORCHESTRATION(text_statistics) {
  const Tensor& text = chip.tensor(0);
  const std::int64_t skipped = chip.scalar<std::int64_t>(0);  // 1: the first byte is another's.
  const std::int64_t piece = chip.scalar<std::int64_t>(2);
  if (piece < 1) chip.fail(1, "a piece has at least one byte");
  static constexpr std::int64_t kZero = 0;
  const Tensor total = chip.allocate({{DType::int64, {kCounts}, &kZero}}).tensors[0];

  const Launch count = chip.aiv("count");
  const Launch merge = chip.aiv("merge");
  for (std::int64_t begin = skipped; begin < text.extent(0); begin += piece) {
    const std::int64_t end = std::min(begin + piece, text.extent(0));
    const std::int64_t previous = begin > 0 ? 1 : 0;
    const Scope scope = chip.scope();  // A table is there until it was merged.
    Tensor table(DType::int64, {kCounts});
    chip.submit(count, in(text.slice(0, begin - previous, end)), out(table), scalar(previous),
                named("count"));
    chip.submit(merge, in(table), inout(total), named("merge"));
  }
  chip.submit(chip.aiv("publish"), in(total), out(chip.tensor(1)),
              scalar(chip.scalar<std::int64_t>(1)), named("publish"));
}
