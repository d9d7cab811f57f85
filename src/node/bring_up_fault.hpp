// Who is to blame when ranks do not come up, and how that is told.
//
// One failure makes others: where a rank has crashed, the library of another may say that it has
// lost its peer, before the parent has even heard of the crash. So a process that ended by itself
// comes first, then the rank that was the first to say it failed. If there is neither, the time was
// up: then it is whoever is furthest behind. Of ranks that are equally far nobody knows which waits
// for which in a call of a vendor's library. But those that wait do so in the same way: if all but
// one are at the same place in the kernel, it is that one. Otherwise they can't be told apart, and
// the message says where each of them is.
//
// Thread safety: pure functions.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "comm/bring_up_board.hpp"
#include "node/communicators.hpp"
#include "strata/comm_error.hpp"

namespace strata::node {

/// `paths`: of the ranks' processes. `first`: the step that a rank would have begun with.
/// `places`: by rank, where in the kernel it was when time was up, as "futex_wait_queue"; none if
/// nobody has looked.
[[nodiscard]] BringUpFailed bring_up_failed(const std::vector<std::string>& paths,
                                            const comm::BringUpBoard& board,
                                            const std::vector<CommunicatorState::Death>& deaths,
                                            BringUpFailed::Step first,
                                            std::chrono::milliseconds limit,
                                            const std::vector<std::string>& places = {});

/// Whether the one that is to blame is a process that ended before its rank began the first step:
/// the bring-up has not hurt it, and may go well with the next process.
[[nodiscard]] bool was_gone_before(const comm::BringUpBoard& board,
                                   const std::vector<CommunicatorState::Death>& deaths);

}  // namespace strata::node
