// NodeTest: the fixture of tests with a Worker in this process. Each is watched by a guard, and
// must leave nothing behind: no process, no descriptor, no name in a file system.
//
// Thread safety: as GoogleTest's.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "support/guard.hpp"
#include "support/node_tree.hpp"
#include "support/nothing_left.hpp"

namespace strata::test {

using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

/// What `action` throws; a failure of the running test if that is nothing or something else.
template <class Thrown, class Action>
std::optional<Thrown> thrown_by(Action&& action) {
  try {
    action();
  } catch (const Thrown& error) {
    return error;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "thrown was " << typeid(error).name() << ": " << error.what();
    return std::nullopt;
  }
  ADD_FAILURE() << "nothing was thrown";
  return std::nullopt;
}

class NodeTest : public testing::Test {
 protected:
  using Run = strata::Run;  // Not testing::Test::Run.

  void SetUp() override {
    // What Strata makes once per process and keeps is no leak.
    static const bool warmed_up = [] {
      Worker worker({.subs = {{.count = 1}}});
      worker.init();
      worker.close();
      return true;
    }();
    (void)warmed_up;
    nothing_left_.emplace();
  }
  void TearDown() override {
    nothing_left_.reset();
    if (HasFailure()) kill_marked(mark_children());
  }

  /// The failures of a run, by name of the task, each as the text of what it threw.
  static std::vector<std::pair<std::string, std::string>> failures_of(const Run& run) {
    std::vector<std::pair<std::string, std::string>> found;
    try {
      run.result();
    } catch (const RunFailed& failed) {
      for (const TaskFailure& failure : failed.failed())
        found.emplace_back(failure.name, failure.message);
    } catch (const std::exception& error) {
      found.emplace_back("", error.what());
    }
    return found;
  }

  /// Runs one task at a place and gives its value.
  static std::string value_of(Worker& worker, std::string_view task, Target target,
                              std::int64_t argument = 0) {
    const CallableId callable = worker.add(task_in_library(task));
    TaskId id;
    const Run run = worker.run([&](Orchestration& o) {
      id = o.submit(Call(callable), scalar(argument), target, named("value_of"));
    });
    return run.value(id).value_or("(no value)");
  }

  Guard guard_{testing::UnitTest::GetInstance()->current_test_info()->name(),
               std::chrono::duration_cast<std::chrono::seconds>(bound(60s))};
  std::optional<NothingLeft> nothing_left_;
};

/// The WorkerError that the run's first failed task threw; a failure of the test if there is none.
inline std::optional<WorkerFault> fault_of(const Run& run) {
  std::optional<WorkerFault> fault;
  const std::string text =
      with_failure_of(run, [&](const WorkerError& error) { fault = error.fault(); });
  if (!fault) ADD_FAILURE() << "no task failed with a WorkerError; the run: " << text;
  return fault;
}

}  // namespace strata::test
