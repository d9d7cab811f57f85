// What the chip program `ranks` does, by the number that it is called with. Its domain has the
// slices "numbers" (int64, at least 64) and "flags" (uint8, at least 8 signals).
//
// Thread safety: constants.
#pragma once

#include <cstdint>

namespace strata::test {

enum class RankWay : std::int64_t {
  pass_on,          ///< Puts its number into the next rank's window, gets that of the one before.
  sum_up,           ///< out = the sum of argument + rank over all ranks, by all_reduce.
  sum_for_ever,     ///< Sums up again and again; out[0] counts how often.
  wait_for_signal,  ///< Waits for its signal 1, which nobody changes.
  /// Tells the next rank by its signal 2, waits to be told, and for all. Rank `argument` tells
  /// nobody.
  tell_next,
  stay_away,  ///< Sums up once, and again, to which rank `argument` does not come.
};

}  // namespace strata::test
