// The public faces of the node: Worker and Buffer.

#include "strata/worker.hpp"

#include <atomic>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "node/live_workers.hpp"
#include "node/owned.hpp"
#include "node/worker_state.hpp"
#include "os/child_process.hpp"
#include "strata/error.hpp"

namespace strata {

using node::WorkerState;

namespace node {

namespace {

struct LiveWorkers {
  std::mutex mutex;
  std::vector<std::weak_ptr<WorkerState>> all;
};

LiveWorkers& registry() {
  static auto* const workers = new LiveWorkers;  // For destructors of static objects too.
  return *workers;
}

}  // namespace

void add_live_worker(const std::shared_ptr<WorkerState>& worker) {
  LiveWorkers& workers = registry();
  const std::lock_guard lock(workers.mutex);
  std::erase_if(workers.all, [](const auto& each) { return each.expired(); });
  workers.all.push_back(worker);
}

std::vector<std::shared_ptr<WorkerState>> live_workers() {
  LiveWorkers& workers = registry();
  const std::lock_guard lock(workers.mutex);
  std::vector<std::shared_ptr<WorkerState>> alive;
  for (const auto& each : workers.all) {
    if (auto worker = each.lock()) alive.push_back(std::move(worker));
  }
  return alive;
}

namespace {
/// Written by the SignalScope's thread and by its destructor, read by whoever begins something.
/// Relaxed: it says all there is to say by itself.
std::atomic<int> cancelling_signal{0};
}  // namespace

void note_cancelling_signal(int signal) noexcept {
  cancelling_signal.store(signal, std::memory_order_relaxed);
}

void throw_if_signalled(const char* caller) {
  const int signal = cancelling_signal.load(std::memory_order_relaxed);
  if (signal == 0) return;
  throw Cancelled(std::string(caller) + ": " + os::signal_name(signal) +
                  " was received, and there is a SignalScope");
}

}  // namespace node

// ---- Worker -------------------------------------------------------------------------------------

Worker::Worker(WorkerOptions options) : state_(std::make_shared<WorkerState>(std::move(options))) {
  node::add_live_worker(state_);
}

Worker::~Worker() {
  if (state_ == nullptr) return;
  if (state_->is_copy()) {
    // Nothing of it can end: the threads that would have to are in the process that forked. It is
    // left as it is.
    (void)new (std::nothrow) std::shared_ptr<WorkerState>(std::move(state_));
    return;
  }
  try {
    close();
  } catch (const std::exception& error) {
    state_->log().message(LogLevel::error, state_->options().name, error.what());
  }
}

void Worker::init() { state_->init(); }
void Worker::close() { close(state_->options().close_time_limit); }
void Worker::close(std::chrono::milliseconds time_limit) {
  if (!state_->is_copy()) state_->close(time_limit);
}
void Worker::cancel() noexcept {
  if (!state_->is_copy()) state_->cancel();
}
bool Worker::initialised() const noexcept { return state_->initialised(); }
CallableId Worker::add(const Callable& callable) { return state_->add(callable); }
void Worker::remove(CallableId program) { state_->remove(program); }
KindId Worker::any_sub() const { return state_->kind("sub"); }
KindId Worker::any_chip() const { return state_->kind("chip"); }
KindId Worker::any_next() const { return state_->kind("next"); }
LaneId Worker::sub(std::size_t index) const { return state_->lane("sub", index); }
LaneId Worker::chip(std::size_t index) const { return state_->lane("chip", index); }
LaneId Worker::next(std::size_t index) const { return state_->lane("next", index); }

Buffer Worker::create_buffer(std::size_t bytes) {
  auto buffer = state_->create_buffer(bytes);
  buffer->owner = state_;
  return Buffer(std::move(buffer));
}

ChipBuffer Worker::allocate_on(LaneId chip, std::size_t bytes) {
  auto buffer = state_->allocate_on(chip, bytes);
  buffer->owner = state_;
  return ChipBuffer(std::move(buffer));
}

Domain Worker::create_domain(const DomainOptions& options) {
  auto domain = state_->create_domain(options);
  domain->owner = state_;
  return Domain(std::move(domain));
}

ChipMemoryUsage Worker::chip_memory(LaneId chip) const { return state_->chip_memory().usage(chip); }

Run Worker::submit(Engine::OrchestrationFn orchestration, RunOptions options) {
  return state_->submit(std::move(orchestration), std::move(options));
}
Run Worker::run(const Engine::OrchestrationFn& orchestration, RunOptions options) {
  return state_->run(orchestration, std::move(options));
}
void Worker::cancel(TaskId task) { state_->cancel_task(task); }
void Worker::replace(LaneId lane) { state_->replace(lane); }
std::vector<ProcessStatus> Worker::processes() const { return state_->processes(); }
EngineStats Worker::stats() const { return state_->engine().stats(); }

// ---- Buffer -------------------------------------------------------------------------------------

Buffer::Buffer(Buffer&&) noexcept = default;

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  Buffer taken(std::move(other));
  std::swap(state_, taken.state_);
  return *this;
}

Buffer::~Buffer() { release(); }

void Buffer::release() noexcept {
  node::let_go(state_, [](WorkerState& owner, const auto& state) {
    owner.engine().remove_buffer_later(
        state->id, [&slabs = owner.slabs(), range = state->range] { slabs.release(range); });
  });
}

std::byte* Buffer::data() const noexcept {
  return state_ == nullptr ? nullptr : state_->range.data;
}
std::size_t Buffer::bytes() const noexcept { return state_ == nullptr ? 0 : state_->range.bytes; }
BufferId Buffer::id() const noexcept { return state_ == nullptr ? BufferId{} : state_->id; }

Tensor Buffer::tensor(DType dtype, std::span<const std::int64_t> shape,
                      std::size_t byte_offset) const {
  const Tensor tensor(id(), static_cast<std::int64_t>(byte_offset), dtype, shape);
  if (byte_offset > bytes() || static_cast<std::size_t>(tensor.bytes()) > bytes() - byte_offset) {
    throw InvalidArgument(
        "Buffer::tensor: " + tensor.to_string() + " needs " + std::to_string(tensor.bytes()) +
        " bytes at " + std::to_string(byte_offset) + "; the buffer has " + std::to_string(bytes()));
  }
  return tensor;
}

}  // namespace strata
