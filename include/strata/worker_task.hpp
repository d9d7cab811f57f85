// WorkerTask: what a function sees that runs as a task in a worker process; and how such functions
// are made known.
//
// In a shared library, found by path and symbol:
//
//   STRATA_WORKER_FUNCTION(scale) {
//     for (std::int64_t i = 0; i < task.tensor(0).extent(0); ++i) task.data<float>(0)[i] *= 2;
//   }
//
// In the user's own executable, at namespace scope, found by name (see ProcessScope):
//
//   const strata::WorkerFunction scale("scale", [](strata::WorkerTask& task) { ... });
//
// What a function throws fails its task: the caller gets the type and the whole text.
//
// Thread safety: a WorkerTask belongs to the function it was given to, until that returns.
// cancelled() may be called from any thread meanwhile.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "strata/task_context.hpp"
#include "strata/tensor.hpp"

namespace strata {

class Orchestration;
class Worker;

class WorkerTask : public TaskContext {
 public:
  /// How the worker process answers; not for users.
  struct Services {
    std::string value;
    bool has_value = false;
    std::string_view worker;          ///< Path of the worker, "node/sub[1]".
    const Tensor* tensors = nullptr;  ///< Arguments as tensors of the Worker here, or null.
  };
  WorkerTask(const TaskContext& context, Services& services) noexcept
      : TaskContext(context), services_(&services) {}

  /// Returns bytes of any number to the run: Run::value(task) there. The last call counts; of a
  /// task that fails they are dropped.
  void set_value(std::string bytes) {
    services_->value = std::move(bytes);
    services_->has_value = true;
  }
  /// Path of the worker that runs the task: "node/sub[1]".
  [[nodiscard]] std::string_view worker() const noexcept { return services_->worker; }
  /// Orchestrations of next-level workers: tensor argument i, to submit tasks with. Valid until the
  /// orchestration's run has ended.
  [[nodiscard]] const Tensor& as_tensor(std::size_t i) const noexcept {
    return services_->tensors[i];
  }

 private:
  Services* services_;
};

/// Makes a function of the user's executable known by name. An object at namespace scope; the name
/// must live as long as the program (a string literal) and be the only one of its kind.
class WorkerFunction {
 public:
  using Function = void (*)(WorkerTask&);
  using OrchestrationFunction = void (*)(Worker&, Orchestration&, WorkerTask&);
  WorkerFunction(std::string_view name, Function function);
  WorkerFunction(std::string_view name, OrchestrationFunction function);
};

}  // namespace strata

/// Defines a function that tasks can call from a shared library. What follows is its body, with
/// `task` as its argument.
#define STRATA_WORKER_FUNCTION(name)                                                       \
  extern "C" __attribute__((visibility("default"))) void name(::strata::WorkerTask& task); \
  extern "C" void name([[maybe_unused]] ::strata::WorkerTask& task)

/// The same for an orchestration that next-level workers run, with `worker`, `run` and `task` as
/// its arguments.
#define STRATA_WORKER_ORCHESTRATION(name)                                                  \
  extern "C" __attribute__((visibility("default"))) void name(                             \
      ::strata::Worker& worker, ::strata::Orchestration& run, ::strata::WorkerTask& task); \
  extern "C" void name([[maybe_unused]] ::strata::Worker& worker,                          \
                       [[maybe_unused]] ::strata::Orchestration& run,                      \
                       [[maybe_unused]] ::strata::WorkerTask& task)
