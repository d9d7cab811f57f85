#include "model.hpp"

#include <algorithm>
#include <set>

#include "model_inference.hpp"

namespace strata::property {

/// Turns steps into nodes: replays become their tasks, storages become instances.
class Expansion {
 public:
  Expansion(Model& model, const Program& program) : model_(model), program_(program) {
    for (std::size_t b = 0; b < program.buffers.size(); ++b) {
      const int storage = static_cast<int>(b);
      model_.instance_of_[storage] = storage;
      model_.instances_.push_back(
          {.bytes = program.buffers[b], .creator = -1, .filled = true, .storage = storage});
    }
    model_.cancelled_.resize(program.runs.size());
    scopes_.resize(program.runs.size());
  }

  void expand(const Step& step) {
    switch (step.op) {
      case Op::task:
      case Op::group:
        add_submission(step, -1, -1, 0);
        return;
      case Op::open_scope:
      case Op::close_scope:
      case Op::allocate:
        scope_or_allocate(step, scopes_[run_of(step)]);
        return;
      case Op::keep:
        kept_.insert(step.view.storage);
        return;
      case Op::wait_tensor:
        add_host(step, NodeType::wait_tensor);
        return;
      case Op::wait_task:
        add_host(step, NodeType::wait_task);
        return;
      case Op::read:
        add_host(step, NodeType::read);
        return;
      case Op::write:
        add_host(step, NodeType::write);
        return;
      case Op::overwrite:
        add_host(step, NodeType::overwrite);
        return;
      case Op::replay:
        expand_replay(step);
        return;
      case Op::cancel:
        model_.cancelled_[static_cast<std::size_t>(step.other)] = true;
        return;
      case Op::misuse:
        return;
    }
  }

  /// `after` of all nodes, once their number is known.
  void link_after() {
    const auto count = model_.nodes_.size();
    std::map<int, std::map<int, int>> local;  // replay -> step of the recording -> node
    for (std::size_t i = 0; i < count; ++i) {
      Node& node = model_.nodes_[i];
      node.after = Bits(count);
      if (node.type == NodeType::wait_task) {
        node.after.set(model_.first_node(node.step->other));
        continue;
      }
      for (const int id : node.step->after) {
        node.after.set(node.replay >= 0 ? local[node.replay].at(id) : model_.first_node(id));
      }
      if (node.replay >= 0) local[node.replay][node.step->id] = static_cast<int>(i);
    }
  }

 private:
  struct OpenScope {
    bool manual = false;
    std::vector<int> instances;
  };
  struct Replay {
    const Step* step = nullptr;
    std::map<int, int> locals;  // storage of the recording -> instance
    std::vector<OpenScope> scopes;
  };

  static std::size_t run_of(const Step& step) { return static_cast<std::size_t>(step.run); }

  void expand_replay(const Step& step) {
    const int first = model_.size();
    replay_ = {.step = &step, .locals = {}, .scopes = {}};
    const RecordingPlan& recording = program_.recordings[static_cast<std::size_t>(step.other)];
    for (const Step& inner : recording.steps) {
      if (inner.op == Op::task || inner.op == Op::group) {
        add_submission(inner, step.other, first, step.salt);
      } else {
        scope_or_allocate(inner, replay_.scopes);
      }
    }
    while (!replay_.scopes.empty())
      close(replay_.scopes);
    model_.first_[step.id] = first;
    replay_ = {};
  }

  void add_submission(const Step& step, int recording, int replay, std::uint64_t salt) {
    Node node;
    node.type = step.op == Op::group ? NodeType::group : NodeType::task;
    node.step = &step;
    node.run = replay_.step != nullptr ? replay_.step->run : step.run;
    node.recording = recording;
    node.replay = replay;
    node.salt = salt;
    node.manual = in_manual(static_cast<std::size_t>(node.run));
    node.raw_only = program_.runs[static_cast<std::size_t>(node.run)].raw_only;
    if (step.op == Op::group) {
      for (const Work& member : step.works)
        node.lanes.push_back(member.lane);
    } else if (step.exact && !step.unordered && step.works[0].has_body) {
      node.lanes.push_back(step.target);
    }
    const int index = model_.size();
    for (std::size_t m = 0; m < step.works.size(); ++m) {
      const Work& work = step.works[m];
      for (std::size_t a = 0; a < work.args.size(); ++a) {
        const Arg& arg = work.args[a];
        if (arg.allocates) allocate(arg.view, index, arg.filled || !work.has_body, node.run);
        Use use = resolve(arg.view);
        use.reads = arg.access != Access::out;
        use.writes = arg.access != Access::in;
        use.access = arg.access;
        use.allocates = arg.allocates;
        use.tracking = arg.effective();
        use.member = static_cast<int>(m);
        use.argument = static_cast<int>(a);
        node.uses.push_back(std::move(use));
      }
    }
    model_.nodes_.push_back(std::move(node));
    if (replay < 0) model_.first_[step.id] = index;
  }

  void add_host(const Step& step, NodeType type) {
    Node node;
    node.type = type;
    node.step = &step;
    node.run = step.run;
    if (type != NodeType::wait_task) {
      Use use = resolve(step.view);
      use.reads = type == NodeType::wait_tensor || type == NodeType::read;
      use.writes = !use.reads;
      use.touched = type != NodeType::wait_tensor;
      node.uses.push_back(std::move(use));
    }
    model_.first_[step.id] = model_.size();
    model_.nodes_.push_back(std::move(node));
  }

  void scope_or_allocate(const Step& step, std::vector<OpenScope>& scopes) {
    if (step.op == Op::open_scope) scopes.push_back({.manual = step.manual, .instances = {}});
    if (step.op == Op::close_scope) close(scopes);
    if (step.op == Op::allocate) {
      allocate(step.view, -1, true, replay_.step != nullptr ? replay_.step->run : step.run);
    }
  }

  void close(std::vector<OpenScope>& scopes) {
    for (const int instance : scopes.back().instances) {
      if (!kept_.contains(model_.instances_[static_cast<std::size_t>(instance)].storage)) {
        live_.erase(instance);
      }
    }
    scopes.pop_back();
  }

  void allocate(const View& view, int creator, bool filled, int run) {
    const int instance = static_cast<int>(model_.instances_.size());
    model_.instances_.push_back(
        {.bytes = bytes_of(view), .creator = creator, .filled = filled, .storage = view.storage});
    (replay_.step != nullptr ? replay_.locals : model_.instance_of_)[view.storage] = instance;
    auto& outer = scopes_[static_cast<std::size_t>(run)];
    auto& scopes = replay_.scopes.empty() ? outer : replay_.scopes;
    if (!scopes.empty()) scopes.back().instances.push_back(instance);
    // What is live can lie so that each hole beside it is just too small.
    const std::int64_t size = rounded(bytes_of(view));
    const auto holes = static_cast<std::int64_t>(live_.size()) + 1;
    std::int64_t used = 0;
    for (const int other : live_) {
      used += rounded(model_.instances_[static_cast<std::size_t>(other)].bytes);
    }
    model_.tight_heap_ = std::max(model_.tight_heap_, used + holes * size);
    model_.wide_heap_ += 2 * size;
    live_.insert(instance);
  }
  static std::int64_t rounded(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

  Use resolve(const View& view) {
    Use use;
    use.view = view;
    if (view.storage >= kFirstLocal) {
      use.instance = replay_.locals.at(view.storage);
    } else if (view.storage >= kFirstParameter) {
      const View& bound =
          replay_.step->bindings[static_cast<std::size_t>(view.storage - kFirstParameter)];
      use.instance = model_.instance_of_.at(bound.storage);
      use.view.offset += bound.offset;
    } else {
      use.instance = model_.instance_of_.at(view.storage);
    }
    for_each_byte(use.view, [&](std::int64_t at) {
      use.bytes.push_back(static_cast<std::int32_t>(use.view.offset + at));
    });
    std::sort(use.bytes.begin(), use.bytes.end());
    use.bytes.erase(std::unique(use.bytes.begin(), use.bytes.end()), use.bytes.end());
    return use;
  }

  bool in_manual(std::size_t run) const {
    const auto manual = [](const OpenScope& scope) { return scope.manual; };
    return std::any_of(scopes_[run].begin(), scopes_[run].end(), manual) ||
           std::any_of(replay_.scopes.begin(), replay_.scopes.end(), manual);
  }

  Model& model_;
  const Program& program_;
  Replay replay_;
  std::vector<std::vector<OpenScope>> scopes_;
  std::set<int> live_, kept_;
};

Model::Model(const Program& program) : program_(program) {
  Expansion expansion(*this, program);
  for (const Step& step : program.steps)
    expansion.expand(step);
  expansion.link_after();
  Inference(nodes_, instances_, program).run();
}

int Model::first_node(int step) const {
  const auto found = first_.find(step);
  return found == first_.end() ? -1 : found->second;
}

int Model::instance_of(int storage) const { return instance_of_.at(storage); }

bool Model::can_meet() const {
  if (program_.meet_a < 0) return true;
  const int a = first_node(program_.meet_a), b = first_node(program_.meet_b);
  return independent(std::min(a, b), std::max(a, b));
}

std::string Model::name(int index) const {
  const Node& n = node(index);
  const std::string at = " (node " + std::to_string(index) + ")";
  if (n.host()) return "host step " + std::to_string(n.step->id) + at;
  return task_name(n.recording, n.step->id) + at;
}

}  // namespace strata::property
