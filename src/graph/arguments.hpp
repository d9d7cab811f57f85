// How a task's arguments lie in its slot: tensor records, then their extents and strides, then
// scalars, one part after the other.
#pragma once

#include "graph/engine_state.hpp"

namespace strata::graph {

/// Copies bodies and arguments of `spec` into the slot, and takes a reference on each buffer whose
/// storage is counted. Graph lock held; the buffers exist.
void place_arguments(TaskNode& task, const NodeSpec& spec, BufferTable& buffers);

/// The record of a tensor argument whose extents and strides lie at `dims`. The task holds the
/// buffer if that is of the heap or nobody else will know that it is used. Graph lock held.
[[nodiscard]] detail::TensorRecord make_record(const Tensor& tensor, Access access,
                                               Tracking tracking, const std::int64_t* dims,
                                               bool unknown_to_tracker, BufferTable& buffers);

/// Moves the bodies back to where they came from, for a submission that is refused after all.
void give_bodies_back(TaskNode& task, const NodeSpec& spec);

}  // namespace strata::graph
