// What the tasks of every runtime do: execute(i) for the task with index i.
//
// By default a task does nothing. It can be told to compute for a while, and to check that whatever
// it depends on has ended: each region counts its writes, and a task must find as many as a serial
// execution would have made before it.
//
// Thread safety: execute() may be called by many threads at once; the rest between runs only.
#pragma once

#include <cstdint>

#include "workload.hpp"

namespace strata::bench {

namespace detail {
struct TaskBody {
  bool trivial = true;
  std::uint64_t iterations = 0;
};
extern TaskBody g_task_body;  // One load and one branch is all that an empty task may cost.
void execute_body(std::uint32_t task) noexcept;
}  // namespace detail

inline void execute(std::uint32_t task) noexcept {
  if (!detail::g_task_body.trivial) detail::execute_body(task);
}

/// Computes without touching memory; time grows linearly with `iterations`, about 1 ns each.
void compute(std::uint64_t iterations) noexcept;

/// From now on tasks do nothing (0) or compute.
void set_iterations(std::uint64_t iterations) noexcept;

/// While it lives, tasks check the order that they run in.
class OrderCheck {
 public:
  explicit OrderCheck(const Workload& workload);
  ~OrderCheck();
  OrderCheck(const OrderCheck&) = delete;
  OrderCheck& operator=(const OrderCheck&) = delete;
  /// True if every task ran, once, and after all that it depends on.
  [[nodiscard]] bool passed() const noexcept;
};

}  // namespace strata::bench
