#include "chip/kernel_services.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "chip/check.hpp"
#include "chip/core_pool_impl.hpp"
#include "chip/core_text.hpp"
#include "comm/signal.hpp"
#include "os/cpu.hpp"
#include "os/futex.hpp"
#include "strata/error.hpp"

namespace strata::chip {

using detail::KernelBlock;

void MixedBlock::reset(LaneMask lanes) noexcept {
  live = lanes;
  lanes_out = static_cast<std::uint8_t>((lanes & 1) + (lanes >> 1 & 1) + (lanes >> 2 & 1));
  flags = {};
  waiters = {};
  if (pipes == nullptr) return;
  for (Pipe& pipe : *pipes) {
    pipe.first = 0;
    pipe.count = 0;
    pipe.pusher = -1;
    pipe.popper = -1;
  }
}

namespace {

/// How long a lane looks before it sleeps, in cycle counts: a microsecond or two.
constexpr std::uint64_t kSpinCycles = 5'000;
/// Where a thread can't sleep on two words, a lane that sleeps on a signal looks whether its run
/// was cancelled so often: the wake that tells of it may come between its last look and its sleep,
/// since the signal's word does not change by a cancellation.
constexpr std::chrono::milliseconds kSignalLook{100};

Place& place_of(const KernelBlock& block) noexcept {
  return const_cast<Place&>(static_cast<const Place&>(block));
}

[[noreturn]] void fail_misuse(const Place& place, std::string_view text) {
  throw KernelMisuse(fmt::format("{}: {}", block_text(place), text));
}

/// Why what the lane waits for is of no use any more; null if it is of use.
const char* why_unwanted(const Place& place) noexcept {
  place.pool->look_for_cancellation();
  if (place.job->failed.load(std::memory_order_acquire)) return "another lane of the task failed";
  return place.job->context->cancelled() ? "the run was cancelled" : nullptr;
}

void check_wanted(const Place& place) {
  if (const char* const why = why_unwanted(place)) {
    throw Cancelled(fmt::format("{} waited, and gave up: {}", block_text(place), why));
  }
}

/// The calling thread spins for a while, if it may: `spin(done)` until done() or for kSpinCycles.
template <class Done>
bool spin_until(const Place& place, const Done& done) {
  CorePool::Impl& pool = *place.pool;
  if (!pool.may_spin()) return false;
  ipc::SpinnerBudget::Place budget;
  if (pool.budget() != nullptr) {
    budget = pool.budget()->try_begin();
    if (!budget) return false;
  }
  const std::uint64_t begin = os::cycle_count();
  bool is_done = false;
  while (!(is_done = done()) && os::cycle_count() - begin < kSpinCycles && pool.may_spin())
    os::cpu_relax();
  if (budget) pool.budget()->end(budget);
  return is_done;
}

/// While it lives the lane is seen to wait, and its thread does not count as running.
class Waiting {
 public:
  Waiting(Place& place, WaitKind kind, unsigned index, std::uint32_t operand = 0,
          Signal* signal = nullptr)
      : place_(place), runner_(*current_runner) {
    place.wait_index.store(index, std::memory_order_relaxed);
    place.wait_operand.store(operand, std::memory_order_relaxed);
    place.wait_signal.store(signal, std::memory_order_relaxed);
    place.wait_kind.store(kind, std::memory_order_relaxed);
    place.set_state(Place::State::waiting);
    // Relaxed: nobody knows yet that it waits.
    runner_.stirred.store(false, std::memory_order_relaxed);
    try {
      place.pool->enter_wait(runner_);
    } catch (...) {
      end();
      throw;
    }
  }
  ~Waiting() {
    place_.pool->leave_wait(runner_);
    end();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  [[nodiscard]] Runner& runner() const noexcept { return runner_; }
  void sleep() const { place_.pool->sleep(runner_); }

 private:
  void end() noexcept {
    place_.wait_kind.store(WaitKind::none, std::memory_order_relaxed);
    place_.wait_signal.store(nullptr, std::memory_order_relaxed);
    place_.set_state(Place::State::running);
  }
  Place& place_;
  Runner& runner_;
};

// ---- Within one block ---------------------------------------------------------------------------

MixedBlock& mixed_of(const Place& place, std::string_view what) {
  if (place.mixed != nullptr) return *place.mixed;
  fail_misuse(place, fmt::format("{} are between the lanes of one block of a mixed task, and this "
                                 "task has one lane; submit it with mixed()",
                                 what));
}

void check_flag(const Place& place, unsigned flag) {
  if (flag < kFlagsPerCore) return;
  fail_misuse(place,
              fmt::format("there is no flag {}; a core has {}, from 0", flag, kFlagsPerCore));
}

/// Whether the wait of a lane could end now. With the block's mutex.
bool could_end(const MixedBlock& block, const Meeting& meeting, unsigned lane) {
  const MixedBlock::Waiter& waiter = block.waiters[lane];
  switch (waiter.kind) {
    case WaitKind::barrier:
      return meeting.round.load(std::memory_order_acquire) != waiter.index;
    case WaitKind::flag:
      return block.flags[lane][waiter.index] != 0;
    case WaitKind::push:
      return (*block.pipes)[waiter.index].count < kPipeDepth;
    case WaitKind::pop:
      return (*block.pipes)[waiter.index].count != 0;
    default:
      return true;
  }
}

/// Whether every lane of the block that has not returned waits for another of them, or at the
/// barrier for all. Only lanes of the block can end a wait for a flag or pipe, and the barrier
/// opens only once those who wait so have come there: so if one does, none of these waits ever
/// ends. With the block's mutex.
bool never_ends(const MixedBlock& block, const Meeting& meeting) {
  bool within = false;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((block.live >> lane & 1) == 0) continue;
    const MixedBlock::Waiter& waiter = block.waiters[lane];
    if (waiter.runner == nullptr || could_end(block, meeting, lane)) return false;
    within = within || waiter.kind != WaitKind::barrier;
  }
  return within;
}

[[noreturn]] void fail_never(const Place& place, const MixedBlock& block) {
  const bool alone = block.live == mask_of(place.lane);
  fail_misuse(place, fmt::format("it waits for {}, and can never go on: {}", wait_text(place),
                                 alone ? "the other lanes of the block have returned"
                                       : "all lanes of the block wait for each other"));
}

/// Something has changed that `lane` may wait for. With the block's mutex.
void tell(MixedBlock& block, unsigned lane) {
  const MixedBlock::Waiter& waiter = block.waiters[lane];
  if (waiter.runner != nullptr && waiter.kind != WaitKind::barrier) waiter.runner->wake();
}

void count_change(MixedBlock& block) noexcept {
  // Release: a lane that spins and sees it takes the mutex to look.
  block.changes.fetch_add(1, std::memory_order_release);
}

/// While it lives the lane may be in the block's list of those who wait. Whoever is told to wake it
/// does so under the block's mutex: so it leaves the list before it goes, however it goes.
class Listed {
 public:
  explicit Listed(const Place& place) : block_(*place.mixed), lane_(index_of(place.lane)) {}
  ~Listed() {
    const std::lock_guard lock(block_.mutex);
    waiter() = {};
  }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

  /// With the block's mutex.
  [[nodiscard]] MixedBlock::Waiter& waiter() const noexcept { return block_.waiters[lane_]; }

 private:
  MixedBlock& block_;
  unsigned lane_;
};

/// Waits until `step`, called with the block's mutex, has done what it is for.
template <class Step>
void wait_in_block(Place& place, WaitKind kind, unsigned index, const Step& step) {
  MixedBlock& block = *place.mixed;
  std::uint32_t seen = 0;
  const auto attempt = [&] {
    const std::lock_guard lock(block.mutex);
    seen = block.changes.load(std::memory_order_relaxed);
    return step();
  };
  if (attempt()) return;
  const auto changed = [&] {
    return block.changes.load(std::memory_order_relaxed) != seen && attempt();
  };
  if (spin_until(place, changed)) return;
  const Waiting waiting(place, kind, index);
  const Listed listed(place);
  for (;;) {
    check_wanted(place);
    {
      const std::lock_guard lock(block.mutex);
      if (step()) {
        // In the same hold: once it has what it waited for it must not be seen to wait.
        listed.waiter() = {};
        return;
      }
      listed.waiter() = {&waiting.runner(), kind, index};
      if (never_ends(block, place.job->meeting)) fail_never(place, block);
    }
    waiting.sleep();
  }
}

void set_flag(const KernelBlock& kernel, ClusterLane to, unsigned flag) {
  Place& place = place_of(kernel);
  MixedBlock& block = mixed_of(place, "flags");
  check_flag(place, flag);
  if (index_of(to) >= kLanes || (place.job->lanes & mask_of(to)) == 0) {
    fail_misuse(place,
                fmt::format("it sets a flag of {}, which this task does not use", lane_text(to)));
  }
  const std::lock_guard lock(block.mutex);
  ++block.flags[index_of(to)][flag];
  count_change(block);
  tell(block, index_of(to));
}

void wait_flag(const KernelBlock& kernel, unsigned flag) {
  Place& place = place_of(kernel);
  MixedBlock& block = mixed_of(place, "flags");
  check_flag(place, flag);
  std::uint32_t& mine = block.flags[index_of(place.lane)][flag];
  wait_in_block(place, WaitKind::flag, flag, [&mine] {
    if (mine == 0) return false;
    --mine;
    return true;
  });
}

Pipe& pipe_of(const Place& place, unsigned index) {
  MixedBlock& block = mixed_of(place, "pipes");
  if (index >= kPipesPerCluster) {
    fail_misuse(place, fmt::format("there is no pipe {}; a cluster has {}, from 0", index,
                                   kPipesPerCluster));
  }
  const std::lock_guard lock(block.mutex);
  if (block.pipes == nullptr) {
    block.pipes = std::make_unique<std::array<Pipe, kPipesPerCluster>>();
  }
  return (*block.pipes)[index];
}

/// The end of a pipe belongs to the lane that used it first.
void take_end(const Place& place, std::int8_t& end, unsigned index, std::string_view verb) {
  const auto lane = static_cast<std::int8_t>(index_of(place.lane));
  if (end < 0) end = lane;
  if (end == lane) return;
  fail_misuse(place, fmt::format("it {} pipe {}, and so does {}; an end of a pipe is for one lane",
                                 verb, index, lane_text(static_cast<ClusterLane>(end))));
}

void tell_others(MixedBlock& block, const Place& place) {
  count_change(block);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (lane != index_of(place.lane)) tell(block, lane);
  }
}

void push(const KernelBlock& kernel, unsigned index, const void* data, std::size_t bytes) {
  Place& place = place_of(kernel);
  Pipe& pipe = pipe_of(place, index);
  std::vector<std::byte>* message = nullptr;
  wait_in_block(place, WaitKind::push, index, [&] {
    take_end(place, pipe.pusher, index, "pushes into");
    if (pipe.count == kPipeDepth) return false;
    message = &pipe.messages[(pipe.first + pipe.count) % kPipeDepth];
    return true;
  });
  check_service_access(CheckedAccess::load, data, bytes, __builtin_return_address(0));
  // Without the mutex: until it is counted the message is this lane's.
  const auto* const begin = static_cast<const std::byte*>(data);
  message->assign(begin, begin + bytes);
  const std::lock_guard lock(place.mixed->mutex);
  ++pipe.count;
  tell_others(*place.mixed, place);
}

void pop(const KernelBlock& kernel, unsigned index, void* data, std::size_t bytes) {
  Place& place = place_of(kernel);
  Pipe& pipe = pipe_of(place, index);
  const std::vector<std::byte>* message = nullptr;
  wait_in_block(place, WaitKind::pop, index, [&] {
    take_end(place, pipe.popper, index, "pops from");
    if (pipe.count == 0) return false;
    message = &pipe.messages[pipe.first];
    return true;
  });
  if (message->size() != bytes) {
    fail_misuse(place, fmt::format("it pops {} bytes from pipe {}, and the message there has {}",
                                   bytes, index, message->size()));
  }
  check_service_access(CheckedAccess::store, data, bytes, __builtin_return_address(0));
  if (bytes != 0) std::memcpy(data, message->data(), bytes);
  const std::lock_guard lock(place.mixed->mutex);
  pipe.first = (pipe.first + 1) % kPipeDepth;
  --pipe.count;
  tell_others(*place.mixed, place);
}

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
  std::optional<Listed> listed;
  if (MixedBlock* const block = place.mixed) {
    listed.emplace(place);
    const std::lock_guard lock(block->mutex);
    listed->waiter() = {&waiting.runner(), WaitKind::barrier, round};
    // A lane that comes to wait later looks by itself.
    if (never_ends(*block, meeting)) fail_never(place, *block);
  }
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
  if (MixedBlock* const block = place.mixed) {
    const std::lock_guard lock(block->mutex);
    block->live &= static_cast<LaneMask>(~mask_of(place.lane));
    tell_others(*block, place);
  }
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
