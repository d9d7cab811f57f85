#include <algorithm>
#include <strata/communicator.hpp>

#include "collectives.hpp"

using strata::detail::CollectiveKind;

STRATA_KERNEL(collective) {
  const strata::Communicator ranks(kernel, *kernel.data<strata::DomainContext>(0));
  const auto [kind, op, dtype, algorithm, root] = kernel.scalar<strata::test::KernelCollective>(0);
  const auto count = kernel.scalar<std::uint64_t>(1);
  const auto* const in = kernel.data<std::uint8_t>(1);
  auto* const out = kernel.data<std::uint8_t>(2);
  switch (kind) {
    case CollectiveKind::all_reduce:
      return ranks.all_reduce(in, out, count, dtype, op, {.algorithm = algorithm});
    case CollectiveKind::reduce_scatter:
      return ranks.reduce_scatter(in, out, count, dtype, op);
    case CollectiveKind::all_gather:
      return ranks.all_gather(in, out, count, dtype);
    case CollectiveKind::broadcast:
      if (ranks.rank() == root) std::copy_n(in, count * strata::size_of(dtype), out);
      return ranks.broadcast(out, count, dtype, root);
    case CollectiveKind::all_to_all:
      return ranks.all_to_all(in, out, count, dtype);
    case CollectiveKind::reduce:
      return ranks.reduce(in, out, count, dtype, op, root);
    default:
      return ranks.barrier();
  }
}
