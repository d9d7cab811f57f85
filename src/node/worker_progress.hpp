// WorkerProgress: who looks for completions of workers. A thread that waits in the engine does it
// itself, one at a time; while none does, the mailboxes are armed and wake the supervisor.
//
// Thread safety: try_acquire() from any thread; the rest for the thread that acquired.
//
// Invariants
//   (1) One thread at a time polls.
//   (2) While no thread polls, every mailbox is armed, or a completion event is raised. So no
//       completion stays unseen: release() first gives up its place and then arms, and who finds a
//       completion while arming raises the event; who fails to acquire leaves the rest to a thread
//       that has yet to arm.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "ipc/spinner_budget.hpp"
#include "node/endpoint.hpp"
#include "os/cpu.hpp"
#include "os/event_fd.hpp"
#include "strata/external_lane.hpp"

namespace strata::node {

class WorkerProgress final : public ProgressSource {
 public:
  WorkerProgress(const std::vector<std::shared_ptr<Endpoint>>& endpoints,
                 ipc::SpinnerBudget& budget) noexcept
      : endpoints_(endpoints), budget_(budget) {}

  /// Before the first run: the event that wakes the supervisor.
  void set_event(const os::EventFd& event) noexcept { event_ = &event; }

  bool try_acquire() override {
    // Sequentially consistent, against the store in release(): see (2).
    if (held_.load(std::memory_order_seq_cst) || held_.exchange(true, std::memory_order_seq_cst)) {
      return false;
    }
    for (const auto& endpoint : endpoints_)
      endpoint->disarm();
    return true;
  }

  bool poll() override {
    bool any = false;
    for (const auto& endpoint : endpoints_)
      any = endpoint->poll() || any;
    return any;
  }

  void release() override {
    held_.store(false, std::memory_order_seq_cst);
    bool missed = false;
    for (const auto& endpoint : endpoints_)
      missed = !endpoint->arm() || missed;
    if (missed) event_->signal();
  }

  bool begin_spin() override {
    place_ = budget_.try_begin();
    return static_cast<bool>(place_);
  }
  void end_spin() override { budget_.end(place_); }

  /// The supervisor's turn, if nobody else polls: for as long as completions come in quick
  /// succession, but for a bounded time. If they still come then, the event is raised, so that the
  /// supervisor is back once it has looked at what else there is.
  void serve() {
    if (!try_acquire()) return;
    const std::uint64_t begin = os::cycle_count();
    std::uint64_t last = begin;
    const bool spins = begin_spin();
    bool goes_on = false;
    for (;;) {
      const bool any = poll();
      const std::uint64_t now = os::cycle_count();
      if (any) last = now;
      goes_on = now - begin > kLongest && now - last < kQuick;
      if (now - begin > kLongest || now - last > (spins ? kIdle : 0)) break;
      if (!any) os::cpu_relax();
    }
    if (spins) end_spin();
    release();
    if (goes_on) event_->signal();
  }

 private:
  /// In cycles, some 40 us: longer than a worker takes to wake. Else the two would sleep in turns,
  /// and be woken for each task, since each is awake only while the other is not.
  static constexpr std::uint64_t kIdle = 100'000;
  static constexpr std::uint64_t kQuick = 24'000;     ///< Some 10 us.
  static constexpr std::uint64_t kLongest = 240'000;  ///< Some 100 us.

  const std::vector<std::shared_ptr<Endpoint>>& endpoints_;
  ipc::SpinnerBudget& budget_;
  const os::EventFd* event_ = nullptr;
  std::atomic<bool> held_{false};
  ipc::SpinnerBudget::Place place_;  ///< Of the thread that acquired.
};

}  // namespace strata::node
