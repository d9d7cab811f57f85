#include <atomic>
#include <span>
#include <strata/communicator.hpp>

namespace {

strata::Communicator ranks_of(const strata::Kernel& kernel) {
  return {kernel, *kernel.data<strata::DomainContext>(0)};
}

std::span<std::int64_t> out_of(const strata::Kernel& kernel) {
  const auto out = kernel.tensor(1);
  return {kernel.data<std::int64_t>(1), static_cast<std::size_t>(out.extent(0))};
}

}  // namespace

STRATA_KERNEL(pass_on) {
  const auto ranks = ranks_of(kernel);
  const auto numbers = ranks.slice<std::int64_t>("numbers");
  auto& arrived = ranks.slice<strata::Signal>("flags")[0];
  const std::int64_t mine = kernel.scalar<std::int64_t>(0) + ranks.rank();
  const std::uint32_t next = (ranks.rank() + 1) % ranks.size();
  ranks.put(next, &numbers[0], std::span(&mine, 1));
  ranks.notify(next, arrived, 1, strata::SignalOp::add);
  ranks.wait(arrived, strata::Compare::greater_or_equal, 1);
  const auto out = out_of(kernel);
  out[0] = numbers[0];  // Of the rank before.
  numbers[1] = mine;
  ranks.barrier();
  ranks.get(next, &numbers[1], out.subspan(1, 1));
  ranks.barrier();
}

STRATA_KERNEL(sum_up) {
  const auto ranks = ranks_of(kernel);
  const auto out = out_of(kernel);
  for (auto& each : out)
    each = kernel.scalar<std::int64_t>(0) + ranks.rank();
  ranks.all_reduce<std::int64_t>(out, out, strata::ReduceOp::sum);
}

STRATA_KERNEL(sum_for_ever) {
  const auto ranks = ranks_of(kernel);
  const auto out = out_of(kernel);
  for (;;) {
    std::int64_t one = 1;
    ranks.all_reduce<std::int64_t>(std::span(&one, 1), std::span(&one, 1), strata::ReduceOp::sum);
    std::atomic_ref(out[0]).fetch_add(1);
  }
}

STRATA_KERNEL(wait_for_signal) {
  const auto ranks = ranks_of(kernel);
  std::atomic_ref(out_of(kernel)[0]).store(1);
  ranks.wait(ranks.slice<strata::Signal>("flags")[1], strata::Compare::greater_or_equal, 1);
}

STRATA_KERNEL(tell_next) {
  const auto ranks = ranks_of(kernel);
  auto& told = ranks.slice<strata::Signal>("flags")[2];
  std::atomic_ref(out_of(kernel)[0]).store(1);
  if (ranks.rank() != kernel.scalar<std::int64_t>(0))
    ranks.notify((ranks.rank() + 1) % ranks.size(), told, 1);
  ranks.wait(told, strata::Compare::greater_or_equal, 1);
  ranks.barrier();
}

namespace {

__attribute__((noinline)) void is_elsewhere(std::int64_t& word) {
  const std::atomic_ref x(word);
  while (x.load(std::memory_order_relaxed) != 0) {
  }
}

}  // namespace

STRATA_KERNEL(stay_away) {
  const auto ranks = ranks_of(kernel);
  std::int64_t one = 1;
  const auto sum = [&] {
    ranks.all_reduce<std::int64_t>(std::span(&one, 1), std::span(&one, 1), strata::ReduceOp::sum);
  };
  sum();
  std::atomic_ref(out_of(kernel)[0]).store(1);
  if (ranks.rank() == kernel.scalar<std::int64_t>(0)) is_elsewhere(out_of(kernel)[0]);
  sum();
}
