// What each chip does: its blocks take parts of the vector, each with a channel of the domain to
// itself. The program must run on all chips of the domain at the same time.
#include <strata/chip.hpp>
#include <strata/domain_context.hpp>

using namespace strata;

// times: [blocks, begin and end]
STRATA_CHIP_ORCHESTRATION(allreduce_distributed) {
  const Tensor& times = chip.tensor(3);
  chip.submit(chip.aiv("all_reduce").blocks(static_cast<std::uint32_t>(times.extent(0))),
              in(chip.tensor(0)), in(chip.tensor(1)), out(chip.tensor(2)), out(times),
              scalar(chip.scalar<ReduceOp>(0)), scalar(chip.scalar<CollectiveAlgorithm>(1)),
              named("all_reduce"));
}
