// Submits what a scalar chooses: 0 is checked.cases[0] of the tests, and so on.
#include <array>

#include <strata/chip.hpp>

using namespace strata;

namespace {

/// One task over the columns 4 to 7 of a matrix that others have the rest of.
void column_tile(ChipOrchestration& chip, const char* kernel) {
  const Tensor &x = chip.tensor(0), &y = chip.tensor(1);
  chip.submit(chip.aiv("copy"), in(x.tile({0, 0}, {8, 4})), out(y.tile({0, 0}, {8, 4})),
              named("left"));
  chip.submit(chip.aiv(kernel), in(x.tile({0, 4}, {8, 4})), out(y.tile({0, 4}, {8, 4})), scalar(7),
              named("middle"));
}

void half_written(ChipOrchestration& chip) {
  Tensor fresh(DType::float32, {8, 16});
  chip.submit(chip.aiv("half"), out(fresh), named("half"));
  chip.submit(chip.aiv("copy"), in(fresh), out(chip.tensor(1)), named("copy"));
}

void initial_value(ChipOrchestration& chip) {
  const float three = 3;
  Tensor fresh(DType::float32, {8, 16});
  chip.submit(chip.aiv("accumulate"), in(chip.tensor(0)), out(fresh, &three), named("accumulate"));
  chip.submit(chip.aiv("copy"), in(fresh), out(chip.tensor(1)), named("copy"));
}

/// Twice through one tensor; the second reader does not wait for the second writer.
void two_writers(ChipOrchestration& chip, bool edge) {
  const Tensor &x = chip.tensor(0), &y = chip.tensor(1);
  Tensor middle(DType::float32, {8, 16});
  chip.submit(chip.aiv("copy"), in(x), out(middle), named("load"));
  for (int i = 0; i < 3; ++i)
    chip.submit(chip.aiv("doubled"), inout(middle), named("double"));
  const TensorArg read = in(middle);
  chip.submit(chip.aiv("copy"), edge ? read : no_dep(read), out(y), named("store"));
}

constexpr std::array kColumnTiles = {"clean", "gap",    "unwritten", "neighbour",     "past",
                                     "input", "global", "helper",    "copy_too_much", "atomics"};

}  // namespace

STRATA_CHIP_ORCHESTRATION(checked) {
  const int which = chip.scalar<int>(0);
  if (which >= 0 && which < static_cast<int>(kColumnTiles.size())) {
    column_tile(chip, kColumnTiles[static_cast<std::size_t>(which)]);
    return;
  }
  switch (which) {
    case 100:
      return half_written(chip);
    case 101:
      return initial_value(chip);
    case 102:
      chip.submit(chip.aiv("rows").blocks(8).together(), out(chip.tensor(1)), named("rows"));
      return;
    case 103:
      return two_writers(chip, true);
    case 104:
      return two_writers(chip, false);
    case 105:
      chip.submit(chip.aiv("throws"), in(chip.tensor(0)), named("throws"));
      return;
    default:
      chip.fail(which, "there is no such case");
  }
}
