// ChipWorker: one chip, driven from a program without a node around it.
//
//   strata::ChipWorker chip("a2a3sim");
//   const auto add = chip.add(file);
//   chip.init();
//   chip.run(add, in(a), in(b), out(c));
//   chip.close();
//
// The chip is in a process of its own, as in a node, and what fails there fails alike: a ChipWorker
// is a Worker that has a single chip. What is not here is there: worker().
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "strata/worker.hpp"

namespace strata {

struct ChipWorkerOptions {
  std::string name = "chip";
  ChipOptions chip = {};
  LogLevel log_level = LogLevel::info;
  std::string worker_program = {};  ///< As in WorkerOptions.
};

class ChipWorker {
 public:
  /// Starts no process. Throws as Worker's constructor does.
  explicit ChipWorker(std::string platform, ChipRunOptions run = {});
  explicit ChipWorker(ChipWorkerOptions options);

  void init() { worker_.init(); }
  void close() { worker_.close(); }
  [[nodiscard]] Worker& worker() noexcept { return worker_; }
  /// Where the tasks go.
  [[nodiscard]] LaneId lane() const { return worker_.chip(0); }

  /// A chip program's file; see Callable::chip_program.
  CallableId add(const std::string& file, ChipRunOptions run = {}) {
    return worker_.add(Callable::chip_program(file, std::move(run)));
  }
  void remove(CallableId program) { worker_.remove(program); }
  /// Memory of this process that the chip shares.
  [[nodiscard]] Buffer create_buffer(std::size_t bytes) { return worker_.create_buffer(bytes); }
  /// Memory of the chip.
  [[nodiscard]] ChipBuffer allocate(std::size_t bytes) {
    return worker_.allocate_on(lane(), bytes);
  }
  [[nodiscard]] ChipMemoryUsage memory() const { return worker_.chip_memory(worker_.chip(0)); }

  /// Runs a program with these in(), out(), inout() tensors and scalar()s, and waits for its end.
  /// Returns the value that the task returned, if it did. Throws what it failed with: RemoteError,
  /// WorkerDied, ChipError, ...
  template <class... Args>
  std::optional<std::string> run(Call call, const Args&... args) {
    TaskId task;
    return finish(
        [&](Orchestration& orchestration) {
          task = orchestration.submit(call, args..., on(lane()));
        },
        task);
  }
  template <class... Args>
  std::optional<std::string> run(CallableId program, const Args&... args) {
    return run(Call(program), args...);
  }

 private:
  std::optional<std::string> finish(const Engine::OrchestrationFn& orchestration,
                                    const TaskId& task);
  Worker worker_;
};

}  // namespace strata
