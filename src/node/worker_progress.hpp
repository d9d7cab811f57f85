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

#include <sched.h>

#include <atomic>
#include <cstdint>
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
    if (take(Holder::waiter)) return true;
    if (holder_.load(std::memory_order_relaxed) != Holder::supervisor) return false;
    // The supervisor makes room at once: a thread that waits anyway saves a hand-over.
    wanted_.store(true, std::memory_order_relaxed);
    for (int looks = 0; looks < kLooks; ++looks) {
      os::cpu_relax();
      if (take(Holder::waiter)) return true;
    }
    return false;
  }

  bool poll() override {
    bool any = false;
    unsigned busy = 0;
    bool ahead = false;
    for (const auto& endpoint : endpoints_) {
      any = endpoint->poll() || any;
      const std::uint32_t in_flight = endpoint->in_flight();
      busy += in_flight != 0 ? 1 : 0;
      ahead = ahead || in_flight > 1;
    }
    const std::uint64_t now = os::cycle_count();
    if (busy >= cpus_ && !ahead) crowded_ = now;
    if (any) {
      last_ = now;
    } else if (now - last_ > kAlone && now - crowded_ < kRecent) {
      sched_yield();
    }
    return any;
  }

  void release() override {
    holder_.store(Holder::nobody, std::memory_order_seq_cst);
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
    if (!take(Holder::supervisor)) return;
    wanted_.store(false, std::memory_order_relaxed);
    const std::uint64_t begin = os::cycle_count();
    std::uint64_t last = begin;
    const bool spins = begin_spin();
    bool goes_on = false;
    for (;;) {
      const bool any = poll();
      const std::uint64_t now = os::cycle_count();
      if (any) last = now;
      if (wanted_.load(std::memory_order_relaxed)) break;
      goes_on = now - begin > kLongest && now - last < kQuick;
      if (now - begin > kLongest || now - last > (spins ? kIdle : 0)) break;
      if (!any) os::cpu_relax();
    }
    if (spins) end_spin();
    release();
    if (goes_on) event_->signal();
  }

 private:
  enum class Holder : std::uint8_t { nobody, waiter, supervisor };

  bool take(Holder who) noexcept {
    // Sequentially consistent, against the store in release(): see (2).
    Holder none = Holder::nobody;
    if (holder_.load(std::memory_order_seq_cst) != Holder::nobody ||
        !holder_.compare_exchange_strong(none, who, std::memory_order_seq_cst)) {
      return false;
    }
    for (const auto& endpoint : endpoints_)
      endpoint->disarm();
    last_ = os::cycle_count();
    return true;
  }

  static constexpr int kLooks = 40;  ///< Of a waiter that the supervisor makes room for.
  /// In cycles, some 40 us: longer than a worker takes to wake. Else the two would sleep in turns,
  /// and be woken for each task, since each is awake only while the other is not.
  static constexpr std::uint64_t kIdle = 100'000;
  /// In cycles, some 2 us: how long it looks in vain before it gives its CPU to whoever else wants
  /// it, where as many workers as CPUs have been busy lately, and none had more than it had in
  /// hand: one of them may need this very CPU to end that, or to answer another. With fewer it
  /// holds on to its CPU, so that the kernel puts them elsewhere.
  static constexpr std::uint64_t kAlone = 5'000;
  static constexpr std::uint64_t kRecent = 240'000;   ///< Some 100 us.
  static constexpr std::uint64_t kQuick = 24'000;     ///< Some 10 us.
  static constexpr std::uint64_t kLongest = 240'000;  ///< Some 100 us.

  const std::vector<std::shared_ptr<Endpoint>>& endpoints_;
  ipc::SpinnerBudget& budget_;
  const os::EventFd* event_ = nullptr;
  std::atomic<Holder> holder_{Holder::nobody};
  /// A waiter would like to poll in the supervisor's place. Relaxed: a hint.
  std::atomic<bool> wanted_{false};
  const unsigned cpus_ = static_cast<unsigned>(os::allowed_cpus());
  // --- Of the thread that acquired ---
  ipc::SpinnerBudget::Place place_;
  std::uint64_t last_ = 0;     ///< When it acquired, or something had ended last: cycle count.
  std::uint64_t crowded_ = 0;  ///< When as many workers as CPUs were last seen so.
};

}  // namespace strata::node
