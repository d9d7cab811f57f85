// Programs in which two independent tasks wait for each other.
#include "generator.hpp"

namespace strata::property {

std::optional<Program> with_meeting(const Program& program, const Model& model,
                                    const std::vector<bool>& eligible, test::Random& random) {
  std::vector<std::pair<int, int>> near, far;
  for (int b = 0; b < model.size(); ++b) {
    for (int a = 0; a < b; ++a) {
      const auto can = [&](int n) {
        const Node& node = model.node(n);
        return eligible[static_cast<std::size_t>(n)] && node.type == NodeType::task &&
               node.replay < 0 && node.step->works[0].has_body;
      };
      if (!can(a) || !can(b) || !model.independent(a, b)) continue;
      bool share = false;
      for (const Use& x : model.node(a).uses) {
        for (const Use& y : model.node(b).uses)
          share = share || x.instance == y.instance;
      }
      (share ? near : far).emplace_back(a, b);
    }
  }
  if (near.empty() && far.empty()) return std::nullopt;
  auto& pairs = !near.empty() && (far.empty() || random.chance(90)) ? near : far;
  const auto [a, b] = random.pick(pairs);

  Program changed = program;
  changed.meet_a = model.node(a).step->id;
  changed.meet_b = model.node(b).step->id;
  changed.held = false;
  changed.tight_heap = false;
  // The two get lanes of their own: whatever else runs can't stand in their way.
  const int kind = static_cast<int>(changed.kinds.size());
  changed.kinds.push_back({.threads = 2});
  for (KindPlan& plan : changed.kinds)
    plan.depth = 1;
  for (Step& step : changed.steps) {
    if (step.id != changed.meet_a && step.id != changed.meet_b) continue;
    step.exact = false;
    step.unordered = false;
    step.target = kind;
  }
  return changed;
}

}  // namespace strata::property
