#include "model_inference.hpp"

#include <algorithm>

namespace strata::property {

Inference::Inference(std::vector<Node>& nodes, const std::vector<Instance>& instances,
                     const Program& program)
    : nodes_(nodes),
      instances_(instances),
      program_(program),
      bytes_(instances.size()),
      lane_last_(static_cast<std::size_t>(lane_count(program)), -1),
      none_(nodes.size()),
      waited_required_(nodes.size()),
      waited_permitted_(nodes.size()) {}

Inference::Byte& Inference::byte(int instance, std::int32_t at) {
  auto& bytes = bytes_[static_cast<std::size_t>(instance)];
  if (bytes.empty()) {
    bytes.resize(static_cast<std::size_t>(instances_[static_cast<std::size_t>(instance)].bytes),
                 Byte{-1, none_, none_, none_, none_, none_});
  }
  return bytes[static_cast<std::size_t>(at)];
}

void Inference::run() {
  for (const Node& node : nodes_) {
    if (node.host()) continue;
    for (const Work& work : node.step->works)
      all_run_ = all_run_ && work.fault == Fault::none;
  }
  for (const Step& step : program_.steps)
    all_run_ = all_run_ && step.op != Op::cancel;
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    Node& node = nodes_[static_cast<std::size_t>(i)];
    if (program_.sequential && i > 0 && nodes_[static_cast<std::size_t>(i - 1)].run != node.run) {
      for (int earlier = 0; earlier < i; ++earlier) {
        waited_required_.set(earlier);
        waited_permitted_.set(earlier);
      }
    }
    find_predecessors(i);
    find_sources(node);
    record(i);
  }
  leave_undefined_alone();
}

void Inference::find_predecessors(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  direct_required_ = node.after;
  direct_permitted_ = node.after;
  for (Use& use : node.uses) {
    use.raw = use.waw = use.war = use.creator = none_;
    if (node.manual) continue;
    if (use.tracking == Tracking::full) {
      follow_full(node, use, direct_required_);
    } else {
      follow_weak(node, use, direct_required_);
    }
    for (const Bits* hazard : {&use.raw, &use.waw, &use.war, &use.creator}) {
      direct_permitted_ |= *hazard;
    }
  }
  direct_required_.clear(index);
  direct_permitted_.clear(index);
  node.direct = direct_required_;
  Bits through_groups = none_;
  for (const int lane : node.lanes) {
    int& last = lane_last_[static_cast<std::size_t>(lane)];
    if (last >= 0) {
      direct_permitted_.set(last);
      const Node& before = nodes_[static_cast<std::size_t>(last)];
      // What came before a group came before each of its members.
      if (all_run_ && before.lanes.size() > 1) through_groups |= before.required;
      if (all_run_ && before.lanes.size() == 1) direct_required_.set(last);
    }
    last = index;
  }
  node.required = through_groups;
  close_over(index);
}

void Inference::close_over(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  node.required |= direct_required_;
  node.required |= waited_required_;
  direct_required_.for_each(
      [&](int p) { node.required |= nodes_[static_cast<std::size_t>(p)].required; });
  node.permitted = direct_permitted_;
  node.permitted |= waited_permitted_;
  direct_permitted_.for_each(
      [&](int p) { node.permitted |= nodes_[static_cast<std::size_t>(p)].permitted; });
  if (node.host()) {
    waited_required_ |= node.required;
    waited_permitted_ |= node.permitted;
    waited_required_.set(index);
    waited_permitted_.set(index);
  }
}

void Inference::follow_weak(Node& node, Use& use, Bits& direct) {
  const int creator = instances_[static_cast<std::size_t>(use.instance)].creator;
  if (creator < 0 || &nodes_[static_cast<std::size_t>(creator)] == &node) return;
  use.creator.set(creator);
  if (!use.bytes.empty()) direct.set(creator);
}

void Inference::follow_full(Node& node, Use& use, Bits& direct) {
  const int creator = instances_[static_cast<std::size_t>(use.instance)].creator;
  if (creator >= 0 && &nodes_[static_cast<std::size_t>(creator)] != &node) {
    use.creator.set(creator);
  }
  const bool waits_to_write = use.writes && !node.raw_only;
  for (const std::int32_t at : use.bytes) {
    const Byte& b = byte(use.instance, at);
    if (use.reads || waits_to_write) {
      if (b.writer >= 0) direct.set(b.writer);
      direct |= b.weak_writers;
    }
    if (use.reads) use.raw |= b.all_writers;
    if (waits_to_write) direct |= b.readers;
    if (use.writes) {
      use.waw |= b.all_writers;
      use.war |= b.all_readers;
    }
  }
  if (use.writes && node.raw_only) {
    // Only what a recording inferred within itself.
    Bits same_replay = none_;
    if (node.replay >= 0) {
      for (int n = node.replay; &nodes_[static_cast<std::size_t>(n)] != &node; ++n) {
        same_replay.set(n);
      }
    }
    use.waw &= same_replay;
    use.war &= same_replay;
  }
}

void Inference::find_sources(Node& node) {
  node.sources = none_;
  node.murky = none_;
  node.sources |= node.after;
  if (node.manual) return;
  for (const Use& use : node.uses) {
    const Instance& instance = instances_[static_cast<std::size_t>(use.instance)];
    const bool weak = use.tracking != Tracking::full;
    if (!use.reads) continue;
    for (const std::int32_t at : use.bytes) {
      const Byte& b = byte(use.instance, at);
      if (weak) {
        if (use.creator.empty()) continue;
        const bool still = b.writer == instance.creator && b.unrecorded.empty();
        (still ? node.sources : node.murky).set(instance.creator);
        continue;
      }
      Bits& sources = b.unrecorded.empty() ? node.sources : node.murky;
      if (b.writer >= 0) sources.set(b.writer);
      sources |= b.weak_writers;
      sources |= b.unrecorded;
    }
  }
}

void Inference::record(int index) {
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  for (const Use& use : node.uses) {
    for (const std::int32_t at : use.bytes) {
      Byte& b = byte(use.instance, at);
      if (node.manual || use.tracking == Tracking::no_dep) {
        if (use.writes) b.unrecorded.set(index);
        continue;
      }
      if (use.writes && use.tracking == Tracking::full) {
        b.writer = index;
        b.weak_writers.clear();
        b.readers.clear();
        if (b.unrecorded.within(node.required)) b.unrecorded.clear();
      } else if (use.writes) {
        b.weak_writers.set(index);
      }
      if (use.writes) b.all_writers.set(index);
      if (use.reads) {
        b.readers.set(index);
        b.all_readers.set(index);
      }
    }
  }
}

namespace {

bool meet(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  if (a.empty() || b.empty() || a.back() < b.front() || b.back() < a.front()) return false;
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i] == b[j]) return true;
    ++(a[i] < b[j] ? i : j);
  }
  return false;
}

bool loose(const Node& node, const Use& use) {
  return node.submitted() &&
         (node.manual || use.tracking != Tracking::full || (node.raw_only && use.writes));
}

bool conflict(const Use& x, const Use& y) {
  return x.instance == y.instance && x.touched && y.touched && (x.writes || y.writes) &&
         meet(x.bytes, y.bytes);
}

}  // namespace

void Inference::leave_undefined_alone() {
  const bool any_raw_only = std::any_of(program_.runs.begin(), program_.runs.end(),
                                        [](const RunPlan& run) { return run.raw_only; });
  std::vector<bool> has_loose(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    for (const Use& use : nodes_[i].uses) {
      if (loose(nodes_[i], use)) has_loose[i] = true;
    }
  }
  for (int b = 0; b < static_cast<int>(nodes_.size()); ++b) {
    Node& node = nodes_[static_cast<std::size_t>(b)];
    // Members of a group meet through memory as they like; here they do not.
    for (std::size_t i = 0; i < node.uses.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (node.uses[i].member != node.uses[j].member && conflict(node.uses[i], node.uses[j])) {
          node.uses[i].touched = false;
        }
      }
    }
    for (int a = 0; a < b; ++a) {
      // Full accesses are always ordered, unless a write that waited for nobody came between.
      const bool look = any_raw_only || has_loose[static_cast<std::size_t>(a)] ||
                        has_loose[static_cast<std::size_t>(b)];
      if (look && !node.required.has(a)) settle(a, b);
    }
  }
}

/// Of two unordered nodes, no two arguments that conflict stay touched.
void Inference::settle(int a, int b) {
  Node& first = nodes_[static_cast<std::size_t>(a)];
  Node& second = nodes_[static_cast<std::size_t>(b)];
  for (Use& x : first.uses) {
    for (Use& y : second.uses) {
      if (!conflict(x, y)) continue;
      const bool second_can = second.submitted() && !y.allocates;
      if (second_can && (loose(second, y) || !loose(first, x))) {
        y.touched = false;
      } else if (first.submitted() && (!x.allocates || !second.submitted())) {
        x.touched = false;  // A storage that its creator leaves alone has no defined bytes.
      } else {
        y.touched = false;
      }
    }
  }
}

}  // namespace strata::property
