// Exported graphs: no edge that has no reason, a path for each order that was needed, and why()
// telling the same story.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "checks.hpp"

namespace strata::property {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class GraphChecker {
 public:
  GraphChecker(const Program& program, const Model& model, const Trace& trace,
               const Outcome& outcome, const TaskNames& names, std::vector<std::string>& problems)
      : program_(program),
        model_(model),
        trace_(trace),
        outcome_(outcome),
        names_(names),
        problems_(problems),
        reach_(at(model.size()), Bits(at(model.size()))) {}

  void run() {
    for (std::size_t r = 0; r < trace_.runs.size(); ++r)
      map_nodes(r);
    for (std::size_t r = 0; r < trace_.runs.size(); ++r)
      check_edges(r);
    check_paths();
    for (std::size_t r = 0; r < trace_.runs.size(); ++r)
      check_text(r);
  }

 private:
  void map_nodes(std::size_t r) {
    const Graph& graph = trace_.runs[r].graph;
    std::vector<int> expected;
    for (int n = 0; n < model_.size(); ++n) {
      const Node& node = model_.node(n);
      // The host's turns at tensors are nodes too.
      if (node.run == static_cast<int>(r)) expected.push_back(n);
    }
    if (graph.nodes.size() != expected.size()) {
      problems_.push_back("the graph of run " + std::to_string(r) + " has " +
                          std::to_string(graph.nodes.size()) + " nodes for " +
                          std::to_string(expected.size()) + " tasks");
      return;
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const GraphNode& node = graph.nodes[i];
      const int n = expected[i];
      ids_[node.task.value] = n;
      if (model_.node(n).host()) continue;
      // Which replay a dropped task belongs to is only guessed.
      const int known = model_.cancelled_runs()[r] ? -1 : names_.find(node.task);
      const bool same_name =
          node.name == task_name(model_.node(n).recording, model_.node(n).step->id);
      if (!same_name || (known >= 0 && known != n)) {
        problems_.push_back("node " + std::to_string(i) + " of the graph is " + node.name +
                            " and not " + model_.name(n));
      }
      check_node(node, n, r);
    }
  }

  void check_node(const GraphNode& node, int n, std::size_t r) {
    const bool cancelled = model_.cancelled_runs()[r];
    const Status status = outcome_.status[at(n)];
    const bool right = (node.state == TaskState::done && status == Status::ran) ||
                       (node.state == TaskState::failed && status == Status::failed) ||
                       (node.state == TaskState::skipped && status == Status::skipped);
    if (!right && !cancelled) {
      problems_.push_back("the graph calls " + model_.name(n) + " " +
                          std::string(name_of(node.state)));
    }
    const auto started = model_.node(n).step->works[0].has_body ? node.started : node.ready;
    if (node.state == TaskState::done &&
        !(node.submitted <= node.ready && node.ready <= started && started <= node.ended)) {
      problems_.push_back("the graph has times of " + model_.name(n) + " in a wrong order");
    }
  }

  int find(TaskId id) const {
    const auto found = ids_.find(id.value);
    return found == ids_.end() ? -1 : found->second;
  }

  void check_edges(std::size_t r) {
    std::map<int, std::vector<GraphEdge>> by_target;
    for (const GraphEdge& edge : trace_.runs[r].graph.edges) {
      const int from = find(edge.from), to = find(edge.to);
      if (from < 0 || to < 0) {
        problems_.push_back("the graph has an edge from or to a task that it does not have");
        continue;
      }
      by_target[to].push_back(edge);
      reach_[at(to)].set(from);
      if (model_.node(to).run != static_cast<int>(r)) {
        problems_.push_back("the graph of run " + std::to_string(r) + " has an edge to " +
                            model_.name(to));
      }
      if (!edge.assumed && !has_reason(edge, from, to)) {
        problems_.push_back("the graph has an edge without reason: " + text(edge, from, to));
      }
    }
    for (int n = 0; n < model_.size(); ++n) {
      const TaskId id = trace_.nodes[at(n)].id;
      if (model_.node(n).submitted() && model_.node(n).run == static_cast<int>(r) && id) {
        check_why(n, by_target[n]);
      }
    }
  }

  bool has_reason(const GraphEdge& edge, int from, int to) const {
    const Node& node = model_.node(to);
    if (from >= to) return false;
    if (edge.hazard == Hazard::explicit_after) return node.after.has(from);
    return std::any_of(node.uses.begin(), node.uses.end(), [&](const Use& use) {
      if (node.type == NodeType::task && edge.argument != use.argument) return false;
      switch (edge.hazard) {
        case Hazard::read_after_write:
          return use.reads && use.raw.has(from);
        case Hazard::write_after_write:
          return use.waw.has(from);
        case Hazard::write_after_read:
          return use.war.has(from);
        case Hazard::creator:
          return use.creator.has(from);
        case Hazard::explicit_after:
          break;
      }
      return false;
    });
  }

  std::string text(const GraphEdge& edge, int from, int to) const {
    return model_.name(from) + " -> " + model_.name(to) + ", " + std::string(name_of(edge.hazard)) +
           ", argument " + std::to_string(edge.argument);
  }

  static auto key(const GraphEdge& e) {
    return std::tuple(e.from, e.to, e.hazard, e.argument, e.assumed, e.waited, e.last);
  }

  void check_why(int n, std::vector<GraphEdge> edges) {
    std::vector<GraphEdge> why = trace_.nodes[at(n)].why;
    const auto less = [](const GraphEdge& a, const GraphEdge& b) { return key(a) < key(b); };
    std::sort(edges.begin(), edges.end(), less);
    std::sort(why.begin(), why.end(), less);
    const bool same =
        std::equal(edges.begin(), edges.end(), why.begin(), why.end(),
                   [](const GraphEdge& a, const GraphEdge& b) { return key(a) == key(b); });
    if (!same) problems_.push_back("why() of " + model_.name(n) + " is not what the graph says");
    const auto last =
        std::count_if(why.begin(), why.end(), [](const GraphEdge& edge) { return edge.last; });
    const bool waited =
        std::any_of(why.begin(), why.end(), [](const GraphEdge& edge) { return edge.waited; });
    if (last > 1) problems_.push_back("why() of " + model_.name(n) + " has two last edges");
    // Elsewhere all of them may have ended before the task was put behind them.
    if (program_.held && waited && last == 0 && outcome_.status[at(n)] == Status::ran &&
        !model_.cancelled_runs()[at(model_.node(n).run)]) {
      problems_.push_back("why() of " + model_.name(n) + " does not say what it waited for last");
    }
  }

  /// Where `a` had surely not ended when `b` was submitted, the graph must tell of the order.
  void check_paths() {
    for (int b = 0; b < model_.size(); ++b) {
      if (model_.node(b).host()) continue;
      Bits direct = reach_[at(b)];
      direct.for_each([&](int p) { reach_[at(b)] |= reach_[at(p)]; });
      model_.node(b).direct.for_each([&](int a) {
        if (model_.node(a).host() || reach_[at(b)].has(a)) return;
        const Interval first = interval_of(model_, trace_, a);
        const bool live =
            surely_held(a) || (first.ran() && first.end > trace_.nodes[at(b)].submit_end);
        if (live && trace_.nodes[at(b)].submit_end != 0) {
          problems_.push_back("the graph has no path from " + model_.name(a) + " to " +
                              model_.name(b));
        }
      });
    }
  }

  /// Nothing with a body ends while lanes are held, unless its run is cancelled.
  bool surely_held(int a) const {
    const Node& node = model_.node(a);
    return program_.held && node.step->works[0].has_body && !model_.cancelled_runs()[at(node.run)];
  }

  void check_text(std::size_t r) {
    const Graph& graph = trace_.runs[r].graph;
    if (!nlohmann::json::accept(graph.to_json())) problems_.emplace_back("to_json() is no JSON");
    const std::string dot = graph.to_dot();
    if (dot.find("digraph") == std::string::npos || dot.find('}') == std::string::npos) {
      problems_.emplace_back("to_dot() is no DOT");
    }
  }

  const Program& program_;
  const Model& model_;
  const Trace& trace_;
  const Outcome& outcome_;
  const TaskNames& names_;
  std::vector<std::string>& problems_;
  std::map<std::uint64_t, int> ids_;
  std::vector<Bits> reach_;  // by node: whom an edge comes from, then: whom a path comes from
};

}  // namespace

void check_graphs(const Program& program, const Model& model, const Trace& trace,
                  const Outcome& outcome, const TaskNames& names,
                  std::vector<std::string>& problems) {
  GraphChecker(program, model, trace, outcome, names, problems).run();
}

}  // namespace strata::property
