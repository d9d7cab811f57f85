// What the threads of a worker process share: the main thread, which runs tasks, the service thread
// and the lifeline thread.
//
// Thread safety: each member says. The object lives until the process ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ipc/mailbox.hpp"
#include "ipc/spinner_budget.hpp"
#include "node/callable_table.hpp"
#include "node/slab_map.hpp"
#include "node/worker_messages.hpp"
#include "os/event_fd.hpp"
#include "os/parker.hpp"
#include "os/signal_event.hpp"
#include "trace/process_record.hpp"

namespace strata::node {

/// How much a worker was asked to stop. Only grows.
enum class Stop : std::uint32_t {
  none,
  drain,  ///< End after the task in hand.
  now,    ///< The same, and the task in hand is told that it is cancelled.
};

/// Callables that nobody calls any more, on their way from the service thread, which takes them out
/// of the table, to the main thread, which lets go of them.
class ForgottenCallables {
 public:
  void add(std::unique_ptr<const LoadedCallable> callable) {
    const std::lock_guard lock(mutex_);
    callables_.push_back(std::move(callable));
  }
  [[nodiscard]] std::vector<std::unique_ptr<const LoadedCallable>> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(callables_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<const LoadedCallable>> callables_;  ///< Guarded by mutex_.
};

struct WorkerShared {
  // --- Made before the other threads begin ---
  trace::ProcessRecord* record = nullptr;
  std::unique_ptr<ipc::SpinnerBudget> budget;
  std::unique_ptr<ipc::MailboxWorker> mailbox;
  std::unique_ptr<WorkerMessages> messages;
  std::unique_ptr<os::SignalEvents> signals;
  os::EventFd service_event = os::EventFd::make();  ///< Makes the service thread look.

  // --- Whether to go on ---
  /// Written by any thread, release; read by all, acquire.
  std::atomic<Stop> stop{Stop::none};
  /// CLOCK_MONOTONIC of when the main thread began to end the process, 0 before; then the lifeline
  /// thread ends it if it takes long. Main thread, release; lifeline thread, acquire.
  std::atomic<std::int64_t> ending_since_ns{0};
  /// The main thread has told that it is ready. Main thread, release; lifeline thread, acquire.
  std::atomic<bool> ready{false};
  /// Has children of its own, which it must end in order. Main thread, release; lifeline thread,
  /// acquire.
  std::atomic<bool> next_level{false};

  /// Who the main thread sleeps as until it is configured.
  os::Parker main_parker;

  CallableTable callables;  ///< Service thread adds and takes, main thread looks up.
  ForgottenCallables forgotten;
  SlabMap slabs;  ///< Service thread adds and removes, main thread looks up.

  [[nodiscard]] Stop stopping() const noexcept { return stop.load(std::memory_order_acquire); }
  /// Asks all threads to stop. Takes no lock, allocates nothing.
  void ask_to_stop(Stop how) noexcept {
    Stop seen = stop.load(std::memory_order_relaxed);
    while (seen < how && !stop.compare_exchange_weak(seen, how, std::memory_order_acq_rel)) {
    }
    if (mailbox) mailbox->interrupt();
    slabs.wake();
    main_parker.unpark();
    service_event.signal();
  }
};

}  // namespace strata::node
