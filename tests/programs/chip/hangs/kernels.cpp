#include <atomic>
#include <strata/kernel.hpp>

#include "hangs.hpp"

using namespace strata;
using test::Hang;

namespace {

/// The lane that is at fault.
bool is_chosen(const Kernel& kernel) {
  return kernel.block() == kernel.scalar<std::int64_t>(1) &&
         static_cast<std::int64_t>(kernel.lane()) == kernel.scalar<std::int64_t>(2);
}

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
  meet(kernel);
}

STRATA_KERNEL(vector_lane) {
  arrive(kernel);
  meet(kernel);
}
