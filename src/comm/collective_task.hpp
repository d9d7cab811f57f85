// A collective, or a message between two ranks, as a task on the chip of each rank: what its
// scalars say, and the function that does it on the main thread of the chip worker.
//
// Tensors of the task: the DomainContext of the rank; then the input, or what is input and output
// at once; then the output, if it lies elsewhere. A rank that only gives or only takes has one.
//
// Thread safety: plain values; the function runs as any task.
#pragma once

#include <array>
#include <cstdint>

#include "strata/domain_context.hpp"
#include "strata/task.hpp"
#include "strata/worker_task.hpp"

namespace strata::comm {

/// What all ranks are told alike.
struct CollectiveOrder {
  /// `none`: a message from rank `root` to rank `to`.
  detail::CollectiveKind kind = detail::CollectiveKind::none;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::uint8;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::automatic;
  std::uint32_t root = 0;
  std::uint32_t channel = 0;
  std::uint32_t to = 0;
  std::uint64_t count = 0;  ///< As in CollectiveCall.

  using Scalars = std::array<Scalar, 3>;
  [[nodiscard]] Scalars scalars() const noexcept;
  [[nodiscard]] static CollectiveOrder of(const TaskContext& task) noexcept;
};

/// Does it on this rank; the builtin `collective`. Throws what the collective throws.
void run_collective_task(WorkerTask& task);

}  // namespace strata::comm
