#include "diag/runtime_state.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "base/duration_text.hpp"

namespace strata::diag {
namespace {

using nlohmann::json;

// ---- Reading ------------------------------------------------------------------------------------

const json kNothing;

const json& at(const json& object, const char* key) {
  if (!object.is_object()) return kNothing;
  const auto found = object.find(key);
  return found == object.end() ? kNothing : *found;
}

std::string text(const json& object, const char* key) {
  const json& value = at(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::uint64_t number(const json& object, const char* key) {
  const json& value = at(object, key);
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  return value.is_number_integer() && value.get<std::int64_t>() > 0 ? value.get<std::uint64_t>()
                                                                    : 0;
}

double real(const json& object, const char* key, double otherwise) {
  const json& value = at(object, key);
  return value.is_number() ? value.get<double>() : otherwise;
}

std::vector<std::string> texts(const json& object, const char* key) {
  std::vector<std::string> all;
  const json& list = at(object, key);
  if (!list.is_array()) return all;
  all.reserve(list.size());
  for (const json& value : list) {
    if (value.is_string()) all.push_back(value.get<std::string>());
  }
  return all;
}

/// Calls visit(element) for each element of a list.
template <class Visit>
void for_each(const json& object, const char* key, const Visit& visit) {
  const json& list = at(object, key);
  if (!list.is_array()) return;
  for (const json& element : list)
    visit(element);
}

EngineState engine_from(const json& value) {
  EngineState engine;
  engine.window_used = number(at(value, "window"), "used");
  engine.window_capacity = number(at(value, "window"), "capacity");
  engine.heap_used = number(at(value, "heap"), "used");
  engine.heap_capacity = number(at(value, "heap"), "capacity");
  engine.waiting = number(at(value, "counts"), "waiting");
  engine.ready = number(at(value, "counts"), "ready");
  engine.at_lanes = number(at(value, "counts"), "at_lanes");
  for_each(value, "blocked", [&](const json& each) {
    engine.blocked.push_back({.run = text(each, "run"),
                              .scope = text(each, "scope"),
                              .needs = text(each, "needs"),
                              .asked = number(each, "asked"),
                              .for_s = real(each, "for_s", 0)});
  });
  for_each(value, "holders", [&](const json& each) {
    engine.holders.push_back({.bytes = number(each, "bytes"),
                              .run = text(each, "run"),
                              .task = number(each, "task"),
                              .kept_by = text(each, "kept_by")});
  });
  engine.json = value;
  return engine;
}

ChipState chip_from(const json& value) {
  ChipState chip;
  chip.orchestration_for_s = real(value, "orchestration_for_s", -1);
  for_each(value, "cores", [&](const json& each) {
    chip.cores.push_back({.where = text(each, "where"),
                          .state = text(each, "state"),
                          .kernel = text(each, "kernel"),
                          .task = number(each, "task"),
                          .task_name = text(each, "task_name"),
                          .block = number(each, "block"),
                          .blocks = number(each, "blocks"),
                          .for_s = real(each, "for_s", 0),
                          .waits_for = text(each, "waits_for"),
                          .thread = static_cast<int>(number(each, "thread")),
                          .arguments = texts(each, "arguments")});
  });
  return chip;
}

ChildState child_from(const json& value) {
  const json& task = at(value, "in_hand");
  return {.path = text(value, "path"),
          .pid = static_cast<int>(number(value, "pid")),
          .state = text(value, "state"),
          .task = number(task, "number"),
          .task_name = text(task, "name"),
          .callable = text(task, "callable"),
          .arguments = texts(task, "arguments"),
          .sent_ahead = number(value, "sent_ahead"),
          .not_sent = number(value, "not_sent")};
}

// ---- Text ---------------------------------------------------------------------------------------

std::string quoted(const std::string& name) { return name.empty() ? "" : " '" + name + "'"; }

std::string task_line(const json& task) {
  std::string line = fmt::format("    task {}{}: {}", number(task, "number"),
                                 quoted(text(task, "name")), text(task, "state"));
  if (at(task, "host_access") == json(true)) line += ", an access by the host";
  if (const std::string lane = text(task, "lane"); !lane.empty()) line += ", " + lane;
  std::vector<std::uint64_t> after;
  for_each(task, "after", [&](const json& each) {
    if (each.is_number_unsigned()) after.push_back(each.get<std::uint64_t>());
  });
  if (!after.empty()) line += fmt::format(", after {}", fmt::join(after, ", "));
  if (const std::string run = text(task, "run"); !run.empty()) line += " (" + run + ")";
  return line + "\n";
}

std::string blocked_line(const BlockedSubmit& blocked) {
  const std::string what = blocked.needs == "heap" ? bytes_text(blocked.asked) + " of the heap"
                           : blocked.needs == "window"
                               ? fmt::format("{} slots of the window", blocked.asked)
                           : blocked.needs == "run" ? "the end of a run"
                                                    : "the last user of a buffer";
  return fmt::format("    the orchestration of {}, scope '{}', waits for {}, for {}\n", blocked.run,
                     blocked.scope, what, seconds_text(blocked.for_s));
}

std::string engine_text(const EngineState& engine) {
  std::string lines = fmt::format(
      "  engine: window {} of {}, heap {} of {}; tasks: {} waiting, {} ready, {} at lanes\n",
      engine.window_used, engine.window_capacity, bytes_text(engine.heap_used),
      bytes_text(engine.heap_capacity), engine.waiting, engine.ready, engine.at_lanes);
  for_each(engine.json, "runs", [&](const json& run) {
    lines += fmt::format("    {}: open for {}, {} tasks submitted, {} of the heap, {}{}\n",
                         text(run, "name"), seconds_text(real(run, "for_s", 0)),
                         number(run, "tasks"), bytes_text(number(run, "heap_bytes")),
                         at(run, "orchestration_returned") == json(true)
                             ? "its orchestration has returned"
                             : "its orchestration runs",
                         at(run, "cancelled") == json(true) ? ", cancelled" : "");
  });
  for (const BlockedSubmit& blocked : engine.blocked)
    lines += blocked_line(blocked);
  for_each(engine.json, "lanes", [&](const json& lane) {
    lines += fmt::format("    {}: {} at it, {} in its order{}\n", text(lane, "lane"),
                         number(lane, "at_it"), number(lane, "behind"),
                         at(lane, "suspended") == json(true) ? ", suspended" : "");
  });
  for_each(engine.json, "tasks", [&](const json& task) { lines += task_line(task); });
  if (const std::uint64_t more = number(engine.json, "more_tasks"); more != 0)
    lines += fmt::format("    and {} more\n", more);
  for (const HeapHolder& holder : engine.holders)
    lines += "    of the heap: " + holder.to_string() + "\n";
  return lines;
}

std::string chip_text(const ChipState& chip) {
  std::string lines;
  if (chip.orchestration_for_s >= 0) {
    lines += fmt::format("  chip: its orchestration has been running for {}\n",
                         seconds_text(chip.orchestration_for_s));
  }
  for (const CoreState& core : chip.cores) {
    lines += fmt::format("  {} {} {}, for {}", core.where,
                         core.state == "allotted"  ? "is to begin"
                         : core.state == "waiting" ? "waits for " + core.waits_for + " in"
                                                   : "runs",
                         core.work(), seconds_text(core.for_s));
    if (!core.arguments.empty())
      lines += fmt::format("; its arguments: {}", fmt::join(core.arguments, ", "));
    lines += "\n";
  }
  return lines;
}

std::string child_text(const ChildState& child) {
  if (child.task == 0 && child.sent_ahead == 0 && child.not_sent == 0) return "";
  std::string line = fmt::format("  {} ({}, pid {})", child.path, child.state, child.pid);
  if (child.task != 0) {
    line += fmt::format(" has task {}{}, which calls {}", child.task, quoted(child.task_name),
                        child.callable);
    if (!child.arguments.empty()) line += fmt::format("({})", fmt::join(child.arguments, ", "));
  }
  return line + fmt::format("; {} behind it, {} not sent\n", child.sent_ahead, child.not_sent);
}

}  // namespace

std::string HeapHolder::to_string() const {
  return fmt::format("{} of {} ({}, kept by {})",
                     task == 0 ? "allocate()" : fmt::format("task {}", task), run,
                     bytes_text(bytes), kept_by);
}

std::string CoreState::work() const {
  return fmt::format("kernel '{}', task {}{}, block {} of {}", kernel, task, quoted(task_name),
                     block, blocks);
}

RuntimeState runtime_state(const json& state) {
  RuntimeState made;
  if (!state.is_object()) return made;
  for (const auto& [kind, parts] : state.items()) {
    if (kind == "problem" && parts.is_string()) made.problems.push_back(parts.get<std::string>());
    if (!parts.is_array()) continue;
    for (const json& part : parts) {
      if (const std::string problem = text(part, "problem"); !problem.empty())
        made.problems.push_back(kind + ": " + problem);
      if (kind == "engine") {
        made.engines.push_back(engine_from(part));
      } else if (kind == "chip") {
        made.chips.push_back(chip_from(part));
      } else if (kind == "worker") {
        for_each(part, "children",
                 [&](const json& child) { made.children.push_back(child_from(child)); });
      }
      std::ranges::move(texts(part, "waits"), std::back_inserter(made.waits));
    }
  }
  return made;
}

std::string to_text(const RuntimeState& state) {
  std::string lines;
  for (const std::string& problem : state.problems)
    lines += "  " + problem + "\n";
  for (const EngineState& engine : state.engines) {
    const bool idle = engine.window_used == 0 && engine.heap_used == 0 && engine.blocked.empty() &&
                      at(engine.json, "runs").empty();
    if (!idle) lines += engine_text(engine);
  }
  for (const ChildState& child : state.children)
    lines += child_text(child);
  for (const ChipState& chip : state.chips)
    lines += chip_text(chip);
  for (const std::string& wait : state.waits)
    lines += "  " + wait + "\n";
  return lines;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit)
    value /= 1024;
  const bool whole = value == std::floor(value);
  return fmt::format("{:.{}f} {}", value, whole ? 0 : 1, kUnits[unit]);
}

std::string seconds_text(double seconds) {
  if (!(seconds > 0)) return "0 ms";
  if (seconds >= 10) return fmt::format("{:.0f} s", std::min(seconds, 1e12));
  const auto ms = static_cast<std::int64_t>(seconds * 1e3);
  return base::duration_text(std::chrono::milliseconds(ms));
}

}  // namespace strata::diag
