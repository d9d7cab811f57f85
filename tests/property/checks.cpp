#include "checks.hpp"

#include <algorithm>
#include <cstdio>

namespace strata::property {

TaskNames::TaskNames(const Model& model, const Trace& trace) {
  for (int n = 0; n < model.size(); ++n) {
    const TaskId id = trace.nodes[static_cast<std::size_t>(n)].id;
    if (id) by_id_[id.value] = n;
  }
  learn_skipped(model, trace);
}

void TaskNames::learn_skipped(const Model& model, const Trace& trace) {
  struct Report {
    std::string name;
    int run;
  };
  std::map<std::uint64_t, Report> unknown;  // in the order of submission
  for (std::size_t r = 0; r < trace.runs.size(); ++r) {
    const RunTrace& run = trace.runs[r];
    for (const auto* list : {&run.failed, &run.skipped}) {
      for (const TaskFailure& failure : *list) {
        if (by_id_.contains(failure.task.value)) continue;
        unknown[failure.task.value] = {failure.name, static_cast<int>(r)};
      }
    }
  }
  std::vector<bool> taken(static_cast<std::size_t>(model.size()));
  for (const auto& [id, report] : unknown) {
    // The first that has the name, no id yet, and comes after all that are known to be earlier.
    auto next = by_id_.upper_bound(id);
    int n = next == by_id_.begin() ? 0 : std::prev(next)->second + 1;
    for (; n < model.size(); ++n) {
      const Node& node = model.node(n);
      const auto i = static_cast<std::size_t>(n);
      if (node.replay >= 0 && node.run == report.run && !trace.nodes[i].id && !taken[i] &&
          task_name(node.recording, node.step->id) == report.name) {
        taken[i] = true;
        by_id_[id] = n;
        break;
      }
    }
  }
}

int TaskNames::find(TaskId id) const {
  const auto found = by_id_.find(id.value);
  return found == by_id_.end() ? -1 : found->second;
}

Interval interval_of(const Model& model, const Trace& trace, int n) {
  const NodeTrace& node = trace.nodes[static_cast<std::size_t>(n)];
  if (model.node(n).host()) return {node.submit_end, node.submit_end};
  Interval interval;
  for (const MemberTrace& member : node.members) {
    if (member.end == 0) return {};
    interval.start = interval.start == 0 ? member.start : std::min(interval.start, member.start);
    interval.end = std::max(interval.end, member.end);
  }
  return interval;
}

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::string hex(std::uint8_t byte) {
  char text[8];
  std::snprintf(text, sizeof text, "%02x", byte);
  return text;
}

class Checker {
 public:
  Checker(const Program& program, const Model& model, const Trace& trace)
      : program_(program), model_(model), trace_(trace), names_(model, trace) {}

  std::vector<std::string> run() {
    problems_ = trace_.errors;
    observe();
    const Outcome outcome = serial_outcome(model_, observed_);
    problems_.insert(problems_.end(), outcome.mistakes.begin(), outcome.mistakes.end());
    check_reports(outcome);
    check_bytes(outcome);
    check_host(outcome);
    check_ids();
    check_order(program_, model_, trace_, problems_);
    if (program_.keep_graph) {
      check_graphs(program_, model_, trace_, outcome, names_, problems_);
    }
    return std::move(problems_);
  }

 private:
  void problem(std::string text) { problems_.push_back(std::move(text)); }

  /// The status of every node, as bodies and reports tell it; they must not contradict each other.
  void observe() {
    observed_.assign(at(model_.size()), Status::ran);
    reported_.assign(at(model_.size()), Status::ran);
    for (const RunTrace& run : trace_.runs) {
      note(run.failed, Status::failed);
      note(run.skipped, Status::skipped);
    }
    for (int n = 0; n < model_.size(); ++n) {
      const Node& node = model_.node(n);
      if (node.host()) continue;
      observed_[at(n)] = reported_[at(n)];
      if (!node.step->works[0].has_body) continue;
      const auto& members = trace_.nodes[at(n)].members;
      const auto ran = std::count_if(members.begin(), members.end(),
                                     [](const MemberTrace& m) { return m.runs > 0; });
      if (ran != 0 && ran != static_cast<std::ptrdiff_t>(members.size())) {
        problem(model_.name(n) + ": only some members of the group ran");
      }
      const bool cancelled = model_.cancelled_runs()[at(node.run)];
      if (cancelled) {
        observed_[at(n)] = ran == 0 ? Status::skipped : faulty(node) ? Status::failed : Status::ran;
      } else if ((ran == 0) != (reported_[at(n)] == Status::skipped)) {
        problem(model_.name(n) + (ran == 0 ? " did not run but was not reported as skipped"
                                           : " ran but was reported as skipped"));
        if (ran == 0) observed_[at(n)] = Status::skipped;
      }
    }
  }
  static bool faulty(const Node& node) {
    return std::any_of(node.step->works.begin(), node.step->works.end(),
                       [](const Work& work) { return work.fault != Fault::none; });
  }

  void note(const std::vector<TaskFailure>& failures, Status status) {
    for (const TaskFailure& failure : failures) {
      const int n = names_.find(failure.task);
      if (n < 0) {
        problem("task " + std::to_string(failure.task.value) + " \"" + failure.name +
                "\" was reported but never submitted");
        continue;
      }
      if (reported_[at(n)] != Status::ran) problem(model_.name(n) + " was reported twice");
      reported_[at(n)] = status;
    }
  }

  void check_reports(const Outcome& outcome) {
    for (std::size_t r = 0; r < trace_.runs.size(); ++r) {
      const RunTrace& run = trace_.runs[r];
      if (model_.cancelled_runs()[r]) continue;
      if (run.result_cancelled) problem("run " + std::to_string(r) + " was never cancelled");
      if (run.stats.failed != run.failed.size() || run.stats.skipped != run.skipped.size()) {
        problem("run " + std::to_string(r) + ": the counts of failed and skipped are not those " +
                "of the lists");
      }
      for (const TaskFailure& failure : run.failed) {
        const int n = names_.find(failure.task);
        if (n < 0) continue;
        if (failure.message.find("planned failure of " + model_.name(n)) == std::string::npos) {
          problem(model_.name(n) + " failed with the message of another: " + failure.message);
        }
      }
      for (const TaskFailure& failure : run.skipped)
        check_cause(failure, outcome);
    }
    check_failed_runs(outcome);
  }

  void check_cause(const TaskFailure& failure, const Outcome& outcome) {
    const int n = names_.find(failure.task);
    if (n < 0 || outcome.status[at(n)] != Status::skipped || !outcome.certain[at(n)]) return;
    const int cause = names_.find(failure.cause);
    const bool known =
        cause < 0 ? may_be_nameless(outcome.causes[at(n)]) : outcome.causes[at(n)].has(cause);
    if (!known) {
      problem(model_.name(n) + " was skipped because of task " +
              std::to_string(failure.cause.value) + ", " +
              (cause < 0 ? "which nobody knows" : model_.name(cause)) +
              ", which is not among the causes");
    }
  }
  /// A task of a cancelled run's replay that was dropped: nobody tells its id.
  bool may_be_nameless(const Bits& causes) const {
    bool found = false;
    causes.for_each([&](int n) {
      const Node& node = model_.node(n);
      found = found || (node.replay >= 0 && !trace_.nodes[at(n)].id &&
                        model_.cancelled_runs()[at(node.run)]);
    });
    return found;
  }

  void check_failed_runs(const Outcome& outcome) {
    std::vector<bool> bad(trace_.runs.size());
    std::vector<bool> open(trace_.runs.size());
    for (int n = 0; n < model_.size(); ++n) {
      const Node& node = model_.node(n);
      if (node.host()) continue;
      if (outcome.status[at(n)] != Status::ran) bad[at(node.run)] = true;
    }
    for (std::size_t r = 0; r < trace_.runs.size(); ++r) {
      if (model_.cancelled_runs()[r] || bad[r] == trace_.runs[r].result_failed) continue;
      problem("run " + std::to_string(r) +
              (bad[r] ? " had failed or skipped tasks but reports success"
                      : " reports failure though all its tasks went well"));
    }
  }

  void check_bytes(const Outcome& outcome) {
    for (std::size_t b = 0; b < trace_.buffers.size(); ++b) {
      compare("buffer " + std::to_string(b), trace_.buffers[b], outcome.images[b]);
    }
    for (const auto& [instance, bytes] : trace_.kept) {
      compare("kept storage " + std::to_string(instance), bytes, outcome.images[at(instance)]);
    }
  }

  void compare(const std::string& what, const std::vector<std::uint8_t>& bytes,
               const Image& image) {
    for (std::size_t i = 0; i < bytes.size() && i < image.bytes.size(); ++i) {
      if (!image.defined[i] || bytes[i] == image.bytes[i]) continue;
      problem(what + ": byte " + std::to_string(i) + " is " + hex(bytes[i]) +
              " but serial execution leaves " + hex(image.bytes[i]));
      return;
    }
  }

  void check_host(const Outcome& outcome) {
    for (int n = 0; n < model_.size(); ++n) {
      const Node& node = model_.node(n);
      if (!node.host() || node.type == NodeType::wait_task) continue;
      const NodeTrace& trace = trace_.nodes[at(n)];
      if (trace.submit_end == 0) continue;
      const bool reads = node.type == NodeType::wait_tensor || node.type == NodeType::read;
      if (outcome.certain[at(n)] && reads && trace.threw != outcome.throws[at(n)]) {
        problem(model_.name(n) + (trace.threw ? " reports valid bytes as invalid"
                                              : " does not report invalid bytes"));
      }
      if (!reads && trace.threw) problem(model_.name(n) + " threw though it reads nothing");
      const auto& expected = outcome.seen[at(n)];
      if (node.type == NodeType::read && !trace.threw && !outcome.throws[at(n)] &&
          !expected.empty() && expected != trace.seen) {
        problem(model_.name(n) + " read other bytes than serial execution would");
      }
    }
  }

  void check_ids() {
    TaskId last;
    for (int n = 0; n < model_.size(); ++n) {
      const Node& node = model_.node(n);
      const TaskId id = trace_.nodes[at(n)].id;
      if (node.host() || !id) continue;
      if (id <= last) problem(model_.name(n) + ": task ids do not grow in submission order");
      last = id;
    }
  }

  const Program& program_;
  const Model& model_;
  const Trace& trace_;
  TaskNames names_;
  std::vector<Status> observed_, reported_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> check(const Program& program, const Model& model, const Trace& trace) {
  return Checker(program, model, trace).run();
}

}  // namespace strata::property
