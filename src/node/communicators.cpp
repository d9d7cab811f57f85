#include "node/communicators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/duration_text.hpp"
#include "comm/rank_tasks.hpp"
#include "node/bring_up_fault.hpp"
#include "node/worker_state.hpp"

namespace strata::node {
namespace {

using namespace std::chrono_literals;
using comm::BringUpBoard;
/// For ranks that leave since others have failed.
constexpr std::chrono::milliseconds kLeaveLimit{500};

std::string text_of(const CommunicatorState& list) {
  std::string text;
  for (const std::string& path : list.paths)
    text += (text.empty() ? "" : ", ") + path;
  return text;
}

/// The place of a chip, or of its path, among all by rank.
template <class T>
std::optional<std::uint32_t> rank_of(const std::vector<T>& by_rank, const T& wanted) {
  const auto at = std::find(by_rank.begin(), by_rank.end(), wanted);
  if (at == by_rank.end()) return std::nullopt;
  return static_cast<std::uint32_t>(at - by_rank.begin());
}

/// The death that a run has failed of, if it was told of before work on the list began: then the
/// engine had not heard of it.
std::vector<CommunicatorState::Death> deaths_before(const CommunicatorState& list,
                                                    const RunFailed& failed) {
  try {
    if (!failed.failed().empty() && failed.failed().front().exception != nullptr)
      std::rethrow_exception(failed.failed().front().exception);
  } catch (const WorkerDied& died) {
    const auto rank = rank_of(list.paths, died.fault().path);
    if (!rank) return {};
    return {{.rank = *rank, .by_itself = true, .why = died.fault().to_string()}};
  } catch (...) {
    return {};
  }
  return {};
}

}  // namespace

// ---- The lists ----------------------------------------------------------------------------------

std::shared_ptr<CommunicatorState> Communicators::of(const std::vector<LaneId>& chips) {
  std::shared_ptr<CommunicatorState> found;
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(lists_.begin(), lists_.end(),
                                 [&](const auto& each) { return each->chips == chips; });
    if (at == lists_.end()) {
      lists_.push_front(make(chips));
    } else {
      lists_.splice(lists_.begin(), lists_, at);
    }
    found = lists_.front();
  }
  drop_unused();
  return found;
}

std::shared_ptr<CommunicatorState> Communicators::make(const std::vector<LaneId>& chips) {
  auto list = std::make_shared<CommunicatorState>();
  list->number = next_number_++;
  list->chips = chips;
  for (const LaneId chip : chips)
    list->paths.push_back(worker_.path_of(chip));
  const std::size_t bytes = BringUpBoard::bytes(static_cast<std::uint32_t>(chips.size()));
  list->range = worker_.slabs().create(bytes, SlabStore::Populate::no);
  const BufferId buffer = worker_.engine().add_buffer(list->range.data, bytes);
  const auto extent = static_cast<std::int64_t>(bytes);
  list->board = Tensor(buffer, 0, DType::uint8, std::span(&extent, 1));
  return list;
}

/// Has the oldest lists that no domain uses leave, as far as there are more than are kept.
void Communicators::drop_unused() {
  std::vector<std::shared_ptr<CommunicatorState>> old;
  {
    const std::lock_guard lock(mutex_);
    std::size_t unused = 0;
    for (auto at = lists_.begin(); at != lists_.end();) {
      // The first is being asked for. Others get one only with the lock.
      const bool dropped = at != lists_.begin() && at->use_count() == 1 && ++unused > kKept;
      if (dropped) old.push_back(std::move(*at));
      at = dropped ? lists_.erase(at) : std::next(at);
    }
  }
  for (const auto& list : old) {
    try {
      const std::lock_guard use(list->use);
      destroy(*list, kLeaveLimit);
    } catch (const std::exception& error) {
      worker_.log().message(LogLevel::warning, worker_.options().name, error.what());
    }
    release(*list);
  }
}

void Communicators::release(CommunicatorState& list) {
  worker_.engine().remove_buffer_later(
      list.board.buffer(),
      [&slabs = worker_.slabs(), range = list.range] { slabs.release(range); });
}

void Communicators::process_gone(LaneId chip, const WorkerFault& cause, Ended how) {
  const std::lock_guard lock(mutex_);
  for (const auto& list : lists_) {
    const auto rank = rank_of(list->chips, chip);
    if (!rank) continue;
    list->up = false;
    list->last_death = {
        .rank = *rank, .by_itself = how == Ended::by_itself, .why = cause.to_string()};
    list->deaths.push_back(list->last_death);
    // Ranks that wait for it need not wait until the engine has them cancelled.
    BringUpBoard(list->range.data).fail(*rank, "its process is gone: " + cause.cause);
  }
}

void Communicators::about_to_end(LaneId chip, const std::function<std::string(LaneId)>& look) {
  const std::lock_guard lock(mutex_);
  for (const auto& list : lists_) {
    const auto rank = rank_of(list->chips, chip);
    if (!rank || !list->places.empty()) continue;
    const auto progress = BringUpBoard(list->range.data).progress(*rank);
    if (!progress.step || progress.through) continue;  // It is for another task.
    list->places.reserve(list->chips.size());
    for (const LaneId each : list->chips)
      list->places.push_back(look(each));
  }
}

// ---- Work on a list -----------------------------------------------------------------------------

/// What follows is told of by what happens from here on.
void Communicators::begin(CommunicatorState& list) {
  const std::lock_guard lock(mutex_);
  list.deaths.clear();
  list.places.clear();
  BringUpBoard(list.range.data)
      .reset(static_cast<std::uint32_t>(list.chips.size()), backend_.to_text());
}

TaskId Communicators::submit(Orchestration& run, const CommunicatorState& list, Builtin builtin,
                             std::string_view name, std::chrono::nanoseconds limit,
                             const Arguments& contexts) {
  const Call call = Call(worker_.builtin(builtin))
                        .within(std::max<std::chrono::nanoseconds>(limit, 1ms))
                        .stopping_within(kGrace);
  const std::size_t size = list.chips.size();
  std::vector<std::array<Scalar, 2>> scalars(size);
  std::vector<std::vector<TensorArg>> tensors(size);
  std::vector<GroupMember> members(size);
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    scalars[rank] = comm::RankArguments{.list = list.number, .rank = rank}.scalars();
    // Ranks meet on the board; nothing is ordered by it.
    tensors[rank].push_back(no_dep(inout(list.board)));
    if (!contexts.empty()) tensors[rank].push_back(inout(contexts[rank]));
    members[rank] = {
        .lane = list.chips[rank], .body = call, .tensors = tensors[rank], .scalars = scalars[rank]};
  }
  return run.submit_group({.members = members, .name = name});
}

template <class Steps>
void Communicators::run(CommunicatorState& list, Step first, std::chrono::milliseconds limit,
                        const Steps& steps) {
  begin(list);
  try {
    (void)worker_.run(steps, {.name = "ranks on " + text_of(list)});
  } catch (const RunFailed& failed) {
    fail(list, first, limit, failed);
  }
}

void Communicators::fail(CommunicatorState& list, Step first, std::chrono::milliseconds limit,
                         const RunFailed& failed) {
  std::vector<Death> deaths;
  std::vector<std::string> places;
  {
    const std::lock_guard lock(mutex_);
    list.up = false;
    deaths = list.deaths;
    places = list.places;
  }
  if (deaths.empty()) deaths = deaths_before(list, failed);
  const BringUpBoard board(list.range.data);
  const BringUpFailed error = bring_up_failed(list.paths, board, deaths, first, limit, places);
  const bool was_gone = was_gone_before(board, deaths);
  leave_where_up(list, deaths);
  if (was_gone) throw RankWasGone(error);
  throw error;
}

/// A rank may have come through before another failed.
void Communicators::leave_where_up(CommunicatorState& list, const std::vector<Death>& deaths) {
  const BringUpBoard board(list.range.data);
  const Call call =
      Call(worker_.builtin(Builtin::destroy_rank)).within(kLeaveLimit).stopping_within(kGrace);
  try {
    const auto leave = [&](Orchestration& run) {
      for (std::uint32_t rank = 0; rank < list.chips.size(); ++rank) {
        const bool dead = std::any_of(deaths.begin(), deaths.end(),
                                      [&](const Death& each) { return each.rank == rank; });
        if (dead || !board.progress(rank).through) continue;
        const auto [number, of_rank] =
            comm::RankArguments{.list = list.number, .rank = rank}.scalars();
        run.submit(call, no_dep(inout(list.board)), number, of_rank, on(list.chips[rank]),
                   named("leave"));
      }
    };
    (void)worker_.run(leave, {.name = "leave " + text_of(list)});
  } catch (const Error&) {
    // One that can't leave has been ended.
  }
}

void Communicators::require_up(CommunicatorState& list, std::chrono::milliseconds limit) {
  {
    const std::lock_guard lock(mutex_);
    if (list.up) return;
  }
  run(list, Step::load_library, limit, [&](Orchestration& run) {
    const TaskId prepared = submit(run, list, Builtin::prepare_rank, "prepare rank", limit, {});
    run.wait(prepared);
    BringUpBoard board(list.range.data);
    board.set_root_info(run.run().value(prepared, 0).value_or(std::string()));
    submit(run, list, Builtin::init_rank, "init rank", limit - board.since_first_step(), {});
  });
  const std::lock_guard lock(mutex_);
  list.up = list.deaths.empty();  // One that has died by now is noticed by what comes next.
}

void Communicators::attach(CommunicatorState& list, const std::vector<Tensor>& contexts,
                           std::chrono::milliseconds limit) {
  run(list, Step::attach, limit, [&](Orchestration& run) {
    submit(run, list, Builtin::attach_rank, "attach rank", limit, contexts);
  });
  const std::lock_guard lock(mutex_);
  if (list.up) return;
  // It was another process that was brought up.
  const Death& death = list.last_death;
  throw RankWasGone(death.rank, Step::attach,
                    fmt::format("the process of rank {} ({}) ended while a domain was made: {}",
                                death.rank, list.paths[death.rank], death.why));
}

void Communicators::destroy(CommunicatorState& list, std::chrono::milliseconds limit) {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(list.up, false)) return;
  }
  run(list, Step::destroy, limit, [&](Orchestration& run) {
    submit(run, list, Builtin::destroy_rank, "destroy rank", limit, {});
  });
}

std::vector<WorkerFault> Communicators::destroy_all(std::chrono::milliseconds limit) {
  std::vector<std::shared_ptr<CommunicatorState>> all;
  {
    const std::lock_guard lock(mutex_);
    all.assign(lists_.begin(), lists_.end());
  }
  std::vector<WorkerFault> problems;
  const os::Deadline deadline = os::Deadline::after(limit);
  for (const auto& list : all) {
    // Whoever works on it now is about to be cancelled.
    const std::unique_lock use(list->use, std::try_to_lock);
    if (!use.owns_lock() || deadline.passed()) continue;
    try {
      destroy(*list, limit);
    } catch (const BringUpFailed& error) {
      problems.push_back({.path = list->paths[error.rank()],
                          .role = "chip worker",
                          .state = "stopping",
                          .step = std::string(name_of(error.step())),
                          .cause = error.what()});
    } catch (const Error&) {
      return problems;  // The Worker is being cancelled.
    }
  }
  return problems;
}

}  // namespace strata::node
