// One block: all_reduce of its part of the vector, on the channel that has its number.
#include <algorithm>
#include <chrono>
#include <strata/communicator.hpp>
#include <strata/kernel.hpp>

namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

STRATA_KERNEL(all_reduce) {
  const strata::Communicator ranks(kernel, *kernel.data<strata::DomainContext>(0));
  const strata::KernelTensor mine = kernel.tensor(1);
  const strata::KernelTensor result = kernel.tensor(2);
  const strata::KernelTensor times = kernel.tensor(3);
  const auto element = static_cast<std::int64_t>(strata::size_of(mine.dtype()));
  const std::int64_t each = (mine.elements() + kernel.blocks() - 1) / kernel.blocks();
  const std::int64_t begin = std::min(kernel.block() * each, mine.elements());
  const std::int64_t count = std::min(each, mine.elements() - begin);

  ranks.barrier(kernel.block());  // So that the time is that of the all_reduce alone.
  times.at<std::int64_t>(kernel.block(), 0) = now_ns();
  ranks.all_reduce(
      mine.data() + begin * element, result.data() + begin * element,
      static_cast<std::uint64_t>(count), mine.dtype(), kernel.scalar<strata::ReduceOp>(0),
      {.channel = kernel.block(), .algorithm = kernel.scalar<strata::CollectiveAlgorithm>(1)});
  times.at<std::int64_t>(kernel.block(), 1) = now_ns();
}
