// The memory in which a process says, on request, what its runtime is at; request_door.hpp says how
// it is found and asked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trace/request_door.hpp"

namespace strata::trace {

inline constexpr std::size_t kStateBytes = std::size_t{1} << 20;

struct StateLayout {
  DoorWords door;
  TextWords<kStateBytes> text;
};

inline constexpr DoorKind kStateDoor{.name = "strata-state",
                                     .magic = 0x4554415453525453,  // "STRSTATE"
                                     .version = 1,
                                     .layout_bytes = sizeof(StateLayout)};

}  // namespace strata::trace
