#include <array>
#include <atomic>
#include <span>
#include <strata/kernel.hpp>

#include "hangs.hpp"

using namespace strata;
using test::Hang;

namespace {

/// The lane that is at fault, or that is not served.
bool is_chosen(const Kernel& kernel, std::uint32_t block, ClusterLane lane) {
  return block == kernel.scalar<std::int64_t>(1) &&
         static_cast<std::int64_t>(lane) == kernel.scalar<std::int64_t>(2);
}
bool is_chosen(const Kernel& kernel) { return is_chosen(kernel, kernel.block(), kernel.lane()); }

void arrive(const Kernel& kernel) { std::atomic_ref(kernel.data<std::int64_t>(0)[0]).fetch_add(1); }

__attribute__((noinline)) void never_ends(const Kernel& kernel) {
  const std::atomic_ref x(kernel.data<std::int64_t>(0)[1]);
  while (x.load(std::memory_order_relaxed) == 0) {
  }
}

void meet(const Kernel& kernel) {
  const auto how = kernel.scalar<Hang>(0);
  if (is_chosen(kernel) && how == Hang::loop) never_ends(kernel);
  if (is_chosen(kernel) && how == Hang::signal) {
    auto* const word = kernel.data<std::int64_t>(0) + 1;
    kernel.wait_until(*reinterpret_cast<Signal*>(word), Compare::equal, 1);
  }
  kernel.barrier();
}

}  // namespace

STRATA_KERNEL(matrix_lane) {
  arrive(kernel);
  const auto how = kernel.scalar<Hang>(0);
  for (const ClusterLane lane : {ClusterLane::aiv0, ClusterLane::aiv1}) {
    if (is_chosen(kernel, kernel.block(), lane)) continue;
    const std::array<float, 1> message{1.0F};
    if (how == Hang::flag) kernel.set_flag(lane, 2);
    if (how == Hang::pipe) kernel.push(lane == ClusterLane::aiv0 ? 0 : 1, std::span(message));
  }
  meet(kernel);
}

STRATA_KERNEL(vector_lane) {
  arrive(kernel);
  const auto how = kernel.scalar<Hang>(0);
  std::array<float, 1> message{};
  if (how == Hang::flag) kernel.wait_flag(2);
  if (how == Hang::pipe) kernel.pop(kernel.vector_lane(), std::span(message));
  meet(kernel);
}
