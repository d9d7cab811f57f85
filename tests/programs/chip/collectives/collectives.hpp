// What the chip program `collectives` is told: which collective its kernel calls. Tensors are bytes
// of whatever type is named here.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>

#include "strata/domain_context.hpp"

namespace strata::test {

struct KernelCollective {
  detail::CollectiveKind kind = detail::CollectiveKind::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::uint8;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::automatic;
  std::uint32_t root = 0;
};
static_assert(sizeof(KernelCollective) == 8);

}  // namespace strata::test
