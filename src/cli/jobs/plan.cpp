#include "cli/jobs/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace strata::cli::jobs {

Plan::Plan(const std::vector<Job>& jobs, unsigned slots, std::optional<DevicePool> devices)
    : jobs_(jobs), slots_(slots), pool_(std::move(devices)), entries_(jobs.size()) {
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    entries_[i].devices = jobs[i].devices.value_or(pool_ ? 1 : 0);
    entries_[i].slots = std::clamp(jobs[i].slots, 1U, slots_);
    if (jobs[i].disabled) {
      entries_[i].done = entries_[i].good = true;
    } else {
      waiting_.push_back(i);
    }
  }
  // One at a time they come in the order in which they are listed.
  if (slots_ > 1) {
    std::ranges::stable_sort(waiting_, std::greater<>(),
                             [&](std::size_t i) { return jobs_[i].cost; });
  }
  link();
}

/// From names to places.
void Plan::link() {
  std::map<std::string, std::size_t> by_name;
  std::map<std::string, std::vector<std::size_t>> set_up;
  std::map<std::string, std::vector<std::size_t>> required;
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    by_name.emplace(jobs_[i].name, i);
    for (const std::string& fixture : jobs_[i].fixtures_set_up)
      set_up[fixture].push_back(i);
    for (const std::string& fixture : jobs_[i].fixtures_required)
      required[fixture].push_back(i);
  }
  const auto append = [](std::vector<std::size_t>& to, const std::vector<std::size_t>& more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    Entry& entry = entries_[i];
    for (const std::string& name : jobs_[i].after) {
      if (const auto found = by_name.find(name); found != by_name.end())
        entry.after.push_back(found->second);
    }
    for (const std::string& fixture : jobs_[i].fixtures_required)
      append(entry.needs, set_up[fixture]);
    for (const std::string& fixture : jobs_[i].fixtures_cleaned_up) {
      append(entry.after, set_up[fixture]);
      append(entry.after, required[fixture]);
    }
  }
}

bool Plan::is_ready(std::size_t job) const {
  const auto done = [&](std::size_t other) { return entries_[other].done; };
  const Entry& entry = entries_[job];
  return std::ranges::all_of(entry.after, done) && std::ranges::all_of(entry.needs, done);
}

/// But for devices.
bool Plan::has_room_for(std::size_t job) const {
  return slots_used_ + entries_[job].slots <= slots_ &&
         std::ranges::none_of(jobs_[job].locks,
                              [&](const std::string& lock) { return locks_.contains(lock); });
}

Plan::Start Plan::start(std::size_t job) {
  std::erase(waiting_, job);
  ++running_;
  slots_used_ += entries_[job].slots;
  alone_ = jobs_[job].alone;
  locks_.insert(jobs_[job].locks.begin(), jobs_[job].locks.end());
  Start start{.job = job, .devices = {}};
  if (entries_[job].devices > 0) start.devices = *pool_->take(entries_[job].devices);
  return start;
}

std::optional<Plan::Start> Plan::next() {
  if (alone_ || slots_used_ >= slots_) return std::nullopt;
  std::size_t kept = 0;  // Devices that are free, but for one who waits for more.
  for (const std::size_t job : waiting_) {
    if (jobs_[job].alone || !is_ready(job) || !has_room_for(job)) continue;
    const std::size_t wanted = entries_[job].devices;
    if (wanted == 0 || wanted + kept <= pool_->available()) return start(job);
    kept = pool_->available();
  }
  if (running_ > 0) return std::nullopt;
  const auto alone = std::ranges::find_if(
      waiting_, [&](std::size_t job) { return jobs_[job].alone && is_ready(job); });
  return alone == waiting_.end() ? std::nullopt : std::optional(start(*alone));
}

void Plan::ended(const Start& start, Devices devices) {
  --running_;
  alone_ = false;
  slots_used_ -= entries_[start.job].slots;
  for (const std::string& lock : jobs_[start.job].locks)
    locks_.erase(lock);
  if (start.devices.empty()) return;
  if (devices == Devices::free) {
    pool_->give_back(start.devices);
  } else {
    pool_->retire(start.devices);
  }
}

void Plan::again(std::size_t job) { waiting_.insert(waiting_.begin(), job); }

void Plan::finished(std::size_t job, Outcome outcome) {
  entries_[job].done = true;
  entries_[job].good = outcome == Outcome::passed;
}

/// Empty if it may still be started.
std::string Plan::why_never(std::size_t job) const {
  const Entry& entry = entries_[job];
  const std::size_t devices = pool_ ? pool_->size() : 0;
  if (entry.devices > devices) {
    return fmt::format("it needs {} device{}, and there {} {}{}", entry.devices,
                       entry.devices == 1 ? "" : "s", devices == 1 ? "is" : "are", devices,
                       pool_ ? "" : " (--devices says which there are)");
  }
  for (const std::size_t other : entry.needs) {
    if (entries_[other].done && !entries_[other].good) {
      return fmt::format("'{}', which sets up what it needs, has not passed", jobs_[other].name);
    }
  }
  return "";
}

std::optional<Plan::Unreachable> Plan::unreachable() {
  for (const std::size_t job : waiting_) {
    std::string why = why_never(job);
    if (why.empty()) continue;
    std::erase(waiting_, job);
    return Unreachable{job, std::move(why)};
  }
  const auto ready = [&](std::size_t job) { return is_ready(job); };
  if (running_ > 0 || waiting_.empty() || std::ranges::any_of(waiting_, ready)) return std::nullopt;
  const std::size_t job = waiting_.front();
  waiting_.erase(waiting_.begin());
  return Unreachable{job, "it comes after jobs that come after it"};
}

}  // namespace strata::cli::jobs
