// Collectives as tasks of a node orchestration: each is a group, one member on the chip of every
// rank, all started together. So two of them can't wait for each other.
//
//   strata::all_reduce(run, domain, in, out, strata::ReduceOp::sum);
//
// in[r] and out[r] are what rank r reads and writes: contiguous tensors of one dtype that a task on
// its chip can use: buffers, runtime-allocated tensors, memory of that chip, slices of its window
// (those are not copied). Dependencies are inferred from them as for any task. in[r] and out[r] may
// be the same tensor ("in place"; where one is larger, the smaller is part r of it). What is
// written must not overlap otherwise.
//
// All throw InvalidArgument for what does not fit the domain (counts, dtypes, the number of
// tensors, a root or channel that is not there), ChipError (foreign_memory) for memory of another
// chip, and CommError (rank_left) if the domain is broken; nothing is submitted then. Ranks that
// fail later fail the whole task.
//
// Thread safety: as the Orchestration.
#pragma once

#include <cstdint>
#include <span>

#include "strata/communicator.hpp"
#include "strata/domain.hpp"
#include "strata/ids.hpp"
#include "strata/orchestration.hpp"
#include "strata/tensor.hpp"

namespace strata {

/// out[r] = all in, combined; the same bits on every rank.
TaskId all_reduce(Orchestration& run, const Domain& domain, std::span<const Tensor> in,
                  std::span<const Tensor> out, ReduceOp op, CollectiveOptions options = {});
/// out[r] = part r of the combined inputs, each of size() parts.
TaskId reduce_scatter(Orchestration& run, const Domain& domain, std::span<const Tensor> in,
                      std::span<const Tensor> out, ReduceOp op, CollectiveOptions options = {});
/// out[r] = all in, one behind the other.
TaskId all_gather(Orchestration& run, const Domain& domain, std::span<const Tensor> in,
                  std::span<const Tensor> out, CollectiveOptions options = {});
/// data[r] = data[root].
TaskId broadcast(Orchestration& run, const Domain& domain, std::span<const Tensor> data,
                 std::uint32_t root, CollectiveOptions options = {});
/// Part p of out[r] = part r of in[p].
TaskId all_to_all(Orchestration& run, const Domain& domain, std::span<const Tensor> in,
                  std::span<const Tensor> out, CollectiveOptions options = {});
/// out = all in, combined, on rank `root`.
TaskId reduce(Orchestration& run, const Domain& domain, std::span<const Tensor> in,
              const Tensor& out, ReduceOp op, std::uint32_t root, CollectiveOptions options = {});
/// Done when all ranks have been in it.
TaskId barrier(Orchestration& run, const Domain& domain, std::uint32_t channel = 0);
/// `to` on rank `to_rank` = `from` on rank `from_rank`.
TaskId send_recv(Orchestration& run, const Domain& domain, std::uint32_t from_rank,
                 const Tensor& from, std::uint32_t to_rank, const Tensor& to,
                 std::uint32_t channel = 0);

}  // namespace strata
