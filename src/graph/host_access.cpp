// An orchestration's own accesses to tensors: it takes part in the graph like any task, as a node
// that no lane runs. When the node is ready it is the orchestration's turn; when it is done it ends
// the node.

#include <utility>

#include "graph/engine_state.hpp"

namespace strata::graph {

void EngineState::host_access(OrchestrationState& orchestration, std::string_view what,
                              const TensorArg* arg, TaskId after,
                              const std::function<void()>& access) {
  HostWait host;
  host.parker = shared_thread_parker();
  Body none;
  PartSpec part{.body = &none};
  if (arg != nullptr) part.tensors = {arg, 1};
  NodeSpec spec{.type = NodeType::host, .parts = {&part, 1}, .name = what, .host = &host};
  if (after) spec.after = {&after, 1};
  TaskId id;
  TaskNode& node = *submit(orchestration, spec, id);
  wait_until([&] { return host.ready.load(std::memory_order_acquire); },
             std::chrono::steady_clock::time_point::max());
  // Copied while the node is ours: its failure is kept as long as something is in flight.
  const Failure* const poison = node.poison.load(std::memory_order_relaxed);
  const bool reads = arg == nullptr || arg->access != Access::out;
  if (poison != nullptr && reads) {
    const TaskFailure cause = poison->what;
    TaskFailure failure{.task = id,
                        .name = std::string(what),
                        .message = "needs what task " + std::to_string(cause.task.number()) +
                                   (cause.name.empty() ? "" : " '" + cause.name + "'") +
                                   " should have written, which failed: " + cause.message,
                        .cause = cause.task,
                        .exception = nullptr};
    // A read leaves everything as it is; nothing is marked invalid for it.
    (void)finish(node, nullptr, nullptr);
    if (orchestration.run->cancelled()) throw_if_ended(*orchestration.run);
    const std::string message =
        orchestration.run->name + ": Orchestration::" + std::string(what) + " " + failure.message;
    throw RunFailed(message, {cause}, {std::move(failure)});
  }
  if (orchestration.run->cancelled()) {
    (void)finish(node, nullptr, nullptr);
    throw_if_ended(*orchestration.run);
  }
  if (access) access();
  (void)finish(node, nullptr, nullptr);
}

void EngineState::wait_for_last_user(BufferRecord& buffer) {
  std::shared_ptr<RunState> run;
  {
    const std::lock_guard lock(runs_mutex);
    run = std::make_shared<RunState>(this, next_run_++, RunOptions{.name = "remove_buffer"});
  }
  OrchestrationState orchestration(*this, run);
  if (buffer.bytes != 0) {
    const Tensor all(buffer.id, 0, DType::uint8, std::span(&buffer.bytes, 1));
    const TensorArg arg = out(all);
    host_access(orchestration, "overwrite", &arg, {}, {});
  }
  // What the tracker does not know of: no_dep and manual scopes.
  wait_for_users(orchestration, buffer);
}

void EngineState::remove_later(BufferRecord& buffer, std::function<void()> freed,
                               std::unique_lock<os::AdaptiveMutex> graph_lock) {
  auto* const removal = new BufferRemoval;
  removal->reset_for_submit(0, NodeType::removal, nullptr);
  removal->record = &buffer;
  removal->freed = std::move(freed);
  buffer.removal = removal;
  const std::int32_t waiting = tracker.link_users(buffer, *removal);
  tracker.forget(buffer);
  buffers.hide(buffer);
  // Users that the tracker does not follow may end at any time: from here on the last of all is
  // told apart. Acquire and release: as when a user is dropped.
  buffer.holders.fetch_add(BufferRecord::kRemoving + 1, std::memory_order_acq_rel);
  graph_lock.unlock();
  if (removal->drop_guard(waiting)) (void)finish(*removal, nullptr, nullptr);
}

std::byte* EngineState::address_of(const Tensor& tensor) {
  const std::lock_guard lock(graph_mutex);
  const BufferRecord* record = buffers.find(tensor.buffer());
  if (record == nullptr || record->data == nullptr) {
    throw InvalidArgument("an orchestration can't reach " + tensor.to_string() +
                          ": its buffer has no address in this process");
  }
  return record->data + tensor.byte_offset();
}

}  // namespace strata::graph
