#include "node/bring_up_fault.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

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

/// Of the ranks that are this far, the only one that is not where all the others are; there must be
/// two of those at least.
std::optional<std::uint32_t> odd_one_out(const std::vector<RankProgress>& ranks,
                                         const std::vector<std::string>& places, int far) {
  std::map<std::string, std::vector<std::uint32_t>> by_place;
  for (std::uint32_t rank = 0; rank < places.size(); ++rank) {
    if (distance(ranks[rank]) == far && !places[rank].empty())
      by_place[places[rank]].push_back(rank);
  }
  if (by_place.size() != 2) return std::nullopt;
  const auto& [fewer, more] =
      std::minmax(by_place.begin()->second, by_place.rbegin()->second,
                  [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (fewer.size() != 1 || more.size() < 2) return std::nullopt;
  return fewer.front();
}

Culprit find_culprit(const std::vector<RankProgress>& ranks,
                     const std::vector<CommunicatorState::Death>& deaths,
                     std::chrono::milliseconds limit, const std::vector<std::string>& places) {
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
  const std::string late = "it did not come through within " + base::duration_text(limit);
  if (const auto odd = odd_one_out(ranks, places, distance(*behind)))
    return {*odd, late + ", and it alone is not where the others wait"};
  return {of(&*behind), late};
}

std::string place_of(const RankProgress& rank, const std::string& in_kernel) {
  if (is_prepared(rank)) return "prepared";
  if (rank.through) return "through";
  if (!rank.step) return "not begun";
  std::string text = "in " + std::string(name_of(*rank.step));
  if (!in_kernel.empty()) text += " (" + in_kernel + ")";
  return text;
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
                              std::chrono::milliseconds limit,
                              const std::vector<std::string>& places) {
  std::vector<RankProgress> ranks;
  ranks.reserve(paths.size());
  for (std::uint32_t rank = 0; rank < paths.size(); ++rank)
    ranks.push_back(board.progress(rank));
  const Culprit culprit = find_culprit(ranks, deaths, limit, places);
  const Step step = ranks[culprit.rank].step.value_or(first);
  std::string text = fmt::format(
      "the ranks of a domain could not be brought together: rank {} of {} ({}) failed in step "
      "'{}': {}\nwhere the ranks were:",
      culprit.rank, paths.size(), paths[culprit.rank], name_of(step), culprit.text);
  for (std::uint32_t rank = 0; rank < paths.size(); ++rank)
    text += fmt::format("{} rank {} ({}) {}", rank == 0 ? "" : ",", rank, paths[rank],
                        place_of(ranks[rank], rank < places.size() ? places[rank] : ""));
  return {culprit.rank, step, text};
}

}  // namespace strata::node
