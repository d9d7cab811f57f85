#include "base/planted_fault.hpp"

#ifdef STRATA_PLANTED_FAULTS

#include <cstdlib>
#include <string>

namespace strata::base {

bool planted(std::string_view name) noexcept {
  // Read once: a fault is on for the whole life of a process.
  static const std::string asked = [] {
    const char* value = std::getenv("STRATA_PLANTED_FAULT");
    return std::string(value == nullptr ? "" : value);
  }();
  return name == asked;
}

}  // namespace strata::base

#endif
