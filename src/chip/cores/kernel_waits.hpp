// How a lane waits: what all waits of kernels have in common.
//
// Thread safety: for the thread that runs the lane.
#pragma once

#include <cstdint>
#include <string_view>

#include "chip/cores/core_pool_impl.hpp"
#include "os/cpu.hpp"

namespace strata::chip {

/// The place behind what a kernel sees.
inline Place& place_of(const detail::KernelBlock& block) noexcept {
  return const_cast<Place&>(static_cast<const Place&>(block));
}

/// Throws KernelMisuse with the text behind a description of the block.
[[noreturn]] void fail_misuse(const Place& place, std::string_view text);

/// Why what the lane waits for is of no use any more; null if it is of use.
[[nodiscard]] const char* why_unwanted(const Place& place) noexcept;
/// Throws Cancelled if it is of no use.
void check_wanted(const Place& place);

/// How long a lane looks before it sleeps, in cycle counts: a microsecond or two.
inline constexpr std::uint64_t kLaneSpinCycles = 5'000;

/// The calling thread spins for a while, if it may: `spin(done)` until done() or for
/// kLaneSpinCycles.
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
  while (!(is_done = done()) && os::cycle_count() - begin < kLaneSpinCycles && pool.may_spin())
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

}  // namespace strata::chip
