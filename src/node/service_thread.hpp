// The service thread of a worker process: reads the control channel, so that callables are loaded
// and slabs mapped while a task runs, sends what waits to be sent, and says what the process is at
// when somebody asks for a report (trace/state_board.hpp).
//
// What makes no sense ends the process, with a line in its log and a `failed` message.
//
// Thread safety: start_service_thread() is called once, by the main thread. configuration() and
// listen() are for the main thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "node/callable_loader.hpp"
#include "node/worker_shared.hpp"
#include "os/unique_fd.hpp"
#include "strata/worker.hpp"

namespace strata::node {

/// What the parent says that this process shall be.
struct Configuration {
  std::string path;
  std::string role;
  LogLevel log_level = LogLevel::info;
  std::int64_t deadline_ns = 0;  ///< CLOCK_MONOTONIC; of the start.
  std::optional<Callable> setup;
  // Of chip workers and next-level workers.
  std::vector<int> cpus;  ///< That the chip, or those below together, may use; none: all.
  // Of chip workers.
  std::string platform;
  ChipRunOptions run;  ///< For programs that do not say otherwise.
  // Of next-level workers.
  std::optional<WorkerOptions> options;
  std::uint32_t first_slab = 1;    ///< Number of the first slab that its store makes.
  std::uint32_t slab_numbers = 0;  ///< And as many; 0: as many as a store has by itself.

  [[nodiscard]] bool chip() const { return role == "chip worker"; }
  [[nodiscard]] bool next_level() const { return options.has_value(); }
};

/// Throws InvalidArgument for what is no configure message.
[[nodiscard]] Configuration configuration_from(const nlohmann::json& message);

/// What a next-level worker does with the slabs of its parent, for its own workers, and when the
/// process shall stop. Called by the service thread; none may throw.
struct Listener {
  /// `data`: where it is mapped in this process.
  std::function<void(std::uint32_t slab, std::uint64_t bytes, os::UniqueFd memory, std::byte* data)>
      added = {};
  std::function<void(std::uint32_t slab)> dropped = {};  ///< It is unmapped afterwards.
  /// Called again and again until the process is ready: what it stops may not have begun when the
  /// stop comes.
  std::function<void()> stop = {};
};

class ServiceThread {
 public:
  /// Starts it. `shared` lives until the process ends. Throws SystemError.
  static ServiceThread& start(WorkerShared& shared);

  /// Null until the configure message has come. The main thread's parker is unparked then, and
  /// nothing more is read until listen() was called.
  [[nodiscard]] const Configuration* configuration() const noexcept {
    return configuration_.load(std::memory_order_acquire);
  }
  /// Says who else wants to know. Called once, by the main thread, after it was configured.
  void listen(Listener listener);

 private:
  explicit ServiceThread(WorkerShared& shared);
  [[noreturn]] void run();
  /// Tells the listener if the process shall stop. Whether it must be told again.
  [[nodiscard]] bool pass_on_stop();
  void take_messages();
  void take(ipc::Message message);
  void register_callables(const nlohmann::json& message);
  [[nodiscard]] LoadedCallable load(const nlohmann::json& entry, const Callable& callable);
  void forget_callable(const nlohmann::json& message);
  void add_slab(ipc::Message& message);
  void wait_for_listener();
  [[noreturn]] void give_up(const std::string& why);

  WorkerShared& shared_;
  CallableLoader loader_;
  /// Service thread, release; main thread, acquire. Never destroyed.
  std::atomic<const Configuration*> configuration_{nullptr};
  Listener listener_;  ///< Main thread writes it before `listener_set_`, the service thread reads.
  bool stop_passed_on_ = false;            ///< The service thread's.
  std::atomic<bool> listener_set_{false};  ///< Main thread, release; service thread, acquire.
  os::Parker listener_parker_;             ///< The service thread's, for that.
};

}  // namespace strata::node
