// TaskCheck: what a Worker looks at in each task before it is submitted. What can be seen to fail
// is refused here, by name, where the user's program still knows why.
//
// Thread safety: check() from any thread, once everything was set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "node/callable_registry.hpp"
#include "node/chip_memory.hpp"
#include "node/domain_state.hpp"
#include "strata/task.hpp"

namespace strata::node {

class TaskCheck {
 public:
  /// All live as long as this.
  TaskCheck(const CallableRegistry& callables, const ChipMemory& memory,
            const DomainTable& domains) noexcept
      : callables_(callables), memory_(memory), domains_(domains) {}

  /// Which lanes are chips, by their numbers, and which kind. Before the first task.
  void set_chips(std::vector<bool> lanes, std::uint32_t kind);

  /// Throws ChipError, CommError or InvalidArgument for a task that can't run. A task that calls a
  /// chip program gets a body that keeps the program.
  void check(TaskSpec& task) const;

 private:
  [[nodiscard]] bool for_chips(const Target& target) const noexcept;
  void check_program(TaskSpec& task, const Call& call, const KnownProgram& program) const;

  const CallableRegistry& callables_;
  const ChipMemory& memory_;
  const DomainTable& domains_;
  std::vector<bool> lane_is_chip_;
  std::uint32_t chip_kind_ = UINT32_MAX;
};

}  // namespace strata::node
