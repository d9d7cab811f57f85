#include "chip/cores/kernel_services.hpp"

#include <fmt/format.h>

#include <chrono>
#include <mutex>
#include <utility>

#include "chip/cores/block_services.hpp"
#include "chip/cores/core_text.hpp"
#include "chip/cores/kernel_waits.hpp"
#include "comm/signal.hpp"
#include "os/futex.hpp"

namespace strata::chip {

using detail::KernelBlock;

namespace {

// ---- Over a task --------------------------------------------------------------------------------

void leave_list(Meeting& meeting, Runner& runner) noexcept {
  for (Runner** at = &meeting.waiting; *at != nullptr; at = &(*at)->next_waiting) {
    if (*at != &runner) continue;
    *at = runner.next_waiting;
    return;
  }
}

/// With the meeting's mutex. Runners are never freed, so a wake that comes late does no harm.
void wake_all(Meeting& meeting) noexcept {
  for (Runner* runner = std::exchange(meeting.waiting, nullptr); runner != nullptr;) {
    Runner* const next = runner->next_waiting;
    runner->wake();
    runner = next;
  }
}

void barrier(const KernelBlock& kernel) {
  Place& place = place_of(kernel);
  Job& job = *place.job;
  const std::uint32_t all = job.blocks * job.lane_count;
  if (all == 1) return;
  if (job.blocks > 1 && !job.together) {
    fail_misuse(place, fmt::format("a barrier over {} blocks needs them to be started together; "
                                   "submit the task with together()",
                                   job.blocks));
  }
  Meeting& meeting = job.meeting;
  const auto fail_alone = [&] {
    fail_misuse(place,
                "it waits at the barrier of its task, and can never go on: a lane of the "
                "task has returned and will not come");
  };
  std::uint32_t round = 0;
  {
    const std::lock_guard lock(meeting.mutex);
    if (meeting.returned != 0) fail_alone();
    round = meeting.round.load(std::memory_order_relaxed);
    if (++meeting.arrived == all) {
      meeting.arrived = 0;
      // Release: with the acquire of those who spin, what came before the barrier happens before
      // what comes after it. All have been at the mutex before.
      meeting.round.store(round + 1, std::memory_order_release);
      wake_all(meeting);
      return;
    }
  }
  const auto met = [&] { return meeting.round.load(std::memory_order_acquire) != round; };
  if (spin_until(place, met)) return;
  const Waiting waiting(place, WaitKind::barrier, 0);
  const ListedAtBarrier listed(place, waiting.runner(), round);
  for (;;) {
    if (met()) return;
    check_wanted(place);
    {
      const std::lock_guard lock(meeting.mutex);
      if (met()) return;
      if (meeting.returned != 0) fail_alone();
      leave_list(meeting, waiting.runner());
      waiting.runner().next_waiting = meeting.waiting;
      meeting.waiting = &waiting.runner();
    }
    waiting.sleep();
  }
}

// ---- Signals ------------------------------------------------------------------------------------

/// Where a thread can't sleep on two words, a lane that sleeps on a signal looks whether its run
/// was cancelled so often: the wake that tells of it may come between its last look and its sleep,
/// since the signal's word does not change by a cancellation.
constexpr std::chrono::milliseconds kSignalLook{100};

void notify(const KernelBlock& kernel, Signal* signal, SignalOp op, std::uint32_t value) {
  if (signal == nullptr) fail_misuse(place_of(kernel), "it notifies a signal at address null");
  if (comm::change(*signal, op, value)) comm::wake(*signal);
}

void wait_signal(const KernelBlock& kernel, Signal* signal, Compare compare, std::uint32_t value) {
  Place& place = place_of(kernel);
  if (signal == nullptr) fail_misuse(place, "it waits for a signal at address null");
  const std::atomic<std::uint32_t>& word = comm::value_of(*signal);
  // Acquire: what came before the notification happens before what comes after the wait.
  const auto come = [&] {
    return comm::holds(word.load(std::memory_order_acquire), compare, value);
  };
  if (come() || spin_until(place, come)) return;
  const Waiting waiting(place, WaitKind::signal, static_cast<unsigned>(compare), value, signal);
  CorePool::Impl& pool = *place.pool;
  const bool exploring = pool.exploring();
  struct Counted {
    explicit Counted(std::atomic<std::uint32_t>& its_count) : count(its_count) {
      count.fetch_add(1, std::memory_order_seq_cst);
    }
    ~Counted() { count.fetch_sub(1, std::memory_order_relaxed); }
    std::atomic<std::uint32_t>& count;
  };
  // A process that dies in here leaves the count too high: that costs system calls.
  const Counted counted(comm::waiters_of(*signal));
  while (!come()) {
    check_wanted(place);
    if (exploring) pool.stand(waiting.runner());
    for (;;) {
      const std::uint32_t cancellations = pool.look_for_cancellation();
      const std::uint32_t seen = word.load(std::memory_order_seq_cst);
      if (comm::holds(seen, compare, value) || why_unwanted(place) != nullptr) break;
      os::futex_wait_two(word, seen, pool.cancellations(), cancellations, kSignalLook);
    }
    if (exploring) pool.await_turn(waiting.runner());
  }
}

// ---- Else ---------------------------------------------------------------------------------------

bool cancelled(const KernelBlock& kernel) {
  const Job& job = *place_of(kernel).job;
  return job.failed.load(std::memory_order_relaxed) || job.context->cancelled();
}

void log(const KernelBlock& kernel, std::string_view text) {
  const Place& place = place_of(kernel);
  place.pool->log(fmt::format("{}: {}", kernel_of(place).name, text));
}

void misuse(const KernelBlock& kernel, std::string_view text) {
  fail_misuse(place_of(kernel), text);
}

}  // namespace

const detail::KernelServices& kernel_services() noexcept {
  static constexpr detail::KernelServices kServices = {.set_flag = set_flag,
                                                       .wait_flag = wait_flag,
                                                       .push = push,
                                                       .pop = pop,
                                                       .barrier = barrier,
                                                       .notify = notify,
                                                       .wait_signal = wait_signal,
                                                       .cancelled = cancelled,
                                                       .log = log,
                                                       .misuse = misuse};
  return kServices;
}

void lane_has_returned(Place& place) {
  leave_block(place);
  Meeting& meeting = place.job->meeting;
  const std::lock_guard lock(meeting.mutex);
  ++meeting.returned;
  wake_all(meeting);
}

bool signal_has_come(const Place& place) noexcept {
  Signal* const signal = place.wait_signal.load(std::memory_order_relaxed);
  if (signal == nullptr) return false;
  const auto compare = static_cast<Compare>(place.wait_index.load(std::memory_order_relaxed));
  return comm::holds(comm::load(*signal), compare,
                     place.wait_operand.load(std::memory_order_relaxed));
}

void wake_signal_wait(const Place& place) noexcept {
  Signal* const signal = place.wait_signal.load(std::memory_order_relaxed);
  if (signal != nullptr) comm::wake(*signal);
}

}  // namespace strata::chip
