#include "graph/execution.hpp"

#include <string>
#include <utility>

#include "base/exception_text.hpp"
#include "os/cpu.hpp"

namespace strata::graph {

namespace {

bool group_is_cancelled(const void* token) {
  const auto* task = static_cast<const TaskNode*>(token);
  return task->group->failed.load(std::memory_order_relaxed) || task->run->cancelled();
}

/// Whether a task gave up for being cancelled, rather than failed.
bool says_cancelled(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Cancelled&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

bool run_is_cancelled(const void* token) {
  return static_cast<const RunState*>(token)->cancelled();
}

bool dropped(const TaskNode& task) {
  return task.type == NodeType::group ? task.group->dropped : must_skip(task);
}

TaskContext context_of(TaskNode& task, std::uint32_t member, const Lane& lane) {
  const bool group = task.type == NodeType::group;
  return TaskContext(task.part_at(member).arguments,
                     {.task = TaskId{task.id},
                      .name = task.name,
                      .lane = lane.id,
                      .member = member,
                      .members = static_cast<std::uint32_t>(task.part_count()),
                      .named_lane = group || task.exact_lane},
                     group ? group_is_cancelled : run_is_cancelled,
                     group ? static_cast<const void*>(&task) : task.run);
}

std::shared_ptr<const Failure> failure_of(const TaskNode& task, std::exception_ptr error) {
  auto failure = std::make_shared<Failure>();
  failure->run = task.run->weak_from_this();
  failure->what.task = TaskId{task.id};
  failure->what.name = task.name;
  failure->what.message = base::message_of(error);
  failure->cancelled = task.run->cancelled() && says_cancelled(error);
  failure->what.exception = std::move(error);
  return failure;
}

std::shared_ptr<const Failure> skip_of(const TaskNode& task) {
  auto failure = std::make_shared<Failure>();
  failure->run = task.run->weak_from_this();
  failure->what.task = TaskId{task.id};
  failure->what.name = task.name;
  if (const Failure* cause = task.poison.load(std::memory_order_relaxed)) {
    failure->what.cause = cause->what.task;
    failure->what.message = "skipped because of task " + std::to_string(cause->what.task.number()) +
                            (cause->what.name.empty() ? "" : " '" + cause->what.name + "'") + ": " +
                            cause->what.message;
    failure->cancelled = task.run->cancelled();
  } else {
    failure->what.message = "dropped: " + task.run->name + " was ended before the task started";
    failure->cancelled = true;
  }
  return failure;
}

void log_start(TaskNode& task, const Lane& lane) {
  task.log->lane.store(lane.id.value, std::memory_order_relaxed);
  task.log->state.store(TaskState::running, std::memory_order_relaxed);
  task.log->started.store(os::cycle_count(), std::memory_order_relaxed);
}

}  // namespace strata::graph
