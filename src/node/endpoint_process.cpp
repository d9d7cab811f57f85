// What the supervisor tells an endpoint and asks it: that its process is up, down, or late.
#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/duration_text.hpp"
#include "node/callable_registry.hpp"
#include "node/endpoint.hpp"
#include "node/task_text.hpp"
#include "strata/error.hpp"

namespace strata::node {

void Endpoint::open() {
  const std::lock_guard lock(mutex_);
  closed_ = false;
  lost_ = false;
  cutoff_ = 0;
}

void Endpoint::up(std::shared_ptr<ipc::MailboxParent> mailbox) {
  std::vector<Report> reports;
  {
    const std::lock_guard lock(mutex_);
    mailbox_ = std::move(mailbox);
    lost_ = false;
    send_waiting(reports);
  }
  tell(reports);
  shared_.engine->resume_lane(lane_);
}

void Endpoint::revive() {
  const std::lock_guard lock(mutex_);
  lost_ = false;
}

void Endpoint::confirm(CallableId callable) {
  std::vector<Report> reports;
  {
    const std::lock_guard lock(mutex_);
    if (confirmed_.size() <= callable.value) confirmed_.resize(callable.value + 1);
    confirmed_[callable.value] = Confirmed::yes;
    send_waiting(reports);
  }
  tell(reports);
}

void Endpoint::refuse(CallableId callable, WorkerFault why) {
  std::vector<Report> reports;
  {
    const std::lock_guard lock(mutex_);
    if (confirmed_.size() <= callable.value) confirmed_.resize(callable.value + 1);
    confirmed_[callable.value] = Confirmed::refused;
    refused_.emplace_back(callable.value, std::move(why));
    send_waiting(reports);
  }
  tell(reports);
}

/// Why a task fails whose worker died. Lock held.
std::exception_ptr Endpoint::died(const Entry& entry, const WorkerFault& cause, Begun begun) const {
  const std::string task = text_of(*entry.context);
  if (entry.over_limit && !entry.program) {
    return std::make_exception_ptr(DeadlineExceeded(
        task + " ran longer than its time limit of " + base::duration_text(entry.time_limit) +
        " and did not stop when told; " + cause.to_string()));
  }
  if (entry.context->cancelled()) {
    return cancelled_error(task + " was cancelled; " + cause.to_string());
  }
  WorkerFault fault = cause;
  std::string text;
  if (begun == Begun::yes) {
    fault.task = task;
    fault.callable = shared_.callables->text_of(entry.call.callable());
  } else {
    text = task + " was for " + path_ + " and had not begun: ";
  }
  text += fault.to_string();
  return std::make_exception_ptr(WorkerDied(text, fault));
}

void Endpoint::down(const WorkerFault& cause, bool lost) {
  // First of all no more tasks come of themselves.
  shared_.engine->suspend_lane(lane_);
  while (poll()) {
    // What it completed before it died is completed.
  }
  const std::uint64_t newest = shared_.engine->last_task().value;
  std::vector<Report> reports;
  {
    const std::lock_guard lock(mutex_);
    // A replacement that could not be started, with another to come: what waits for it still does.
    if (mailbox_ == nullptr && !lost && !closed_) return;
    lost_ = lost;
    last_cause_ = cause;
    cutoff_ = newest;
    for (Entry& entry : unfinished_)
      reports.push_back(finished(entry, &cause));
    unfinished_.clear();
    while (!sent_.empty() && !mailbox_->begun(sent_.back().ticket)) {
      waiting_.push_front(std::move(sent_.back()));
      sent_.pop_back();
    }
    for (Entry& entry : sent_) {  // One at most.
      last_cause_.task = text_of(*entry.context);
      last_cause_.callable = shared_.callables->text_of(entry.call.callable());
      reports.push_back({.id = entry.id, .error = died(entry, last_cause_, Begun::yes)});
    }
    sent_.clear();
    in_flight_.store(0, std::memory_order_relaxed);
    for (Entry& entry : waiting_) {
      const bool fails = entry.context->named_lane() || entry.over_limit;
      if (!entry.over_limit && (entry.told || entry.cancelled)) {
        reports.push_back(
            {.id = entry.id, .error = cancelled_error(text_of(*entry.context) + " was cancelled")});
      } else if (closed_ && !entry.over_limit) {
        reports.push_back({.id = entry.id,
                           .error = cancelled_error(text_of(*entry.context) +
                                                    " was dropped: the Worker was closed")});
      } else if (fails) {
        reports.push_back({.id = entry.id, .error = died(entry, last_cause_, Begun::no)});
      } else {
        reports.push_back({.id = entry.id, .give_back = true});
      }
    }
    waiting_.clear();
    confirmed_.clear();
    refused_.clear();
    mailbox_.reset();
  }
  tell(reports);
}

void Endpoint::close() {
  std::vector<Report> reports;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (Entry& entry : sent_)
      tell_to_stop(entry);
    for (Entry& entry : waiting_) {
      reports.push_back({.id = entry.id,
                         .error = cancelled_error(text_of(*entry.context) +
                                                  " was dropped: the Worker was closed")});
    }
    waiting_.clear();
  }
  tell(reports);
}

/// Why its worker must be ended. Lock held.
std::string Endpoint::overdue_text(const Entry& entry) const {
  const std::string task = text_of(*entry.context);
  if (entry.program && entry.over_limit) {
    return task + " has a time limit of " + base::duration_text(entry.time_limit) +
           ", which the chip keeps itself, but nothing has come from it for " +
           base::duration_text(grace_of(entry)) + " after that, so its process was ended";
  }
  return task + (entry.over_limit ? " ran longer than its time limit" : " was cancelled") +
         " and went on for " + base::duration_text(cancel_grace_of(entry)) +
         " after it was told, so its worker was ended";
}

os::Deadline Endpoint::next_timer(std::optional<Overdue>& overdue) {
  const std::lock_guard lock(mutex_);
  os::Deadline begin;
  if (!waiting_.empty() && mailbox_ != nullptr && !closed_) {
    Entry& next = waiting_.front();
    if (next.limit.passed()) {
      next.over_limit = true;
      overdue = Overdue{text_of(*next.context) +
                        " could not be given to its worker within its time limit of " +
                        base::duration_text(next.call.time_limit()) + ", so that was ended"};
      return os::Deadline::never();
    }
    begin = next.limit;
  }
  if (sent_.empty()) return begin;
  Entry& entry = sent_.front();
  if (!entry.over_limit && entry.limit.passed()) {
    entry.over_limit = true;
    if (entry.program) {
      entry.grace = entry.limit;  // It has had it.
    } else {
      tell_to_stop(entry);
    }
  }
  if (entry.grace.passed() && !closed_) {
    overdue = Overdue{overdue_text(entry)};
    return os::Deadline::never();
  }
  return os::earlier(begin, os::earlier(entry.over_limit ? os::Deadline::never() : entry.limit,
                                        closed_ ? os::Deadline::never() : entry.grace));
}

std::string Endpoint::task_in_hand() {
  const std::lock_guard lock(mutex_);
  return sent_.empty() ? std::string() : text_of(*sent_.front().context);
}

nlohmann::json Endpoint::describe() {
  const std::lock_guard lock(mutex_);
  nlohmann::json report = {{"in_hand", nullptr},
                           {"sent_ahead", sent_.empty() ? 0 : sent_.size() - 1},
                           {"not_sent", waiting_.size()},
                           {"no_process", mailbox_ == nullptr}};
  if (sent_.empty()) return report;
  const Entry& entry = sent_.front();
  const TaskContext& context = *entry.context;
  report["in_hand"] = {{"number", context.task().number()},
                       {"name", std::string(context.name())},
                       {"callable", shared_.callables->text_of(entry.call.callable())},
                       {"arguments", argument_texts(context)},
                       {"cancelled", entry.told || entry.cancelled},
                       {"over_limit", entry.over_limit}};
  return report;
}

bool Endpoint::lost() {
  const std::lock_guard lock(mutex_);
  return lost_;
}

std::string Endpoint::broken() {
  const std::lock_guard lock(mutex_);
  return mailbox_ == nullptr ? std::string() : std::string(mailbox_->broken());
}

}  // namespace strata::node
