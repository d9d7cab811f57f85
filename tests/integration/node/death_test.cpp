// Workers that die or are ended in the middle of things: what their tasks fail with, what goes on,
// and how they are replaced (design.md, P2, P10).

#include <signal.h>

#include <algorithm>
#include <thread>

#include "support/node_test.hpp"

namespace strata::test {
namespace {

class NodeDeath : public NodeTest {
 protected:
  static ProcessStatus status_of(const Worker& worker, const std::string& path) {
    for (const ProcessStatus& process : worker.processes()) {
      if (process.path == path) return process;
    }
    return {};
  }
  static bool ready_again(const Worker& worker, const std::string& path, unsigned incarnation) {
    return within(5s, [&] {
      const ProcessStatus status = status_of(worker, path);
      return status.state == "ready" && status.incarnation == incarnation;
    });
  }
};

// "A worker segfaults in a task with two more queued on it: "killed by signal 11 (segmentation
// fault) while running task X" within 1 s, the queued ones, which named it, fail with that cause,
// others finish, close is clean."
TEST_F(NodeDeath, SegfaultFailsItsTaskAndTheTwoThatNamedItAndNoOther) {
  Worker worker(tree_options());
  worker.init();
  const CallableId crash = worker.add(task_in_library("null_write"));
  const CallableId nothing = worker.add(task_in_library("nothing"));
  const Stopwatch watch;
  const Run run = worker.submit([&](Orchestration& o) {
    o.submit(Call(crash), on(worker.sub(0)), named("crash"));
    o.submit(Call(nothing), on(worker.sub(0)), named("queued 1"));
    o.submit(Call(nothing), on(worker.sub(0)), named("queued 2"));
    for (int i = 0; i < 10; ++i) {
      o.submit(Call(nothing), on(worker.sub(1)), named("other"));
      o.submit(Call(nothing), on(worker.any_chip()), named("other"));
    }
  });
  ASSERT_TRUE(run.wait_for(bound(1s)));
  EXPECT_LE(watch.elapsed(), bound(1s));
  const auto failures = failures_of(run);
  ASSERT_EQ(failures.size(), 3u);
  std::vector<std::string> names;
  for (const auto& [name, text] : failures) {
    names.push_back(name);
    EXPECT_THAT(text, HasSubstr("killed by signal 11 (segmentation fault)")) << name;
    EXPECT_THAT(text, HasSubstr("crash")) << name;
    EXPECT_THAT(text, HasSubstr("node/sub[0]")) << name;
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("crash", "queued 1", "queued 2"));
  EXPECT_EQ(run.stats().failed, 3u);
  const auto fault = fault_of(run);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->path, "node/sub[0]");
  EXPECT_THAT(fault->task, HasSubstr("crash"));
  EXPECT_THAT(fault->callable, HasSubstr("null_write"));
  worker.close();
}

TEST_F(NodeDeath, TheFaultHasTheLastEventsOfTheWorkerUpToTheTaskThatItDiedIn) {
  Worker worker({.subs = {{.count = 1}}, .replace_dead_workers = false});
  worker.init();
  const CallableId nothing = worker.add(task_in_library("nothing"));
  const CallableId crash = worker.add(task_in_library("null_write"));
  worker.run([&](Orchestration& o) { o.submit(Call(nothing), on(worker.sub(0))); });
  const Run run =
      worker.submit([&](Orchestration& o) { o.submit(Call(crash), on(worker.sub(0))); });
  ASSERT_TRUE(run.wait_for(bound(5s)));
  const auto fault = fault_of(run);
  ASSERT_TRUE(fault);
  const auto begun = [](const std::string& event) {
    return event.find(" before: task ") != std::string::npos && event.ends_with(" began");
  };
  const auto ended = [](const std::string& event) { return event.ends_with(" ended well"); };
  ASSERT_EQ(std::ranges::count_if(fault->events, begun), 2) << fault->to_string();
  ASSERT_EQ(std::ranges::count_if(fault->events, ended), 1) << fault->to_string();
  // The task that ended came before the one that began last.
  const auto last = std::ranges::find_if(fault->events.rbegin(), fault->events.rend(), begun);
  EXPECT_EQ(std::find_if(fault->events.rbegin(), last, ended), last);
  for (const std::string& event : fault->events)
    EXPECT_THAT(fault->to_string(), HasSubstr(event));
  worker.close();
}

TEST_F(NodeDeath, QueuedTasksThatNamedNoWorkerGoToAnother) {
  Worker worker({.subs = {{.count = 2}}});
  worker.init();
  const CallableId crash = worker.add(task_in_library("null_write"));
  const CallableId nap = worker.add(task_in_library("nap"));
  const Run run = worker.submit([&](Orchestration& o) {
    o.submit(Call(crash), on(worker.sub(0)), named("crash"));
    for (int i = 0; i < 40; ++i)
      o.submit(Call(nap), scalar(std::int64_t{2}), on(worker.any_sub()), named("any"));
  });
  const auto failures = failures_of(run);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].first, "crash");
}

TEST_F(NodeDeath, ADeadWorkerIsReplacedAndKnowsItsCallables) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  EXPECT_EQ(value_of(worker, "return_worker", on(worker.sub(0))), "node/sub[0]");
  const std::string first = value_of(worker, "return_pid", on(worker.sub(0)));
  for (unsigned i = 2; i < 5; ++i) {
    const CallableId crash = worker.add(task_in_library("abort_now"));
    const Run run =
        worker.submit([&](Orchestration& o) { o.submit(Call(crash), on(worker.sub(0))); });
    EXPECT_EQ(failures_of(run).size(), 1u);
    ASSERT_TRUE(ready_again(worker, "node/sub[0]", i));
    EXPECT_EQ(value_of(worker, "return_worker", on(worker.sub(0))), "node/sub[0]");
    EXPECT_NE(value_of(worker, "return_pid", on(worker.sub(0))), first);
  }
}

TEST_F(NodeDeath, TasksForAWorkerThatIsBeingReplacedWaitForTheNextOne) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  for (int i = 0; i < 5; ++i) {
    ::kill(status_of(worker, "node/sub[0]").pid, SIGKILL);
    // Whether the death is known yet or not: a task either fails with that cause or runs.
    const CallableId nothing = worker.add(task_in_library("nothing"));
    const Run run =
        worker.submit([&](Orchestration& o) { o.submit(Call(nothing), on(worker.any_sub())); });
    for (const auto& [name, text] : failures_of(run))
      EXPECT_THAT(text, HasSubstr("killed by signal 9"));
    ASSERT_TRUE(ready_again(worker, "node/sub[0]", static_cast<unsigned>(i) + 2));
  }
  EXPECT_EQ(value_of(worker, "return_worker", on(worker.any_sub())), "node/sub[0]");
}

TEST_F(NodeDeath, AnExitInATaskIsAFailureWithItsStatus) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  const CallableId exits = worker.add(task_in_library("exit_now"));
  const Run run =
      worker.submit([&](Orchestration& o) { o.submit(Call(exits), on(worker.any_sub())); });
  const auto fault = fault_of(run);
  ASSERT_TRUE(fault);
  EXPECT_THAT(fault->cause, HasSubstr("exited with status 7"));
}

TEST_F(NodeDeath, KillFromOutsideWhileItSpinsIsTold) {
  Worker worker(tree_options());
  worker.init();
  const TaskFlag flag(worker);
  const CallableId spin = worker.add(task_in_library("spin"));
  const Run run = worker.submit([&](Orchestration& o) {
    o.submit(Call(spin), inout(flag.tensor()), on(worker.chip(1)), named("spinner"));
  });
  ASSERT_TRUE(flag.begun_within(5s));
  ::kill(flag.value(), SIGKILL);
  ASSERT_TRUE(run.wait_for(bound(1s)));
  const auto fault = fault_of(run);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->path, "node/chip[1]");
  EXPECT_THAT(fault->cause, HasSubstr("killed by signal 9"));
  EXPECT_THAT(fault->task, HasSubstr("spinner"));
}

TEST_F(NodeDeath, AHungWorkerCanBeReplacedWhileOthersCarryOn) {
  Worker worker({.subs = {{.count = 2}}});
  worker.init();
  const TaskFlag flag(worker);
  const CallableId hang = worker.add(task_in_library("ignore_everything"));
  const CallableId nothing = worker.add(task_in_library("nothing"));
  const Run hung = worker.submit([&](Orchestration& o) {
    o.submit(Call(hang), inout(flag.tensor()), on(worker.sub(0)), named("hung"));
  });
  ASSERT_TRUE(flag.begun_within(5s));
  worker.run([&](Orchestration& o) { o.submit(Call(nothing), on(worker.sub(1))); });
  EXPECT_FALSE(hung.done());
  worker.replace(worker.sub(0));
  ASSERT_TRUE(hung.wait_for(bound(2s)));
  const auto failures = failures_of(hung);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_THAT(failures[0].second, HasSubstr("replace"));
  ASSERT_TRUE(ready_again(worker, "node/sub[0]", 2));
  EXPECT_EQ(value_of(worker, "return_worker", on(worker.sub(0))), "node/sub[0]");
}

TEST_F(NodeDeath, AMemberThatDiesFailsItsGroupAndTheOthersAreTold) {
  Worker worker({.subs = {{.count = 2}}});
  worker.init();
  const CallableId crash = worker.add(task_in_library("null_write"));
  const CallableId waits = worker.add(task_in_library("until_cancelled"));
  const Run run = worker.submit([&](Orchestration& o) {
    std::vector<GroupMember> members;
    members.push_back({.lane = worker.sub(0), .body = Call(waits)});
    members.push_back({.lane = worker.sub(1), .body = Call(crash)});
    o.submit_group({.members = members, .name = "pair"});
  });
  ASSERT_TRUE(run.wait_for(bound(5s)));
  const auto fault = fault_of(run);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->path, "node/sub[1]");
}

TEST_F(NodeDeath, ANextLevelWorkerThatDiesTakesItsWorkersAlongAndIsReplaced) {
  Worker worker(tree_options());
  worker.init();
  EXPECT_EQ(marked_processes(mark_children()).size(), kTreeProcesses);
  const int pid = status_of(worker, "node/next[0]").pid;
  std::vector<int> below;
  for (const MarkedProcess& process : marked_processes(mark_children())) {
    if (process.parent == pid) below.push_back(process.pid);
  }
  EXPECT_EQ(below.size(), 2u);
  ::kill(pid, SIGKILL);
  EXPECT_TRUE(within(1s, [&] {
    const auto marked = marked_processes(mark_children());
    return std::none_of(marked.begin(), marked.end(), [&](const MarkedProcess& p) {
      return std::find(below.begin(), below.end(), p.pid) != below.end();
    });
  }));
  ASSERT_TRUE(ready_again(worker, "node/next[0]", 2));
  EXPECT_EQ(marked_processes(mark_children()).size(), kTreeProcesses);
  const CallableId descend = worker.add(task_in_library("descend").as_orchestration());
  worker.run([&](Orchestration& o) {
    o.submit(Call(descend), scalar(std::int64_t{0}), scalar(number_of_task("nothing")),
             scalar(std::int64_t{0}), on(worker.any_next()));
  });
}

TEST_F(NodeDeath, ACrashTwoLevelsDownNamesTheWorkerThatCrashed) {
  Worker worker(tree_options());
  worker.init();
  const CallableId descend = worker.add(task_in_library("descend").as_orchestration());
  const Run run = worker.submit([&](Orchestration& o) {
    o.submit(Call(descend), scalar(std::int64_t{0}), scalar(number_of_task("null_write")),
             scalar(std::int64_t{0}), on(worker.any_next()));
  });
  const auto fault = fault_of(run);
  ASSERT_TRUE(fault);
  EXPECT_THAT(fault->path, HasSubstr("node/next[0]/sub["));
  EXPECT_THAT(fault->cause, HasSubstr("signal 11 (segmentation fault)"));
}

TEST_F(NodeDeath, WithoutReplacementTasksForTheDeadFailAndOthersRun) {
  WorkerOptions options;
  options.subs = {{.count = 2}};
  options.replace_dead_workers = false;
  Worker worker(options);
  worker.init();
  const CallableId crash = worker.add(task_in_library("null_write"));
  const Run run =
      worker.submit([&](Orchestration& o) { o.submit(Call(crash), on(worker.sub(0))); });
  EXPECT_EQ(failures_of(run).size(), 1u);
  const CallableId nothing = worker.add(task_in_library("nothing"));
  const Run named_it =
      worker.submit([&](Orchestration& o) { o.submit(Call(nothing), on(worker.sub(0))); });
  const auto failures = failures_of(named_it);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_THAT(failures[0].second, HasSubstr("signal 11"));
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(value_of(worker, "return_worker", on(worker.any_sub())), "node/sub[1]");
}

TEST_F(NodeDeath, ManyDeathsInARowLeaveNothing) {
  Worker worker({.subs = {{.count = 2}}});
  worker.init();
  const CallableId crash = worker.add(task_in_library("null_write"));
  for (int i = 0; i < 20; ++i) {
    const Run run =
        worker.submit([&](Orchestration& o) { o.submit(Call(crash), on(worker.any_sub())); });
    EXPECT_EQ(failures_of(run).size(), 1u) << i;
  }
  EXPECT_THAT(value_of(worker, "return_worker", on(worker.any_sub())), HasSubstr("node/sub["));
  EXPECT_LE(marked_processes(mark_children()).size(), 2u);
}

}  // namespace
}  // namespace strata::test
