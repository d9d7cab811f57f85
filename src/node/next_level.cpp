#include "node/next_level.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "node/protocol.hpp"
#include "node/worker_state.hpp"
#include "os/deadline.hpp"
#include "strata/error.hpp"
#include "strata/orchestration.hpp"

namespace strata::node {
namespace {

/// How often a task looks whether it was cancelled.
constexpr std::chrono::milliseconds kLook{5};

/// The bytes that the elements of a tensor lie in. The frame's decoder has checked that nothing
/// overflows.
struct Reach {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
};

Reach reach_of(const detail::TensorRecord& tensor) {
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.dims[i] == 0) return {tensor.data, tensor.data};
    const std::int64_t last = (tensor.dims[i] - 1) * tensor.dims[tensor.rank + i];
    (last < 0 ? low : high) += last;
  }
  const auto element = static_cast<std::int64_t>(size_of(tensor.dtype));
  return {tensor.data + low * element, tensor.data + (high + 1) * element};
}

/// The memory of a task's tensors as buffers of an engine, as long as this lives.
class TaskBuffers {
 public:
  TaskBuffers(Engine& engine, const detail::ArgumentBlock& arguments) : engine_(engine) {
    try {
      add_buffers(arguments);
    } catch (...) {
      remove_buffers();
      throw;
    }
  }
  ~TaskBuffers() { remove_buffers(); }
  TaskBuffers(const TaskBuffers&) = delete;
  TaskBuffers& operator=(const TaskBuffers&) = delete;

  [[nodiscard]] const Tensor* tensors() const noexcept { return tensors_.data(); }

 private:
  struct Area {
    Reach reach;
    BufferId buffer;
  };

  void add_buffers(const detail::ArgumentBlock& arguments) {
    for (std::uint32_t i = 0; i < arguments.tensor_count; ++i)
      add(reach_of(arguments.tensors[i]));
    for (Area& area : areas_) {
      area.buffer = engine_.add_buffer(area.reach.begin,
                                       static_cast<std::size_t>(area.reach.end - area.reach.begin));
    }
    for (std::uint32_t i = 0; i < arguments.tensor_count; ++i) {
      tensors_.push_back(tensor_of(arguments.tensors[i]));
    }
  }

  /// Adds a reach; one that overlaps others becomes one with them.
  void add(Reach reach) {
    if (reach.begin == reach.end) return;
    std::erase_if(areas_, [&](const Area& area) {
      if (area.reach.begin >= reach.end || reach.begin >= area.reach.end) return false;
      reach.begin = std::min(reach.begin, area.reach.begin);
      reach.end = std::max(reach.end, area.reach.end);
      return true;
    });
    areas_.push_back({.reach = reach, .buffer = {}});
  }

  [[nodiscard]] Tensor tensor_of(const detail::TensorRecord& record) const {
    const std::span shape(record.dims, record.rank);
    const std::span strides(record.dims + record.rank, record.rank);
    const Reach reach = reach_of(record);
    if (reach.begin == reach.end) return Tensor(record.dtype, shape);
    for (const Area& area : areas_) {
      if (reach.begin < area.reach.begin || reach.begin >= area.reach.end) continue;
      return Tensor(area.buffer, record.data - area.reach.begin, record.dtype, shape, strides);
    }
    throw InvalidState("a tensor of the task lies nowhere");  // add() has seen it.
  }

  void remove_buffers() noexcept {
    for (const Area& area : areas_) {
      // Every run that knew of it has ended.
      if (area.buffer) engine_.remove_buffer_later(area.buffer, [] {});
    }
  }

  Engine& engine_;
  std::vector<Area> areas_;
  std::vector<Tensor> tensors_;
};

Placement placement_of(const Configuration& configuration) {
  return {.first_slab = configuration.first_slab,
          .slab_numbers = configuration.slab_numbers,
          .tree_page = kTreeFd,
          .start_deadline = os::Deadline::from_monotonic_ns(configuration.deadline_ns),
          .cpus = configuration.cpus};
}

}  // namespace

NextLevelRunner::NextLevelRunner(const Configuration& configuration)
    : worker_(WorkerAccess::make(configuration.options.value(), placement_of(configuration))) {}

NextLevelRunner::~NextLevelRunner() = default;

Listener NextLevelRunner::listener() {
  SlabStore& slabs = WorkerAccess::state(*worker_).slabs();
  return {
      .added = [&slabs](std::uint32_t slab, std::uint64_t bytes, os::UniqueFd memory,
                        std::byte* data) { slabs.attach(slab, bytes, std::move(memory), data); },
      .dropped = [&slabs](std::uint32_t slab) { slabs.detach(slab); },
      .stop = [worker = worker_.get()] { worker->cancel(); }};
}

void NextLevelRunner::init() { worker_->init(); }

void NextLevelRunner::close() { worker_->close(); }

void NextLevelRunner::run(const TaskCall& call, WorkerTask::Services& services) {
  const auto orchestration = call.callable.code.orchestration;
  if (orchestration == nullptr) {
    throw InvalidArgument("'" + call.callable.name +
                          "' is no orchestration, which is what a next-level worker runs; register"
                          " it with Callable::as_orchestration");
  }
  Engine& engine = WorkerAccess::state(*worker_).engine();
  const TaskBuffers buffers(engine, call.arguments);
  services.tensors = buffers.tensors();
  const TaskContext context(call.arguments, call.place, CancelToken::look, &call.token);
  WorkerTask task(context, services);
  RunOptions options;
  options.name = call.place.name.empty() ? call.callable.name : std::string(call.place.name);
  const Run run = worker_->submit([&](Orchestration& open) { orchestration(*worker_, open, task); },
                                  std::move(options));
  bool told = false;
  while (!run.wait_for(kLook)) {
    if (told || !call.token.cancelled()) continue;
    run.cancel();
    told = true;
  }
  services.tensors = nullptr;
  run.result();
}

}  // namespace strata::node
