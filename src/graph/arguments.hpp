// How a task's arguments lie in its slot: tensor records, then their extents and strides, then
// scalars, one part after the other.
#pragma once

#include <algorithm>

#include "base/planted_fault.hpp"
#include "graph/engine_state.hpp"

namespace strata::graph {

/// Copies bodies and arguments of `spec` into the slot, and takes a reference on each buffer whose
/// users are counted. `tracked`: false in manual scopes, where the dependency tracker sees nothing.
/// Graph lock held; the buffers exist.
void place_arguments(TaskNode& task, const NodeSpec& spec, bool tracked, BufferTable& buffers);

/// Writes the record of a tensor argument whose extents and strides lie at `dims`, field by field
/// into its place: a copy of what was just written in smaller pieces would stall. The task holds
/// the buffer if that is of the heap or nobody else will know that it is used. Graph lock held.
inline void write_record(detail::TensorRecord& record, const Tensor& tensor, Access access,
                         Tracking tracking, bool dumped, const std::int64_t* dims, bool tracked,
                         BufferTable& buffers) {
  const BufferRecord& buffer = buffers.at(tensor.buffer());
  const Tracking weaker = std::max(tracking, tensor.tracking());
  const bool counted = (buffer.block.has_value() || !tracked || weaker != Tracking::full) &&
                       !base::planted("heap_freed_before_last_user");
  record.data = buffer.data == nullptr ? nullptr : buffer.data + tensor.byte_offset();
  record.dims = dims;
  record.buffer = tensor.buffer();
  record.byte_offset = tensor.byte_offset();
  record.dtype = tensor.dtype();
  record.access = access;
  record.tracking = weaker;
  record.rank = static_cast<std::uint8_t>(tensor.rank());
  record.flags = (counted ? kCountedStorage : 0) | (dumped ? detail::kDumped : 0);
}

/// Moves the bodies back to where they came from, for a submission that is refused after all.
void give_bodies_back(TaskNode& task, const NodeSpec& spec);

}  // namespace strata::graph
