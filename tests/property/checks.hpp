// Checks: compares what happened with what the model allows.
//
// Thread safety: free functions on values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model.hpp"
#include "outcome.hpp"
#include "trace.hpp"

namespace strata::property {

/// Finds the node that a task id stands for. Ids of a replay's tasks are known from their bodies,
/// or, if they did not run, from reports: by name, and since ids grow in submission order.
class TaskNames {
 public:
  TaskNames(const Model& model, const Trace& trace);
  /// -1 if there is none.
  [[nodiscard]] int find(TaskId id) const;

 private:
  void learn_skipped(const Model& model, const Trace& trace);
  std::map<std::uint64_t, int> by_id_;
};

/// All that is wrong, as sentences; empty if nothing is.
[[nodiscard]] std::vector<std::string> check(const Program& program, const Model& model,
                                             const Trace& trace);

/// The part of it that looks at exported graphs.
void check_graphs(const Program& program, const Model& model, const Trace& trace,
                  const Outcome& outcome, const TaskNames& names,
                  std::vector<std::string>& problems);
/// The part of it that looks at who ran when and where.
void check_order(const Program& program, const Model& model, const Trace& trace,
                 std::vector<std::string>& problems);

/// First and last moment of a node; zero if it has no body or did not run.
struct Interval {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  [[nodiscard]] bool ran() const noexcept { return end != 0; }
};
[[nodiscard]] Interval interval_of(const Model& model, const Trace& trace, int node);

}  // namespace strata::property
