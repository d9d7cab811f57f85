// What `strata doctor` looks at. Each check tries the thing itself where that can be done, since a
// kernel's version does not tell what a container's filter lets through.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata::cli {

enum class Health : std::uint8_t {
  ok,
  warning,  ///< Strata runs, but not as well as it could.
  missing,  ///< Strata can't run.
};

struct Finding {
  std::string subject;  ///< "cgroup"
  Health health = Health::ok;
  std::string found;   ///< What is there: "2 of 8 online CPUs may be used".
  std::string advice;  ///< What to do about it; empty if nothing.
};

[[nodiscard]] std::vector<Finding> check_kernel();
[[nodiscard]] std::vector<Finding> check_processes();  ///< Starting, watching and ending them.
[[nodiscard]] std::vector<Finding> check_limits();
[[nodiscard]] std::vector<Finding> check_machine();  ///< CPUs, clock, memory.
[[nodiscard]] std::vector<Finding> check_programs();

}  // namespace strata::cli
