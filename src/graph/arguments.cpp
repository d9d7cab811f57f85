#include "graph/arguments.hpp"

#include "base/planted_fault.hpp"

namespace strata::graph {

namespace {

static_assert(sizeof(detail::TensorRecord) % alignof(std::int64_t) == 0);

std::size_t bytes_of(const PartSpec& part) noexcept {
  std::size_t bytes = part.scalars.size() * sizeof(std::uint64_t);
  for (const TensorArg& arg : part.tensors) {
    bytes += sizeof(detail::TensorRecord) +
             2 * static_cast<std::size_t>(arg.tensor->rank()) * sizeof(std::int64_t);
  }
  return bytes;
}

/// Lays out one part at `at`; returns the first byte behind it.
std::byte* place_part(TaskNode& task, TaskPart& to, const PartSpec& part, bool tracked,
                      BufferTable& buffers, std::byte* at) {
  to.body = part.body;
  if (!part.shared) {
    to.own_body = std::move(*part.body);
    to.body = &to.own_body;
  }
  auto* record = reinterpret_cast<detail::TensorRecord*>(at);
  auto* dims = reinterpret_cast<std::int64_t*>(record + part.tensors.size());
  to.arguments.tensors = record;
  to.arguments.tensor_count = static_cast<std::uint32_t>(part.tensors.size());
  for (const TensorArg& arg : part.tensors) {
    const Tensor& tensor = *arg.tensor;
    write_record(*record, tensor, arg.access, arg.tracking, arg.dumped, dims, tracked, buffers);
    if ((record->flags & kCountedStorage) != 0) [[unlikely]] {
      task.counted_storage = true;
      buffers.at(tensor.buffer()).holders.fetch_add(1, std::memory_order_relaxed);
    }
    ++record;
    const int rank = tensor.rank();
    for (int d = 0; d < rank; ++d) {
      dims[d] = tensor.extent(d);
      dims[rank + d] = tensor.stride(d);
    }
    dims += 2 * rank;
  }
  auto* scalars = reinterpret_cast<std::uint64_t*>(dims);
  to.arguments.scalars = scalars;
  to.arguments.scalar_count = static_cast<std::uint32_t>(part.scalars.size());
  for (const Scalar& scalar : part.scalars)
    *scalars++ = scalar.bits;
  return reinterpret_cast<std::byte*>(scalars);
}

}  // namespace

void place_arguments(TaskNode& task, const NodeSpec& spec, bool tracked, BufferTable& buffers) {
  std::size_t bytes = 0;
  for (const PartSpec& part : spec.parts)
    bytes += bytes_of(part);
  std::byte* at = task.inline_arguments.data();
  if (bytes > TaskNode::kInlineArgumentBytes) [[unlikely]] {
    if (task.large_arguments.size() < bytes) task.large_arguments.resize(bytes);
    at = task.large_arguments.data();
  }
  if (spec.type != NodeType::group) [[likely]] {
    place_part(task, task.part, spec.parts[0], tracked, buffers, at);
    return;
  }
  if (task.group == nullptr) task.group = std::make_unique<GroupState>();
  GroupState& group = *task.group;
  group.size = spec.parts.size();
  while (group.parts.size() < group.size)
    group.parts.push_back(std::make_unique<GroupPart>());
  for (std::size_t i = 0; i < group.size; ++i) {
    at = place_part(task, *group.parts[i], spec.parts[i], tracked, buffers, at);
    group.parts[i]->lane = spec.parts[i].lane;
  }
  group.members_left.store(static_cast<std::uint32_t>(group.size), std::memory_order_relaxed);
  group.failed.store(false, std::memory_order_relaxed);
  group.dropped = false;
}

void give_bodies_back(TaskNode& task, const NodeSpec& spec) {
  for (std::size_t i = 0; i < spec.parts.size(); ++i) {
    if (!spec.parts[i].shared) *spec.parts[i].body = std::move(task.part_at(i).own_body);
  }
}

}  // namespace strata::graph
