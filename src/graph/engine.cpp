// The public faces of the engine: Engine, Orchestration, Scope, TensorHandle, LaneHold.

#include "strata/engine.hpp"

#include <cstring>
#include <mutex>

#include "graph/engine_state.hpp"
#include "graph/recorder.hpp"

namespace strata {

using graph::BufferRecord;
using graph::EngineState;
using graph::OrchestrationState;

std::string_view name_of(Hazard hazard) noexcept {
  switch (hazard) {
    case Hazard::read_after_write:
      return "read after write";
    case Hazard::write_after_write:
      return "write after write";
    case Hazard::write_after_read:
      return "write after read";
    case Hazard::explicit_after:
      return "after";
    case Hazard::creator:
      return "creator";
  }
  return "?";
}

std::string_view name_of(TaskState state) noexcept {
  switch (state) {
    case TaskState::waiting:
      return "waiting";
    case TaskState::ready:
      return "ready";
    case TaskState::running:
      return "running";
    case TaskState::done:
      return "done";
    case TaskState::failed:
      return "failed";
    case TaskState::skipped:
      return "skipped";
  }
  return "?";
}

// ---- Engine -------------------------------------------------------------------------------------

Engine::Engine(EngineOptions options) : state_(std::make_unique<EngineState>(std::move(options))) {}
Engine::~Engine() = default;

Run Engine::submit(OrchestrationFn orchestration, RunOptions options) {
  if (!orchestration) throw InvalidArgument("Engine::submit: the orchestration is empty");
  return Run(state_->submit_run(std::move(orchestration), std::move(options)));
}

Run Engine::run(const OrchestrationFn& orchestration, RunOptions options) {
  if (!orchestration) throw InvalidArgument("Engine::run: the orchestration is empty");
  Run run(state_->run_here(orchestration, std::move(options)));
  run.result();
  return run;
}

BufferId Engine::add_buffer(void* data, std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(INT64_MAX)) {
    throw InvalidArgument("Engine::add_buffer: " + std::to_string(bytes) + " bytes are too many");
  }
  const std::lock_guard lock(state_->graph_mutex);
  BufferRecord& record = state_->buffers.add();
  record.data = static_cast<std::byte*>(data);
  record.bytes = static_cast<std::int64_t>(bytes);
  return record.id;
}

namespace {
/// The record of a buffer that the caller added. Graph lock held.
BufferRecord& callers_buffer(EngineState& engine, BufferId buffer, const char* caller) {
  BufferRecord* const record = engine.buffers.find(buffer);
  if (record != nullptr && !record->block.has_value()) return *record;
  throw InvalidArgument(std::string("Engine::") + caller + ": buffer " +
                        std::to_string(buffer.value) +
                        " is not one that was added to this engine and not removed since");
}
}  // namespace

void Engine::remove_buffer(BufferId buffer) {
  BufferRecord* record = nullptr;
  {
    const std::lock_guard lock(state_->graph_mutex);
    record = &callers_buffer(*state_, buffer, "remove_buffer");
  }
  state_->wait_for_last_user(*record);
  const std::lock_guard lock(state_->graph_mutex);
  state_->tracker.forget(*record);
  state_->buffers.retire(*record);
}

void Engine::remove_buffer_later(BufferId buffer, std::function<void()> freed) {
  std::unique_lock lock(state_->graph_mutex);
  BufferRecord& record = callers_buffer(*state_, buffer, "remove_buffer_later");
  state_->remove_later(record, std::move(freed), std::move(lock));
}

Tensor Engine::tensor_over(void* data, std::size_t bytes, DType dtype,
                           std::span<const std::int64_t> shape) {
  const Tensor whole(BufferId{}, 0, dtype, shape);
  if (whole.bytes() < 0 || static_cast<std::size_t>(whole.bytes()) > bytes) {
    throw InvalidArgument("Engine::tensor: " + whole.to_string() + " needs " +
                          std::to_string(whole.bytes()) + " bytes; the memory has " +
                          std::to_string(bytes));
  }
  return Tensor(add_buffer(data, bytes), 0, dtype, shape);
}

void Engine::complete(DispatchId dispatch, const std::exception_ptr& error) {
  state_->complete_external(dispatch, error);
}

void Engine::complete(DispatchId dispatch, const std::exception_ptr& error, std::string value) {
  state_->complete_external(dispatch, error, &value);
}

void Engine::give_back(DispatchId dispatch) {
  // As in complete(): somebody else may end the run meanwhile.
  const EngineState::Guest guest(*state_);
  state_->scheduler.give_back(dispatch);
}

void Engine::suspend_lane(LaneId lane) { state_->scheduler.suspend(lane); }
void Engine::resume_lane(LaneId lane) { state_->scheduler.resume(lane); }
bool Engine::lane_is_suspended(LaneId lane) const { return state_->scheduler.suspended(lane); }
void Engine::fail_kind(KindId kind, std::exception_ptr error) {
  state_->scheduler.fail_kind(kind, std::move(error));
}

bool Engine::runs(const Orchestration& orchestration) const noexcept {
  return &orchestration.state_->engine == state_.get();
}

TaskId Engine::last_task() const {
  const std::lock_guard lock(state_->graph_mutex);
  return TaskId{(state_->next_task << graph::kSlotBits) - 1};
}

KindId Engine::kind(std::string_view name) const {
  std::string known;
  for (const auto& kind : state_->scheduler.kinds()) {
    if (kind->name == name) return kind->id;
    known += (known.empty() ? "'" : ", '") + kind->name + "'";
  }
  throw InvalidArgument("Engine::kind: there is no kind '" + std::string(name) + "'; there is " +
                        known);
}

std::vector<LaneId> Engine::lanes(KindId kind) const {
  if (kind.value >= state_->kind_count) {
    throw InvalidArgument("Engine::lanes: kind " + std::to_string(kind.value) + " does not exist");
  }
  std::vector<LaneId> ids;
  for (const graph::Lane* lane : state_->scheduler.kinds()[kind.value]->lanes) {
    ids.push_back(lane->id);
  }
  return ids;
}

LaneHold Engine::hold_lanes() {
  {
    const std::lock_guard lock(state_->blocked_mutex);
    state_->holders.push_back(std::this_thread::get_id());
  }
  state_->scheduler.hold();
  return LaneHold(state_.get());
}

LaneHold::~LaneHold() {
  if (engine_ == nullptr) return;
  {
    const std::lock_guard lock(engine_->blocked_mutex);
    const auto mine =
        std::find(engine_->holders.begin(), engine_->holders.end(), std::this_thread::get_id());
    if (mine != engine_->holders.end()) {
      engine_->holders.erase(mine);
    } else if (!engine_->holders.empty()) {
      engine_->holders.pop_back();  // Moved to another thread since.
    }
  }
  engine_->scheduler.release_hold();
}

EngineStats Engine::stats() const { return state_->stats(); }

// ---- Orchestration ------------------------------------------------------------------------------

namespace {
/// Recording: what an orchestration may not do.
void refuse_while_recording(const OrchestrationState& state, const char* what) {
  if (state.recorder != nullptr) {
    throw RecordingError(std::string("Orchestration::") + what +
                         " can't be recorded: its outcome would be frozen into the recording");
  }
}

std::int64_t element_offset(const Tensor& tensor, std::span<const std::int64_t> index, DType dtype,
                            const char* what) {
  if (tensor.dtype() != dtype) {
    throw InvalidArgument(std::string("Orchestration::") + what + ": the tensor holds " +
                          std::string(name_of(tensor.dtype())) + ", not " +
                          std::string(name_of(dtype)));
  }
  if (static_cast<int>(index.size()) != tensor.rank()) {
    throw InvalidArgument(std::string("Orchestration::") + what + ": " +
                          std::to_string(index.size()) + " indices for " + tensor.to_string());
  }
  std::int64_t element = 0;
  for (std::size_t d = 0; d < index.size(); ++d) {
    const int dim = static_cast<int>(d);
    if (index[d] < 0 || index[d] >= tensor.extent(dim)) {
      throw InvalidArgument(std::string("Orchestration::") + what + ": index " +
                            std::to_string(index[d]) + " is outside dimension " +
                            std::to_string(d) + " of " + tensor.to_string());
    }
    element += index[d] * tensor.stride(dim);
  }
  return tensor.byte_offset() + element * static_cast<std::int64_t>(size_of(dtype));
}
}  // namespace

TaskId Orchestration::submit_task(TaskSpec& spec) {
  if (state_->recorder != nullptr) return state_->recorder->submit_task(*state_, spec);
  return state_->engine.submit_task(*state_, spec);
}

TaskId Orchestration::submit_group(const GroupSpec& spec) {
  if (state_->recorder != nullptr) return state_->recorder->submit_group(*state_, spec);
  return state_->engine.submit_group(*state_, spec);
}

Tensor Orchestration::allocate(DType dtype, std::span<const std::int64_t> shape, const void* fill) {
  refuse_while_recording(*state_, "allocate");
  return state_->engine.allocate(*state_, dtype, shape, fill);
}

Scope Orchestration::scope(ScopeOptions options) {
  if (state_->recorder != nullptr) {
    state_->recorder->open_scope(options.manual);
    return Scope(this, state_->recorder->depth());
  }
  state_->open_scope(options.name, options.manual);
  return Scope(this, state_->scopes.size());
}

void Orchestration::close_scope(std::size_t depth) {
  if (state_->recorder != nullptr) {
    state_->recorder->close_scope(depth);
    return;
  }
  if (state_->scopes.size() < depth) {
    throw InvalidState("Scope::close: the scope is closed already");
  }
  if (state_->scopes.size() > depth) {
    throw InvalidState("Scope::close: scope '" + state_->scopes[depth - 1]->path +
                       "' still has the open scope '" + state_->scopes.back()->path + "' in it");
  }
  state_->close_scopes_to(depth - 1);
}

void Scope::close() {
  if (owner_ == nullptr) throw InvalidState("Scope::close: the scope is closed already");
  owner_->close_scope(depth_);  // May refuse: then the scope stays open, and ours to close.
  owner_ = nullptr;
}

Scope::~Scope() {
  if (owner_ == nullptr) return;
  // Scopes are left in the reverse order by the language itself; one that was left otherwise has
  // been closed with the one around it.
  try {
    owner_->close_scope(depth_);
  } catch (const InvalidState&) {
  }
}

TensorHandle Orchestration::keep(const Tensor& tensor) {
  refuse_while_recording(*state_, "keep");
  EngineState& engine = state_->engine;
  TensorHandle handle;
  {
    const std::lock_guard lock(engine.graph_mutex);
    BufferRecord* record = engine.buffers.find(tensor.buffer());
    if (record == nullptr || !record->block.has_value()) {
      throw InvalidArgument("Orchestration::keep: " + tensor.to_string() +
                            " has no live storage from the engine's heap");
    }
    record->holders.fetch_add(1, std::memory_order_relaxed);
    record->handles.fetch_add(1, std::memory_order_relaxed);
    handle.tensor_ = tensor;
    handle.state_ =
        std::make_unique<graph::HandleState>(graph::HandleState{engine.handles, record});
  }
  if (engine.blocked_count.load(std::memory_order_relaxed) != 0) engine.prove_blocked();
  return handle;
}

TensorHandle::TensorHandle() noexcept = default;
TensorHandle::TensorHandle(TensorHandle&&) noexcept = default;
TensorHandle& TensorHandle::operator=(TensorHandle&& other) noexcept {
  TensorHandle old(std::move(*this));
  tensor_ = other.tensor_;
  state_ = std::move(other.state_);
  return *this;
}
TensorHandle::~TensorHandle() {
  if (state_ == nullptr) return;
  const std::lock_guard lock(state_->registry->mutex);
  EngineState* const engine = state_->registry->engine;
  if (engine == nullptr) return;  // The storage went with it.
  state_->record->handles.fetch_sub(1, std::memory_order_relaxed);
  if (engine->storage.release(*state_->record)) engine->room_changed();
}
std::byte* TensorHandle::data() const noexcept {
  if (state_ == nullptr) return nullptr;
  const std::lock_guard lock(state_->registry->mutex);
  if (state_->registry->engine == nullptr) return nullptr;
  return state_->record->data + tensor_.byte_offset();
}

void Orchestration::wait(const Tensor& tensor) {
  refuse_while_recording(*state_, "wait");
  const TensorArg arg = in(tensor);
  state_->engine.host_access(*state_, "wait", &arg, {}, {});
}

void Orchestration::wait(TaskId task) {
  refuse_while_recording(*state_, "wait");
  state_->engine.host_access(*state_, "wait", nullptr, task, {});
}

void Orchestration::read_element(const Tensor& tensor, std::span<const std::int64_t> index,
                                 DType dtype, void* value) {
  refuse_while_recording(*state_, "read");
  const Tensor element(tensor.buffer(), element_offset(tensor, index, dtype, "read"), dtype, {});
  const TensorArg arg = in(element);
  const std::byte* const address = state_->engine.address_of(element);
  state_->engine.host_access(*state_, "read", &arg, {},
                             [&] { std::memcpy(value, address, size_of(dtype)); });
}

void Orchestration::write_element(const Tensor& tensor, std::span<const std::int64_t> index,
                                  DType dtype, const void* value) {
  refuse_while_recording(*state_, "write");
  const Tensor element(tensor.buffer(), element_offset(tensor, index, dtype, "write"), dtype, {});
  const TensorArg arg = out(element);
  std::byte* const address = state_->engine.address_of(element);
  state_->engine.host_access(*state_, "write", &arg, {},
                             [&] { std::memcpy(address, value, size_of(dtype)); });
}

void Orchestration::overwrite(const Tensor& tensor) {
  refuse_while_recording(*state_, "overwrite");
  const TensorArg arg = out(tensor);
  state_->engine.host_access(*state_, "overwrite", &arg, {}, {});
}

bool Orchestration::cancelled() const noexcept {
  return state_->run != nullptr && state_->run->cancelled();
}

Run Orchestration::run() const {
  refuse_while_recording(*state_, "run");
  return Run(state_->run);
}

}  // namespace strata
