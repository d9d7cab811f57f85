#include "node/protocol.hpp"

#include <array>
#include <iterator>
#include <nlohmann/json.hpp>

#include "node/chip_options.hpp"
#include "node/json_fields.hpp"
#include "strata/error.hpp"

namespace strata::node {
namespace {

using nlohmann::json;

/// Options nest as deep as the tree does. More than this is no tree, but a message made to exhaust
/// the stack.
constexpr int kMaxLevels = 64;

constexpr std::array<std::string_view, 5> kLevels = {"debug", "info", "warning", "error", "off"};
constexpr std::array<std::string_view, 4> kSources = {"library", "program", "chip_program",
                                                      "builtin"};
constexpr std::array<std::string_view, 2> kPrograms = {"strata_worker", "this_program"};

template <class Enum, std::size_t Count>
json enum_to_json(Enum value, const std::array<std::string_view, Count>& names) {
  return std::string(names.at(static_cast<std::size_t>(value)));
}

template <class Enum, std::size_t Count>
Enum enum_from(const JsonFields& fields, const char* name,
               const std::array<std::string_view, Count>& names) {
  const std::string text = fields.text(name);
  std::string wanted = "one of";
  for (std::size_t i = 0; i < Count; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
    wanted += (i == 0 ? " " : ", ") + std::string(names[i]);
  }
  fields.refuse(name, wanted);
}

json texts_to_json(const std::vector<std::string>& texts) {
  json list = json::array();
  for (const auto& text : texts)
    list.push_back(text_to_json(text));
  return list;
}

json setup_to_json(const std::optional<Callable>& setup) {
  return setup ? to_json(*setup) : json(nullptr);
}

std::optional<Callable> setup_from(const JsonFields& fields) {
  const auto& setup = fields.at("setup");
  if (setup.is_null()) return std::nullopt;
  return callable_from(setup);
}

json to_json(const ChipOptions& chip) {
  return {{"platform", text_to_json(chip.platform)},
          {"run", node::to_json(chip.run)},
          {"setup", setup_to_json(chip.setup)}};
}

ChipOptions chip_from(const json& value) {
  const JsonFields fields(value, "options of a chip worker");
  return {.platform = fields.text("platform"),
          .run = run_options_from(fields.at("run")),
          .setup = setup_from(fields)};
}

json to_json(const SubWorkerOptions& sub) {
  return {{"count", sub.count},
          {"program", enum_to_json(sub.program, kPrograms)},
          {"setup", setup_to_json(sub.setup)}};
}

SubWorkerOptions sub_from(const json& value) {
  const JsonFields fields(value, "options of sub workers");
  return {.count = fields.number32("count"),
          .program = enum_from<WorkerProgram>(fields, "program", kPrograms),
          .setup = setup_from(fields)};
}

WorkerOptions options_from(const json& value, int levels) {
  const JsonFields fields(value, "options of a Worker");
  if (levels == 0) {
    throw InvalidArgument("options of a Worker: more than " + std::to_string(kMaxLevels) +
                          " levels of workers");
  }
  WorkerOptions options;
  options.name = fields.text("name");
  for (const auto& chip : fields.array("chips"))
    options.chips.push_back(chip_from(chip));
  for (const auto& sub : fields.array("subs"))
    options.subs.push_back(sub_from(sub));
  for (const auto& next : fields.array("next_level")) {
    options.next_level.push_back(options_from(next, levels - 1));
  }
  options.program = enum_from<WorkerProgram>(fields, "program", kPrograms);
  options.setup = setup_from(fields);
  options.start_time_limit = fields.milliseconds("start_time_limit");
  options.close_time_limit = fields.milliseconds("close_time_limit");
  options.cancel_grace = fields.milliseconds("cancel_grace");
  options.replace_dead_workers = fields.boolean("replace_dead_workers");
  options.window = fields.unsigned_integer("window");
  options.heap = fields.unsigned_integer("heap");
  options.max_open_runs = fields.unsigned_integer("max_open_runs");
  options.depth = fields.number32("depth");
  options.communication = fields.text("communication");
  options.log_level = enum_from<LogLevel>(fields, "log_level", kLevels);
  options.worker_program = fields.text("worker_program");
  return options;
}

}  // namespace

json to_json(const Callable& callable) {
  json made = {{"source", enum_to_json(callable.source, kSources)},
               {"library", text_to_json(callable.library)},
               {"symbol", text_to_json(callable.symbol)},
               {"orchestration", callable.orchestration}};
  if (callable.source == Callable::Source::chip_program) made["run"] = to_json(callable.run);
  return made;
}

Callable callable_from(const json& value) {
  const JsonFields fields(value, "callable");
  Callable callable{.source = enum_from<Callable::Source>(fields, "source", kSources),
                    .library = fields.text("library"),
                    .symbol = fields.text("symbol"),
                    .orchestration = fields.boolean("orchestration")};
  if (callable.source == Callable::Source::chip_program) {
    callable.run = run_options_from(fields.at("run"));
  }
  return callable;
}

json to_json(const WorkerFault& fault) {
  return {{"path", text_to_json(fault.path)},
          {"role", text_to_json(fault.role)},
          {"pid", fault.pid},
          {"state", text_to_json(fault.state)},
          {"step", text_to_json(fault.step)},
          {"cause", text_to_json(fault.cause)},
          {"exception", text_to_json(fault.type)},
          {"code", text_to_json(fault.code)},
          {"task", text_to_json(fault.task)},
          {"callable", text_to_json(fault.callable)},
          {"note", text_to_json(fault.note)},
          {"stack", texts_to_json(fault.stack)},
          {"events", texts_to_json(fault.events)},
          {"log", texts_to_json(fault.log)}};
}

WorkerFault fault_from(const json& value) {
  const JsonFields fields(value, "fault");
  WorkerFault fault;
  fault.path = fields.text("path");
  fault.role = fields.text("role");
  fault.pid = static_cast<int>(fields.integer("pid", 0, INT32_MAX));
  fault.state = fields.text("state");
  fault.step = fields.text("step");
  fault.cause = fields.text("cause");
  fault.type = fields.text("exception");
  fault.code = fields.text("code");
  fault.task = fields.text("task");
  fault.callable = fields.text("callable");
  fault.note = fields.text("note");
  fault.stack = fields.texts("stack");
  fault.events = fields.texts("events");
  fault.log = fields.texts("log");
  return fault;
}

json to_json(const WorkerOptions& options) {
  json chips = json::array();
  for (const auto& chip : options.chips)
    chips.push_back(to_json(chip));
  json subs = json::array();
  for (const auto& sub : options.subs)
    subs.push_back(to_json(sub));
  json next_level = json::array();
  for (const auto& next : options.next_level)
    next_level.push_back(to_json(next));
  return {{"name", text_to_json(options.name)},
          {"chips", std::move(chips)},
          {"subs", std::move(subs)},
          {"next_level", std::move(next_level)},
          {"program", enum_to_json(options.program, kPrograms)},
          {"setup", setup_to_json(options.setup)},
          {"start_time_limit", options.start_time_limit.count()},
          {"close_time_limit", options.close_time_limit.count()},
          {"cancel_grace", options.cancel_grace.count()},
          {"replace_dead_workers", options.replace_dead_workers},
          {"window", options.window},
          {"heap", options.heap},
          {"max_open_runs", options.max_open_runs},
          {"depth", options.depth},
          {"communication", text_to_json(options.communication)},
          {"log_level", enum_to_json(options.log_level, kLevels)},
          {"worker_program", text_to_json(options.worker_program)}};
}

WorkerOptions options_from(const json& value) { return options_from(value, kMaxLevels); }

std::string_view name_of(LogLevel level) noexcept {
  const auto index = static_cast<std::size_t>(level);
  return index < kLevels.size() ? kLevels[index] : std::string_view("?");
}

}  // namespace strata::node
