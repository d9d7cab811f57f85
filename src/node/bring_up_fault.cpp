#include "node/bring_up_fault.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/duration_text.hpp"

namespace strata::node {
namespace {

using Step = BringUpFailed::Step;
using comm::RankProgress;

/// Waits for its root information.
bool is_prepared(const RankProgress& progress) {
  return progress.through && progress.step && *progress.step <= Step::root_info;
}

/// How far a rank has come, as a number.
int distance(const RankProgress& progress) {
  if (is_prepared(progress)) return 2 * static_cast<int>(Step::root_info) + 1;
  if (progress.through) return 100;
  return progress.step ? 2 * static_cast<int>(*progress.step) : -1;
}

struct Culprit {
  std::uint32_t rank = 0;
  std::string text;
};

Culprit find_culprit(const std::vector<RankProgress>& ranks,
                     const std::vector<CommunicatorState::Death>& deaths,
                     std::chrono::milliseconds limit) {
  for (const auto& death : deaths) {
    if (death.by_itself) return {death.rank, death.why};
  }
  const auto of = [&](const RankProgress* rank) {
    return static_cast<std::uint32_t>(rank - ranks.data());
  };
  const RankProgress* first = nullptr;
  for (const RankProgress& rank : ranks) {
    // A process that was ended since its rank did not stop has a failure too: its end.
    const bool ended = std::any_of(deaths.begin(), deaths.end(),
                                   [&](const auto& death) { return death.rank == of(&rank); });
    if (rank.failed == 0 || ended) continue;
    if (first == nullptr || rank.failed < first->failed) first = &rank;
  }
  if (first != nullptr) return {of(first), first->text};
  const auto behind = std::min_element(
      ranks.begin(), ranks.end(),
      [](const RankProgress& a, const RankProgress& b) { return distance(a) < distance(b); });
  return {of(&*behind), "it did not come through within " + base::duration_text(limit)};
}

std::string place_of(const RankProgress& rank) {
  if (is_prepared(rank)) return "prepared";
  if (rank.through) return "through";
  return rank.step ? "in " + std::string(name_of(*rank.step)) : std::string("not begun");
}

}  // namespace

bool was_gone_before(const comm::BringUpBoard& board,
                     const std::vector<CommunicatorState::Death>& deaths) {
  const auto first =
      std::find_if(deaths.begin(), deaths.end(), [](const auto& death) { return death.by_itself; });
  return first != deaths.end() && !board.progress(first->rank).step;
}

BringUpFailed bring_up_failed(const std::vector<std::string>& paths,
                              const comm::BringUpBoard& board,
                              const std::vector<CommunicatorState::Death>& deaths, Step first,
                              std::chrono::milliseconds limit) {
  std::vector<RankProgress> ranks;
  ranks.reserve(paths.size());
  for (std::uint32_t rank = 0; rank < paths.size(); ++rank)
    ranks.push_back(board.progress(rank));
  const Culprit culprit = find_culprit(ranks, deaths, limit);
  const Step step = ranks[culprit.rank].step.value_or(first);
  std::string text = fmt::format(
      "the ranks of a domain could not be brought together: rank {} of {} ({}) failed in step "
      "'{}': {}\nwhere the ranks were:",
      culprit.rank, paths.size(), paths[culprit.rank], name_of(step), culprit.text);
  for (std::uint32_t rank = 0; rank < paths.size(); ++rank)
    text += fmt::format("{} rank {} ({}) {}", rank == 0 ? "" : ",", rank, paths[rank],
                        place_of(ranks[rank]));
  return {culprit.rank, step, text};
}

}  // namespace strata::node
