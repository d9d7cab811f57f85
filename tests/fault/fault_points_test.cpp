// Every named point at which the processes of a tree can fail (base/fault_point.hpp): the points
// are learnt from a run in which nothing fails; then at each of them the process is delayed, ends,
// is killed, told to end, stopped, or the call there fails. Whatever happens, the program ends in
// time and nothing is left of its tree.
//
// "every state transition by a fault-injection point (a named hook compiled into test builds:
// delay, exit, signal or stop at each transition on either side; the test enumerates them all)" and
// "SIGKILL of the root at every transition".

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>

#include "base/fault_point.hpp"
#include "support/node_test.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {
namespace {

/// A point as one kind of process passes it.
struct Point {
  std::string scope;  ///< Empty: passed before the process knows who it is.
  std::string name;
};

/// "node/next[0]/sub[1]" -> "node/next[]/sub[]".
std::string kind_of(const std::string& scope) {
  std::string kind;
  for (const char c : scope)
    if (c < '0' || c > '9') kind += c;
  return kind;
}

class FaultPoints : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!base::kFaultPoints) GTEST_SKIP() << "this build has no fault points";
  }

  /// A whole life of a tree.
  static std::vector<std::string> life() {
    // Not bounds of the test, but what the program waits for a process that was stopped.
    const auto limit = [](const char* name, long ms) {
      const double times = std::max(1.0, time_factor() / 4);
      return name + std::to_string(static_cast<long>(static_cast<double>(ms) * times));
    };
    return {limit("start-limit=", 500),
            limit("close-limit=", 100),
            limit("run-limit=", 300),
            "replace=no",
            "init",
            "run:nothing@sub0",
            "run:nothing@chip1",
            "run:nothing@next0",
            "close",
            "init",
            "close"};
  }

  /// All points, each once for each kind of process that passes it.
  static std::vector<Point> all_points() {
    const TempDir folder;
    const std::string log = (folder.path() / "log").string();
    // Also what is passed only when something goes wrong: a worker that must be ended by force.
    std::vector<std::string> forced = life();
    forced.insert(forced.end() - 3, "submit:ignore_everything@sub1");
    for (const std::vector<std::string>& steps : {life(), forced}) {
      Program root("node_driver", steps, {{"STRATA_FAULT_LOG", log}});
      EXPECT_TRUE(root.end(20s));
    }
    std::vector<Point> points;
    std::set<std::string> seen;
    std::ifstream lines(log);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t colon = line.rfind(':');
      Point point{.scope = colon == std::string::npos ? "" : line.substr(0, colon),
                  .name = colon == std::string::npos ? line : line.substr(colon + 1)};
      if (seen.insert(kind_of(point.scope) + ":" + point.name).second) {
        points.push_back(std::move(point));
      }
    }
    return points;
  }

  /// Waits for the end of a program, which is killed if it was stopped itself.
  static std::optional<ProgramEnd> end_of(Program& root, std::chrono::milliseconds promised) {
    (void)within(promised, [&] {
      if (root.ended()) return true;
      const auto all = marked_processes(root.mark());
      const auto self = std::find_if(all.begin(), all.end(),
                                     [&](const MarkedProcess& p) { return p.pid == root.pid(); });
      if (self != all.end() && self->state == 'T') root.signal(SIGKILL);
      return false;
    });
    return root.end(1ms);
  }
};

TEST_P(FaultPoints, AtEveryPointTheProgramEndsAndNothingIsLeft) {
  const std::string action = GetParam();
  const auto points = all_points();
  // Fewer would mean that the points were not found: the parent alone has more transitions.
  ASSERT_GE(points.size(), 20u);
  const std::set<std::string> names_before = shared_names();
  std::map<std::string, int> ends;
  for (const Point& point : points) {
    const std::string fault =
        (point.scope.empty() ? "" : point.scope + ":") + point.name + "=" + action;
    SCOPED_TRACE(fault);
    Guard guard(fault, std::chrono::duration_cast<std::chrono::seconds>(bound(60s)));
    Program root("node_driver", life(), {{"STRATA_FAULTS", fault}});
    const auto end = end_of(root, 10s);
    ASSERT_TRUE(end) << "the program goes on; it said:\n" << root.output();
    EXPECT_TRUE(within(1s, [&] { return root.descendants().empty(); }))
        << to_string(root.descendants());
    if (action == "delay:30") {
      EXPECT_EQ(*end, ProgramEnd{.exit_code = 0}) << root.output();
    }
    ++ends[to_string(*end)];
    if (HasFatalFailure()) break;
  }
  std::set<std::string> left;
  const std::set<std::string> names = shared_names();
  std::set_difference(names.begin(), names.end(), names_before.begin(), names_before.end(),
                      std::inserter(left, left.end()));
  EXPECT_TRUE(left.empty()) << *left.begin();
  std::printf("%s at %zu points:\n", action.c_str(), points.size());
  for (const auto& [end, count] : ends)
    std::printf("  %4d times the program %s\n", count, end.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, FaultPoints,
                         testing::Values("delay:30", "exit:9", "signal:9", "signal:15", "stop",
                                         "error:12"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::test
