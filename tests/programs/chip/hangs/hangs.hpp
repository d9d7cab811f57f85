// How the chip program `hangs` hangs, by the number that it is called with. One lane of one block
// of a task over all clusters is at fault, which is said by two scalars; the others wait for it at
// a barrier.
//
// Thread safety: constants.
#pragma once

#include <cstdint>

namespace strata::test {

enum class Hang : std::int64_t {
  loop,    ///< The lane never leaves a loop.
  signal,  ///< The lane waits for a signal that nobody sets.
};

}  // namespace strata::test
