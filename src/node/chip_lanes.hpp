// ChipLanes: the threads of a chip worker of platform `cpu`, on all of which a task's function is
// called at once.
//
// The calling thread is lane 0. The others sleep while there is nothing to do; while a task is
// under way, who waits for another lane spins for a moment first, where the tree's budget has a
// place for it.
//
// Thread safety: run() is for one thread.
//
// Invariants
//   (1) run() returns, or throws, after the function has returned on every lane.
//   (2) What the caller did before run() happens before each call, and each call before run()'s
//       return.
//   (3) Of several exceptions the first is thrown.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "ipc/spinner_budget.hpp"
#include "os/parker.hpp"

namespace strata::node {

class ChipLanes {
 public:
  using Function = std::function<void(unsigned lane)>;

  /// Starts the threads. `budget` may be null. Throws InvalidArgument for 0 lanes, SystemError if
  /// there are no threads for it.
  ChipLanes(unsigned count, ipc::SpinnerBudget* budget);
  /// Waits for the threads.
  ~ChipLanes();
  ChipLanes(const ChipLanes&) = delete;
  ChipLanes& operator=(const ChipLanes&) = delete;

  [[nodiscard]] unsigned count() const noexcept { return count_; }
  void run(const Function& function);

 private:
  struct Lane;
  void lane_main(Lane& lane);
  void call(unsigned lane) noexcept;
  template <class Ready>
  void wait(os::Parker& parker, const Ready& ready);

  const unsigned count_;
  ipc::SpinnerBudget* const budget_;
  std::vector<std::unique_ptr<Lane>> lanes_;  ///< Of lanes 1 and up.
  os::Parker caller_;                         ///< Who calls run().
  /// The function in hand; null tells the lanes to end. Written before `round_`, read after it.
  const Function* function_ = nullptr;
  /// Counts the calls of run(). Caller, release; lanes, acquire.
  std::atomic<std::uint64_t> round_{0};
  /// Lanes that have not returned. They count down, with acquire and release.
  std::atomic<unsigned> left_{0};
  std::atomic<bool> threw_{false};  ///< Taken by the first lane that threw ...
  std::exception_ptr error_;        ///< ... which alone writes this, before it counts down.
};

}  // namespace strata::node
