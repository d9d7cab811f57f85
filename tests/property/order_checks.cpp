// Who ran when and where: order, lanes, priorities, cancellation.
#include <algorithm>
#include <map>

#include "checks.hpp"

namespace strata::property {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class OrderChecker {
 public:
  OrderChecker(const Program& program, const Model& model, const Trace& trace,
               std::vector<std::string>& problems)
      : program_(program), model_(model), trace_(trace), problems_(problems) {
    for (int n = 0; n < model.size(); ++n)
      intervals_.push_back(interval_of(model, trace, n));
  }

  void run() {
    check_required_order();
    check_lanes();
    check_cancelled();
    if (program_.held) check_priorities();
  }

 private:
  void check_required_order() {
    for (int b = 0; b < model_.size(); ++b) {
      const Interval& second = intervals_[at(b)];
      if (!second.ran()) continue;
      model_.node(b).required.for_each([&](int a) {
        const Interval& first = intervals_[at(a)];
        if (!first.ran() || first.end < second.start) return;
        const bool overlapped = first.start < second.end;
        problems_.push_back(model_.name(b) + (overlapped ? " overlapped with " : " ran before ") +
                            model_.name(a) + ", which must come first");
      });
    }
  }

  void check_lanes() {
    struct Stay {
      std::uint64_t start, end;
      int node;
    };
    std::map<int, std::vector<Stay>> by_lane;
    for (int n = 0; n < model_.size(); ++n) {
      const Node& node = model_.node(n);
      const auto& members = trace_.nodes[at(n)].members;
      for (std::size_t m = 0; m < members.size(); ++m) {
        if (members[m].end == 0) continue;
        by_lane[members[m].lane].push_back({members[m].start, members[m].end, n});
        check_place(node, n, members[m], static_cast<int>(m));
      }
    }
    for (const auto& [lane, stays] : by_lane) {
      for (std::size_t i = 0; i < stays.size(); ++i) {
        for (std::size_t j = i + 1; j < stays.size(); ++j) {
          if (keeps_place(stays[i].node, lane) && keeps_place(stays[j].node, lane) &&
              stays[j].start < stays[i].end) {
            problems_.push_back("lane " + std::to_string(lane) + " did not run " +
                                model_.name(stays[i].node) + " before " +
                                model_.name(stays[j].node));
          }
        }
      }
    }
    for (auto& [lane, stays] : by_lane) {
      std::sort(stays.begin(), stays.end(),
                [](const Stay& a, const Stay& b) { return a.start < b.start; });
      for (std::size_t i = 1; i < stays.size(); ++i) {
        if (stays[i].start < stays[i - 1].end) {
          problems_.push_back("lane " + std::to_string(lane) + " ran " +
                              model_.name(stays[i - 1].node) + " and " +
                              model_.name(stays[i].node) + " at once");
        }
      }
    }
  }

  void check_place(const Node& node, int n, const MemberTrace& member, int m) {
    const int lane = member.lane;
    int wanted = -1;
    if (node.type == NodeType::group) {
      wanted = node.step->works[at(m)].lane;
    } else if (node.step->exact) {
      wanted = node.step->target;
    }
    const bool right = wanted >= 0 ? lane == wanted
                                   : lane < lane_count(program_) &&
                                         kind_of_lane(program_, lane) == node.step->target;
    if (!right) {
      problems_.push_back(model_.name(n) + " ran on lane " + std::to_string(lane) +
                          ", which it did not ask for");
    }
  }

  bool keeps_place(int n, int lane) const {
    const std::vector<int>& lanes = model_.node(n).lanes;
    return std::find(lanes.begin(), lanes.end(), lane) != lanes.end();
  }

  void check_cancelled() {
    int at_once = 0;
    for (const KindPlan& kind : program_.kinds)
      at_once += kind.lanes() * std::max(1, kind.depth);
    for (std::size_t r = 0; r < trace_.runs.size(); ++r) {
      const std::uint64_t cancelled_at = trace_.runs[r].cancelled_at;
      if (cancelled_at == 0) continue;
      int late = 0;
      for (int n = 0; n < model_.size(); ++n) {
        if (model_.node(n).run != static_cast<int>(r)) continue;
        for (const MemberTrace& member : trace_.nodes[at(n)].members) {
          if (member.start > cancelled_at) ++late;
        }
      }
      // A lane may have been about to start one; when lanes were held none can have been.
      const int allowed = program_.held ? 0 : at_once;
      if (late > allowed) {
        problems_.push_back("run " + std::to_string(r) + " started " + std::to_string(late) +
                            " bodies after it was cancelled");
      }
    }
  }

  /// All tasks that wait for nobody are ready when held lanes are let go; a kind of one lane then
  /// starts them by priority and, within one, by submission.
  void check_priorities() {
    for (std::size_t k = 0; k < program_.kinds.size(); ++k) {
      if (program_.kinds[k].lanes() != 1) continue;
      std::vector<int> roots;
      for (int n = 0; n < model_.size(); ++n) {
        const Node& node = model_.node(n);
        if (node.type == NodeType::task && !node.step->exact &&
            node.step->target == static_cast<int>(k) && node.permitted.empty() &&
            intervals_[at(n)].ran()) {
          roots.push_back(n);
        }
      }
      std::stable_sort(roots.begin(), roots.end(), [&](int a, int b) {
        return model_.node(a).step->priority > model_.node(b).step->priority;
      });
      for (std::size_t i = 1; i < roots.size(); ++i) {
        if (intervals_[at(roots[i - 1])].start < intervals_[at(roots[i])].start) continue;
        problems_.push_back(model_.name(roots[i]) + " started before " + model_.name(roots[i - 1]) +
                            ", which was ready and has precedence");
      }
    }
  }

  const Program& program_;
  const Model& model_;
  const Trace& trace_;
  std::vector<std::string>& problems_;
  std::vector<Interval> intervals_;
};

}  // namespace

void check_order(const Program& program, const Model& model, const Trace& trace,
                 std::vector<std::string>& problems) {
  OrderChecker(program, model, trace, problems).run();
}

}  // namespace strata::property
