// One task that adds, or one of as many blocks as there are clusters whose lanes all meet.
#include <strata/chip.hpp>

using namespace strata;

STRATA_CHIP_ORCHESTRATION(bench) {
  if (chip.scalar<int>(0) == 0) {
    chip.submit(chip.aiv("add"), in(chip.tensor(0)), in(chip.tensor(1)), out(chip.tensor(2)));
    return;
  }
  const KernelId vector = chip.kernel("meet_vector");
  chip.submit(
      chip.mixed(chip.kernel("meet_cube"), vector, vector).blocks(chip.clusters()).together());
}
