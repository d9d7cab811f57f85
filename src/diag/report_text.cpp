#include "diag/report_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "diag/runtime_state.hpp"
#include "diag/source_places.hpp"
#include "diag/verdict.hpp"
#include "os/child_process.hpp"
#include "strata/ids.hpp"

namespace strata::diag {
namespace {

using std::chrono::nanoseconds;

double seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

/// "350 ms", "12.3 s", "3 min 20 s", "5 h 12 min"
std::string time_text(nanoseconds time) {
  const double s = std::max(0.0, seconds(time));
  if (s < 1) return fmt::format("{:.0f} ms", s * 1e3);
  if (s < 60) return fmt::format("{:.1f} s", s);
  const auto whole = static_cast<long>(s);
  if (s < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

std::string count_text(std::size_t number, const char* one, const char* many) {
  return fmt::format("{} {}", number, number == 1 ? one : many);
}

std::string words_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string command_of(const ProcessReport& process) {
  return process.command_line.empty() ? "[" + process.name + "]" : words_of(process.command_line);
}

std::string state_text(const ProcessReport& process) {
  switch (process.state) {
    case 'R':
      return "running";
    case 'S':
      return "waiting";
    case 'D':
      return "in the kernel";
    case 'T':
      return "stopped";
    case 't':
      return "traced";
    case 'Z':
    case 'X':
      return "ended";
    default:
      return std::string(1, process.state);
  }
}

// ---- Text ---------------------------------------------------------------------------------------

std::string table(const TreeReport& report) {
  std::string text = fmt::format("{:>8} {:>8}  {:<13} {:>7} {:>12} {:>10} {:>5}  {}\n", "PID",
                                 "PPID", "STATE", "THREADS", "AGE", "CPU", "BUSY", "COMMAND");
  for (const ProcessReport& process : report.processes) {
    const std::string who = process.strata ? process.title() + ": " : "";
    text += fmt::format("{:>8} {:>8}  {:<13} {:>7} {:>12} {:>10} {:>3.0f} %  {}{}\n", process.pid,
                        process.ppid, state_text(process), process.threads.size(),
                        time_text(process.age), time_text(process.cpu_time), 100 * process.busy,
                        std::string(static_cast<std::size_t>(process.depth) * 2, ' '),
                        printable(who + command_of(process)));
  }
  return text;
}

std::string event_text(const trace::Event& event, nanoseconds now) {
  return fmt::format("{:>10} before: {}", time_text(now - event.at), trace::describe(event));
}

/// A worker with a task in hand does not write down that it runs, since that would cost each task.
bool is_at_work(const trace::Card& card) {
  return card.task && card.state == trace::ProcessState::idle;
}
std::string state_of(const trace::Card& card) {
  return trace::name_of(is_at_work(card) ? trace::ProcessState::running : card.state);
}
nanoseconds state_since(const trace::Card& card) {
  return is_at_work(card) ? card.task->since : card.state_since;
}

/// As printable(), line by line.
std::string printable_lines(std::string text) {
  for (char& c : text) {
    if (c != '\n' && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)) c = '?';
  }
  return text;
}

/// "idle for 3.2 s"; "idle for 1.0 s when it ended" of a dead one.
std::string state_with_time(const trace::Card& card, nanoseconds now) {
  return fmt::format("{} for {}{}", state_of(card), time_text(now - state_since(card)),
                     card.end ? " when it ended" : "");
}

std::string strata_text(const StrataReport& strata, nanoseconds now) {
  const trace::Card& card = strata.card;
  const nanoseconds until = card.end ? card.ended : now;
  std::string text = fmt::format("  Strata: {} ({}), {}\n", printable(card.path),
                                 printable(card.role), state_with_time(card, until));
  if (!card.step.empty()) {
    text += fmt::format("  last step: {}, {} ago\n", printable(card.step),
                        time_text(now - card.step_since));
  }
  if (card.task) {
    text += fmt::format("  task in hand: {} '{}' ({}), for {}\n", TaskId{card.task->task}.number(),
                        printable(card.task->name), printable(card.task->callable),
                        time_text(until - card.task->since));
    for (const std::string& argument : strata.task_arguments)
      text += "    argument " + printable(argument) + "\n";
  }
  if (strata.crash) text += trace::describe(*strata.crash);
  text += printable_lines(to_text(runtime_state(strata.state)));
  if (!strata.state_note.empty()) text += "  what its runtime is at: " + strata.state_note + "\n";
  for (const trace::ThreadEvents& thread : strata.events) {
    text += fmt::format("  last events of thread {} '{}', {} in all:\n", thread.thread,
                        printable(thread.name), thread.recorded);
    for (const trace::Event& event : thread.events)
      text += "    " + event_text(event, now) + "\n";
  }
  return text;
}

/// A line for each function; those that were inlined stand in front of the one they are in.
std::string frame_text(const trace::StackFrame& frame, std::size_t number) {
  if (frame.function.empty()) return "    " + printable(trace::to_text(frame, number)) + "\n";
  const std::vector<SourcePlace> places = places_of(frame);
  const std::string mark = fmt::format("    #{} ", number);
  std::string text;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool inlined = i + 1 < places.size();
    text += i == 0 ? mark : std::string(mark.size(), ' ');
    text += printable(to_text(places[i]));
    text += inlined ? ", inlined\n"
                    : printable(fmt::format(" in {}+{:#x}{}", frame.module, frame.offset,
                                            frame.note.empty() ? "" : " [" + frame.note + "]")) +
                          "\n";
  }
  return text;
}

std::string stack_text(const NativeStack& stack) {
  std::string text;
  const auto& frames = stack.frames;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    text += frame_text(frames[i], i);
    const std::size_t from = i + 1;
    while (i + 1 < frames.size() && frames[i + 1].address == frames[i].address)
      ++i;
    if (i == from) text += fmt::format("    #{} the same\n", i);
    if (i > from) text += fmt::format("    #{} to #{} the same\n", from, i);
  }
  if (stack.more) text += "    and more\n";
  if (!stack.note.empty()) text += "    (" + stack.note + ")\n";
  return text;
}

std::string indented(const std::string& text) {
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    result += "    " + printable(text.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return result;
}

std::string block(const ProcessReport& process, nanoseconds now) {
  std::string text =
      fmt::format("---- pid {} ---- {}\n", process.pid, printable(command_of(process)));
  text += fmt::format("  parent {}, {}, {} old, {} of CPU, {:.0f} % of one now, {}\n", process.ppid,
                      state_text(process), time_text(process.age), time_text(process.cpu_time),
                      100 * process.busy, count_text(process.threads.size(), "thread", "threads"));
  if (process.ended()) {
    const auto status = os::ExitStatus::from_wait_status(process.wait_status.value_or(0));
    text += "  it has " + status.to_string() + ", and was not waited for\n";
  }
  if (process.strata) text += strata_text(*process.strata, now);
  if (!process.note.empty()) text += "  no stacks: " + process.note + "\n";
  if (!process.stacks_note.empty()) text += "  stacks from outside: " + process.stacks_note + "\n";
  if (!process.ended()) {
    for (const ThreadReport& thread : process.threads) {
      text += fmt::format("  thread {} '{}' {}\n", thread.thread, printable(thread.name),
                          printable(doing_of(thread)));
      if (thread.lock_owner != 0)
        text += fmt::format("    the lock is held by thread {}\n", thread.lock_owner);
      text += stack_text(thread.stack);
    }
  }
  if (process.is_python) {
    text += "  Python:\n" + indented(process.python);
    if (!process.python_note.empty()) text += "    (" + process.python_note + ")\n";
  }
  return text;
}

std::string dead_block(const DeadReport& dead, nanoseconds now) {
  const trace::Card& card = dead.strata.card;
  return fmt::format("---- pid {}, dead ---- {}\n  child of {}: {}, {} ago\n", card.pid,
                     printable(card.path), dead.held_by, card.end->to_string(),
                     time_text(now - card.ended)) +
         strata_text(dead.strata, now);
}

// ---- JSON ---------------------------------------------------------------------------------------

nlohmann::json json_of(const SourcePlace& place) {
  return {{"function", place.function}, {"file", place.file}, {"line", place.line}};
}

nlohmann::json json_of(const trace::StackFrame& frame) {
  std::vector<SourcePlace> places = places_of(frame);
  nlohmann::json json = json_of(places.back());
  places.pop_back();
  json["inlined"] = nlohmann::json::array();
  for (const SourcePlace& place : places)
    json["inlined"].push_back(json_of(place));
  json["address"] = frame.address;
  json["module"] = frame.module;
  json["offset"] = frame.offset;
  json["build_id"] = frame.build_id;
  json["note"] = frame.note;
  return json;
}

nlohmann::json json_of(const PythonFrame& frame) {
  return {{"file", frame.file}, {"line", frame.line}, {"function", frame.function}};
}

nlohmann::json json_of(const ThreadReport& thread) {
  nlohmann::json json = {
      {"thread", thread.thread},
      {"name", thread.name},
      {"state", std::string(1, thread.state)},
      {"doing", doing_of(thread)},
      {"wait_channel", thread.wait_channel},
      {"system_call", nullptr},
      {"cpu_s", seconds(thread.cpu_time)},
      {"busy", thread.busy},
      {"ran", thread.ran},
      {"lock_owner", thread.lock_owner},
      {"joins", thread.joins},
      {"stopped_for_s", seconds(thread.stack.held)},
      {"stack_from", thread.stack.taker == StackTaker::process ? "process" : "outside"},
      {"note", thread.stack.note},
      {"more_frames", thread.stack.more},
      {"frames", nlohmann::json::array()},
      {"python", nlohmann::json::array()}};
  if (thread.call) json["system_call"] = thread.doing;
  for (const trace::StackFrame& frame : thread.stack.frames)
    json["frames"].push_back(json_of(frame));
  for (const PythonFrame& frame : thread.python)
    json["python"].push_back(json_of(frame));
  return json;
}

nlohmann::json json_of(const StrataReport& strata, nanoseconds now) {
  const trace::Card& card = strata.card;
  const nanoseconds until = card.end ? card.ended : now;
  nlohmann::json json = {{"path", card.path},
                         {"role", card.role},
                         {"state", state_of(card)},
                         {"state_for_s", seconds(until - state_since(card))},
                         {"step", card.step},
                         {"step_for_s", seconds(now - card.step_since)},
                         {"task", nullptr},
                         {"crash", nullptr},
                         {"runtime", strata.state},
                         {"runtime_note", strata.state_note},
                         {"events", nlohmann::json::array()}};
  if (card.task) {
    json["task"] = {{"id", card.task->task},
                    {"number", TaskId{card.task->task}.number()},
                    {"arguments", strata.task_arguments},
                    {"name", card.task->name},
                    {"callable", card.task->callable},
                    {"for_s", seconds(until - card.task->since)}};
  }
  if (strata.crash) json["crash"] = trace::describe(*strata.crash);
  for (const trace::ThreadEvents& thread : strata.events) {
    for (const trace::Event& event : thread.events) {
      json["events"].push_back({{"thread", thread.thread},
                                {"ago_s", seconds(now - event.at)},
                                {"kind", trace::name_of(event.kind)},
                                {"a", event.a},
                                {"b", event.b},
                                {"detail", event.detail}});
    }
  }
  return json;
}

nlohmann::json json_of(const ProcessReport& process, nanoseconds now) {
  nlohmann::json json = {{"pid", process.pid},
                         {"parent", process.ppid},
                         {"depth", process.depth},
                         {"name", process.name},
                         {"command_line", process.command_line},
                         {"state", std::string(1, process.state)},
                         {"stopped", process.stopped()},
                         {"ended", nullptr},
                         {"age_s", seconds(process.age)},
                         {"cpu_s", seconds(process.cpu_time)},
                         {"busy", process.busy},
                         {"note", process.note},
                         {"stacks_note", process.stacks_note},
                         {"strata", nullptr},
                         {"python", nullptr},
                         {"threads", nlohmann::json::array()}};
  if (process.ended()) {
    json["ended"] = os::ExitStatus::from_wait_status(process.wait_status.value_or(0)).to_string();
  }
  if (process.strata) json["strata"] = json_of(*process.strata, now);
  if (process.is_python) {
    json["python"] = {{"stacks", process.python}, {"note", process.python_note}};
  }
  for (const ThreadReport& thread : process.threads)
    json["threads"].push_back(json_of(thread));
  return json;
}

nlohmann::json json_of(const DeadReport& dead, nanoseconds now) {
  const trace::Card& card = dead.strata.card;
  return {{"pid", card.pid},
          {"parent", dead.held_by},
          {"ended", card.end->to_string()},
          {"ended_ago_s", seconds(now - card.ended)},
          {"strata", json_of(dead.strata, now)}};
}

std::size_t count_threads(const TreeReport& report) {
  std::size_t count = 0;
  for (const ProcessReport& process : report.processes)
    count += process.threads.size();
  return count;
}

}  // namespace

std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

std::string to_text(const TreeReport& report) {
  std::string text = "What stands in the way:\n";
  for (const std::string& finding : report.verdict)
    text += "  * " + printable(finding) + "\n";
  std::string pids;
  for (const ProcessReport& process : report.processes)
    pids += (pids.empty() ? "" : ", ") + std::to_string(process.pid);
  text += fmt::format("\n{} with {} at {}, looked at for {}: pids [{}]\n\n",
                      count_text(report.processes.size(), "process", "processes"),
                      count_text(count_threads(report), "thread", "threads"), report.when,
                      time_text(report.took), pids);
  text += table(report);
  for (const ProcessReport& process : report.processes)
    text += "\n" + block(process, report.taken_at);
  for (const DeadReport& dead : report.dead)
    text += "\n" + dead_block(dead, report.taken_at);
  return text;
}

nlohmann::json to_json(const TreeReport& report) {
  nlohmann::json json = {{"when", report.when},
                         {"took_s", seconds(report.took)},
                         {"stacks_s", seconds(report.stacks_took)},
                         {"copying_s", seconds(report.copying_took)},
                         {"window_s", seconds(report.window)},
                         {"verdict", report.verdict},
                         {"processes", nlohmann::json::array()},
                         {"dead", nlohmann::json::array()}};
  for (const ProcessReport& process : report.processes)
    json["processes"].push_back(json_of(process, report.taken_at));
  for (const DeadReport& dead : report.dead)
    json["dead"].push_back(json_of(dead, report.taken_at));
  return json;
}

std::string dump(const nlohmann::json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace strata::diag
