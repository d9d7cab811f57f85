// The graph of a run as DOT and JSON.

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>

#include "strata/run.hpp"

namespace strata {

namespace {

std::string dot_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') {
      quoted += "\\n";
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string_view dot_color(TaskState state) {
  switch (state) {
    case TaskState::failed:
      return "red";
    case TaskState::skipped:
      return "orange";
    case TaskState::done:
      return "black";
    default:
      return "gray";
  }
}

std::string_view dot_style(const GraphEdge& edge) {
  if (edge.assumed) return "dotted";
  return edge.hazard == Hazard::read_after_write || edge.hazard == Hazard::explicit_after
             ? "solid"
             : "dashed";
}

}  // namespace

std::string Graph::to_dot() const {
  std::unordered_map<std::uint64_t, std::size_t> index;
  std::string text = "digraph " + dot_quoted(run) + " {\n  node [shape=box];\n";
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const GraphNode& node = nodes[i];
    index.emplace(node.task.value, i);
    const std::string label = node.name.empty() ? "task " + std::to_string(i) : node.name;
    text += "  t" + std::to_string(i) + " [label=" + dot_quoted(label) +
            ", color=" + std::string(dot_color(node.state)) + "];\n";
  }
  std::unordered_map<std::uint64_t, bool> outside;
  const auto name_of_task = [&](TaskId task) {
    const auto known = index.find(task.value);
    if (known != index.end()) return "t" + std::to_string(known->second);
    std::string name = "x" + std::to_string(task.value);
    if (outside.emplace(task.value, true).second) {
      text += "  " + name + " [label=\"task of another run\", style=dashed];\n";
    }
    return name;
  };
  for (const GraphEdge& edge : edges) {
    const std::string from = name_of_task(edge.from);
    const std::string to = name_of_task(edge.to);
    std::string label(strata::name_of(edge.hazard));
    if (edge.argument >= 0) label += " (argument " + std::to_string(edge.argument) + ")";
    text += "  " + from + " -> " + to + " [style=" + std::string(dot_style(edge)) +
            ", tooltip=" + dot_quoted(label) + (edge.last ? ", penwidth=2" : "") + "];\n";
  }
  return text + "}\n";
}

std::string Graph::to_json() const {
  nlohmann::json graph;
  graph["run"] = run;
  auto& json_nodes = graph["nodes"] = nlohmann::json::array();
  for (const GraphNode& node : nodes) {
    json_nodes.push_back({{"task", node.task.value},
                          {"name", node.name},
                          {"state", strata::name_of(node.state)},
                          {"lane", node.lane.value},
                          {"submitted_ns", node.submitted.count()},
                          {"ready_ns", node.ready.count()},
                          {"started_ns", node.started.count()},
                          {"ended_ns", node.ended.count()}});
  }
  auto& json_edges = graph["edges"] = nlohmann::json::array();
  for (const GraphEdge& edge : edges) {
    json_edges.push_back({{"from", edge.from.value},
                          {"to", edge.to.value},
                          {"hazard", strata::name_of(edge.hazard)},
                          {"argument", edge.argument},
                          {"assumed", edge.assumed},
                          {"waited", edge.waited},
                          {"last", edge.last}});
  }
  // A name may be any bytes.
  return graph.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace strata
