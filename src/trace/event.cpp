#include "trace/event.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "strata/ids.hpp"

namespace strata::trace {

std::string describe(const Event& event) {
  const auto task = [&] { return TaskId{event.a}.number(); };
  switch (event.kind) {
    case EventKind::task_start:
      return fmt::format("task {} began", task());
    case EventKind::task_end:
      return event.b == 0 ? fmt::format("task {} ended well", task())
                          : fmt::format("task {} ended with status {}", task(), event.b);
    case EventKind::dispatch:
      return fmt::format("task {} went to lane {}", task(), event.b);
    case EventKind::completion:
      return fmt::format("task {} came back with status {}", task(), event.b);
    case EventKind::spawn:
      return fmt::format("started process {}", event.a);
    case EventKind::death:
      return fmt::format("process {} ended, status {}", event.a, event.b);
    case EventKind::step:
      return "a step of its start";
    case EventKind::state_transition:
    case EventKind::message:
    case EventKind::run_open:
    case EventKind::run_end:
    case EventKind::cancel:
    case EventKind::none:
      break;
  }
  return fmt::format("{} {:#x} {:#x}{}", name_of(event.kind), event.a, event.b,
                     event.detail != 0 ? fmt::format(" {:#x}", event.detail) : "");
}

std::vector<Event> latest(const std::vector<ThreadEvents>& threads, std::size_t count) {
  std::vector<Event> all;
  for (const ThreadEvents& thread : threads)
    all.insert(all.end(), thread.events.begin(), thread.events.end());
  std::ranges::stable_sort(all, {}, &Event::at);
  if (all.size() > count) all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(count));
  return all;
}

}  // namespace strata::trace
