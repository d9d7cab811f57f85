// What a rank does while it comes up, is given a domain, and leaves; each a task in the rank's
// process, on its main thread.
//
//   prepare_rank   load the library; rank 0: make the root information, which is the task's value
//   init_rank      join the others, meet them, keep the communicator
//   attach_rank    a domain on it: its context, at this process's addresses
//   destroy_rank   leave
//
// The first two and the last have the board (bring_up_board.hpp) as tensor 0; a rank shows there
// each step before it begins it, and why it failed. All have RankArguments as scalars.
//
// A process keeps one communicator for each list of chips that it is in. One that was left over,
// since another rank of it died, goes when that list is brought up again.
//
// Thread safety: the thread that runs tasks.
#pragma once

#include <array>
#include <cstdint>

#include "strata/task.hpp"

namespace strata {
class WorkerTask;
}

namespace strata::comm {

/// The scalars of all of them.
struct RankArguments {
  std::uint64_t list = 0;  ///< Number of the list of chips.
  std::uint32_t rank = 0;
  [[nodiscard]] std::array<Scalar, 2> scalars() const noexcept {
    return {Scalar::of(list), Scalar::of(rank)};
  }
};

void prepare_rank(WorkerTask& task);
/// Ends as cancelled, having left again, if another rank has failed.
void init_rank(WorkerTask& task);
void destroy_rank(WorkerTask& task);
/// Tensor 0: the board; tensor 1: the place of the context, in which all is right but the
/// addresses: windows[q] is the distance in bytes from that place to the window of rank q.
void attach_rank(WorkerTask& task);

}  // namespace strata::comm
