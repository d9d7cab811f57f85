#include "node/chip_options.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "chip/chip_runtime.hpp"
#include "node/json_fields.hpp"
#include "strata/chip_error.hpp"
#include "strata/platform.hpp"

namespace strata::node {
namespace {

using nlohmann::json;

template <class T>
void take(std::optional<T>& to, const std::optional<T>& from) {
  if (!to) to = from;
}

template <class T>
json number_or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

template <class T>
std::optional<T> number_from(const JsonFields& fields, const char* name) {
  if (fields.at(name).is_null()) return std::nullopt;
  return static_cast<T>(fields.unsigned_integer(name, std::numeric_limits<T>::max()));
}

constexpr const char* kDevice = "device";
constexpr const char* kHostGraph = "host_graph";

}  // namespace

ChipRunOptions merged(const ChipRunOptions& first, const ChipRunOptions& second) {
  ChipRunOptions all = first;
  take(all.mode, second.mode);
  take(all.window, second.window);
  take(all.heap, second.heap);
  take(all.threads, second.threads);
  take(all.time_limit, second.time_limit);
  take(all.explore_seed, second.explore_seed);
  all.check = first.check || second.check;
  all.keep_graph = first.keep_graph || second.keep_graph;
  all.keep_stats = first.keep_stats || second.keep_stats;
  if (all.dump_to.empty()) all.dump_to = second.dump_to;
  all.dump_all = first.dump_all || second.dump_all;
  return all;
}

void check_run_options(const ChipRunOptions& options, const std::string& of) {
  try {
    chip::validate(options, Platform{});
  } catch (const ChipError& error) {
    std::string_view why = error.what();
    why.remove_prefix(std::min(why.size(), why.find("] ") + 2));  // The code comes first again.
    throw ChipError(error.code(), of + ": " + std::string(why));
  }
}

json to_json(const ChipRunOptions& options) {
  json mode;
  if (options.mode) mode = *options.mode == OrchestrationMode::device ? kDevice : kHostGraph;
  json limit;
  if (options.time_limit) limit = options.time_limit->count();
  return {{"mode", std::move(mode)},
          {"window", number_or_null(options.window)},
          {"heap", number_or_null(options.heap)},
          {"threads", number_or_null(options.threads)},
          {"time_limit", std::move(limit)},
          {"check", options.check},
          {"explore_seed", number_or_null(options.explore_seed)},
          {"keep_graph", options.keep_graph},
          {"keep_stats", options.keep_stats},
          {"dump_to", options.dump_to.string()},
          {"dump_all", options.dump_all}};
}

ChipRunOptions run_options_from(const json& value) {
  const JsonFields fields(value, "options of chip runs");
  ChipRunOptions options;
  if (!fields.at("mode").is_null()) {
    const std::string mode = fields.text("mode");
    if (mode != kDevice && mode != kHostGraph) fields.refuse("mode", "device or host_graph");
    options.mode = mode == kDevice ? OrchestrationMode::device : OrchestrationMode::host_graph;
  }
  options.window = number_from<std::size_t>(fields, "window");
  options.heap = number_from<std::size_t>(fields, "heap");
  options.threads = number_from<unsigned>(fields, "threads");
  if (!fields.at("time_limit").is_null()) {
    options.time_limit = std::chrono::nanoseconds(
        fields.integer("time_limit", 0, std::numeric_limits<std::int64_t>::max()));
  }
  options.check = fields.boolean("check");
  options.explore_seed = number_from<std::uint64_t>(fields, "explore_seed");
  options.keep_graph = fields.boolean("keep_graph");
  options.keep_stats = fields.boolean("keep_stats");
  options.dump_to = fields.text("dump_to");
  options.dump_all = fields.boolean("dump_all");
  return options;
}

}  // namespace strata::node
