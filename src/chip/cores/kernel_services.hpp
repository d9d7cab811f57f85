// What the runtime does for kernels: flags, pipes, barriers, signals, and how lanes wait.
//
// A wait looks, spins for a microsecond or two where a CPU is free, and then sleeps: the thread
// gives its right to run to another (CorePool::Impl::enter_wait) and parks. Whoever may have ended
// the wait wakes it; so does whoever cancels the run or ends the task with an error.
//
// A wait that can be seen never to end throws instead: see never_ends() in block_services.cpp.
//
// Thread safety: the services are for the thread that runs the lane; the rest says.
#pragma once

#include <stdexcept>
#include <string>

#include "chip/cores/core_job.hpp"

namespace strata::chip {

/// The table that kernels get.
[[nodiscard]] const detail::KernelServices& kernel_services() noexcept;

/// A kernel used a service in a way that can't work. What kernels see; its task fails with a
/// ChipError (kernel_misuse).
class KernelMisuse : public std::logic_error {
 public:
  explicit KernelMisuse(const std::string& text) : std::logic_error(text) {}
  [[nodiscard]] const char* text() const noexcept { return what(); }
};

/// The lane at the place has returned, of a task whose lanes can wait for each other: those who
/// wait look whether they wait in vain. By the thread that ran it.
void lane_has_returned(Place& place);

/// Of a lane that waits for a signal: whether the signal has come. Through the place's gate.
[[nodiscard]] bool signal_has_come(const Place& place) noexcept;
/// Makes a lane that sleeps on a signal look again. Through the place's gate.
void wake_signal_wait(const Place& place) noexcept;

}  // namespace strata::chip
