// Communicators: the lists of chips that have been brought up as ranks, and how that is done.
//
// A list is brought up for its first domain and kept for later ones, up to kKept lists that no
// domain uses. When the process of one of its chips is gone, the next domain brings it up anew.
//
// The ranks come up as tasks in their processes (comm/rank_tasks.hpp), each step a group: the chips
// finish what they were given before, and whoever fails has the others cancelled. A task that is
// cancelled in a call of a vendor's library can't hear that; its process is ended kGrace later.
//
// Thread safety: all members from any thread; process_gone() takes no other lock than mutex_ and
// waits for nobody.
//
// Invariants
//   (1) One bring-up, attachment or destruction of a list is under way at a time: who does one
//       holds CommunicatorState::use.
//   (2) A list is `up` only while all processes that came up in it are there.
//   (3) After a bring-up that failed no rank is in the communicator, save those that are given the
//       task of leaving it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/backend.hpp"
#include "comm/bring_up_board.hpp"
#include "node/builtin.hpp"
#include "node/slab_store.hpp"
#include "os/deadline.hpp"
#include "strata/comm_error.hpp"
#include "strata/ids.hpp"
#include "strata/orchestration.hpp"
#include "strata/worker_error.hpp"

namespace strata::node {

class WorkerState;

/// The process of a rank had ended before that rank began: with the next one it may go well.
class RankWasGone : public BringUpFailed {
 public:
  using BringUpFailed::BringUpFailed;
  explicit RankWasGone(const BringUpFailed& error) : BringUpFailed(error) {}
};

/// One list of chips.
struct CommunicatorState {
  /// The process of a rank is gone since the last bring-up or other work on the list began.
  struct Death {
    std::uint32_t rank = 0;
    bool by_itself = false;  ///< It was not Strata that ended it, for it was cancelled.
    std::string why = {};
  };
  std::uint64_t number = 0;
  std::vector<LaneId> chips;
  std::vector<std::string> paths;  ///< "node/chip[0]", by rank.
  SlabStore::Range range;          ///< Of the board.
  Tensor board;

  std::mutex use;
  // --- Guarded by Communicators::mutex_ ---
  bool up = false;
  std::vector<Death> deaths;
  Death last_death;  ///< Of all that there ever were.
  /// By rank, where its process was in the kernel when the first one was to be ended since its rank
  /// did not stop; empty if that has not happened since work on the list began.
  std::vector<std::string> places;
};

class Communicators {
 public:
  /// How long a rank may go on in a call when another has failed.
  static constexpr std::chrono::milliseconds kGrace{100};
  /// Lists that are kept though no domain uses them.
  static constexpr std::size_t kKept = 32;

  Communicators(WorkerState& worker, comm::BackendChoice backend)
      : worker_(worker), backend_(std::move(backend)) {}

  /// The list, which may not be up.
  [[nodiscard]] std::shared_ptr<CommunicatorState> of(const std::vector<LaneId>& chips);
  /// Brings it up unless it is. Requires `use`. Throws BringUpFailed, which may be a RankWasGone,
  /// and Cancelled.
  void require_up(CommunicatorState& list, std::chrono::milliseconds limit);
  /// Gives each rank its context, of which these are the places by rank. Requires `use`. Throws as
  /// require_up().
  void attach(CommunicatorState& list, const std::vector<Tensor>& contexts,
              std::chrono::milliseconds limit);
  /// All ranks leave, of all lists; where that does not go well it is told.
  [[nodiscard]] std::vector<WorkerFault> destroy_all(std::chrono::milliseconds limit);

  /// The supervisor's: the chip's process is gone.
  enum class Ended : bool { by_itself, for_it_was_cancelled };
  void process_gone(LaneId chip, const WorkerFault& cause, Ended how);
  /// The same: the chip's process is about to be ended since its task did not stop. `look` says
  /// where the process of a chip is.
  void about_to_end(LaneId chip, const std::function<std::string(LaneId)>& look);
  /// Whether destroy_all() does what the end of the processes would not.
  [[nodiscard]] bool leaves_something() const noexcept { return backend_.leaves_something(); }

 private:
  using Arguments = std::vector<Tensor>;
  using Death = CommunicatorState::Death;
  using Step = BringUpFailed::Step;
  void begin(CommunicatorState& list);
  TaskId submit(Orchestration& run, const CommunicatorState& list, Builtin builtin,
                std::string_view name, std::chrono::nanoseconds limit, const Arguments& contexts);
  /// Runs groups on all ranks; what fails is told as BringUpFailed.
  template <class Steps>
  void run(CommunicatorState& list, Step first, std::chrono::milliseconds limit,
           const Steps& steps);
  [[noreturn]] void fail(CommunicatorState& list, Step first, std::chrono::milliseconds limit,
                         const RunFailed& failed);
  void leave_where_up(CommunicatorState& list, const std::vector<Death>& deaths);
  void destroy(CommunicatorState& list, std::chrono::milliseconds limit);
  [[nodiscard]] std::shared_ptr<CommunicatorState> make(const std::vector<LaneId>& chips);
  void drop_unused();
  void release(CommunicatorState& list);

  WorkerState& worker_;
  const comm::BackendChoice backend_;
  std::mutex mutex_;
  // --- Guarded by mutex_ ---
  std::list<std::shared_ptr<CommunicatorState>> lists_;  ///< The last used first.
  std::uint64_t next_number_ = 1;
};

}  // namespace strata::node
