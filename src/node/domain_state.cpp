#include "node/domain_state.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "comm/collective_task.hpp"
#include "comm/mend.hpp"
#include "comm/window_layout.hpp"
#include "strata/chip_error.hpp"
#include "strata/comm_error.hpp"

namespace strata::node {

void require_whole(const DomainState& domain, const std::string& what) {
  if (!domain.broken.load(std::memory_order_acquire)) return;
  throw CommError(
      CommError::Cause::rank_left,
      fmt::format("{}: domain '{}' is broken: {}; make a new one (Worker::create_domain)", what,
                  domain.name(), domain.cause));
}

const std::shared_ptr<DomainState>& DomainAccess::state(const Domain& domain) noexcept {
  return domain.state_;
}

void DomainTable::add(const std::shared_ptr<DomainState>& domain) {
  const std::lock_guard lock(mutex_);
  domains_.push_back(domain);
  for (std::uint32_t rank = 0; rank < domain->buffers.size(); ++rank)
    places_.emplace(domain->buffers[rank], Place{domain.get(), rank});
  domain->buffers_left.store(domain->buffers.size(), std::memory_order_relaxed);
  any_.store(true, std::memory_order_relaxed);
}

bool DomainTable::remove(DomainState& domain, std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  places_.erase(domain.buffers[rank]);
  if (domain.buffers_left.fetch_sub(1, std::memory_order_relaxed) != 1) return false;
  std::erase_if(domains_, [&](const auto& each) { return each.get() == &domain; });
  if (domains_.empty()) any_.store(false, std::memory_order_relaxed);
  return true;
}

void DomainTable::check_arguments(const TaskSpec& task) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < task.tensors.size(); ++i) {
    const auto found = places_.find(task.tensors[i].tensor->buffer());
    if (found == places_.end()) continue;
    const auto& [domain, rank] = found->second;
    const std::string what = text_of_argument(task, i);
    require_whole(*domain, what);
    if (task.target.by == Target::By::lane && task.target.index == domain->chips[rank].value) {
      continue;
    }
    throw ChipError(
        ErrorCode::foreign_memory,
        fmt::format("{} is memory of rank {} of domain '{}', but the task is not for its"
                    " chip: give it on() {}, which is domain.chip({})",
                    what, rank, domain->name(), domain->paths[rank], rank));
  }
}

std::byte* DomainTable::locate(BufferId buffer, LaneId lane, const std::string& what) const {
  if (!any_.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(buffer);
  if (found == places_.end()) return nullptr;
  const auto& [domain, rank] = found->second;
  require_whole(*domain, what);
  if (domain->chips[rank] != lane) {
    throw ChipError(
        ErrorCode::foreign_memory,
        fmt::format("{} is memory of {}, which the task is not for", what, domain->paths[rank]));
  }
  return domain->part(rank);
}

void DomainTable::begin_collective(const TaskContext& member) {
  const auto order = comm::CollectiveOrder::of(member);
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(member.arguments().tensors[0].buffer);
  if (found == places_.end()) return;  // It was released; locate() says so.
  DomainState& domain = *found->second.domain;
  if (domain.broken.load(std::memory_order_relaxed)) return;
  if (order.kind != detail::CollectiveKind::none) {
    if (std::exchange(domain.last_of_all, member.task()) != member.task()) comm::mend(domain.view);
    return;
  }
  TaskId& last = domain.last_between[std::minmax(order.root, order.to)];
  if (std::exchange(last, member.task()) != member.task())
    comm::mend_messages(domain.view, order.channel, order.root, order.to);
}

void DomainTable::process_gone(LaneId chip, const WorkerFault& cause) {
  const std::lock_guard lock(mutex_);
  for (const auto& domain : domains_) {
    const auto at = std::find(domain->chips.begin(), domain->chips.end(), chip);
    if (at == domain->chips.end()) continue;
    const auto rank = static_cast<std::uint32_t>(at - domain->chips.begin());
    const std::string why =
        fmt::format("the process of rank {} is gone: {}", rank, cause.to_string());
    comm::mark_gone(domain->view, rank, why);
    if (domain->broken.load(std::memory_order_relaxed)) continue;
    domain->cause = why;
    domain->broken.store(true, std::memory_order_release);
  }
}

std::vector<std::string> DomainTable::waits() const {
  std::vector<std::string> lines;
  const std::lock_guard lock(mutex_);
  for (const auto& domain : domains_) {
    std::vector<std::string> ranks;
    for (std::size_t rank = 0; rank < domain->paths.size(); ++rank)
      ranks.push_back(fmt::format("{} {}", rank, domain->paths[rank]));
    for (const std::string& wait : comm::describe_waits(domain->view)) {
      lines.push_back(fmt::format("{} (ranks: {})", wait, fmt::join(ranks, ", ")));
    }
  }
  return lines;
}

}  // namespace strata::node
