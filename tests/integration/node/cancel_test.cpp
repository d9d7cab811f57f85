// Cancel and deadline, per run and per task, over processes.

#include <thread>

#include "support/node_test.hpp"

namespace strata::test {
namespace {

class NodeCancel : public NodeTest {
 protected:
  static Run begin(Worker& worker, const TaskFlag& flag, std::string_view task, Target target,
                   RunOptions options = {}, std::chrono::nanoseconds limit = 0ns,
                   TaskId* id = nullptr) {
    const CallableId callable = worker.add(task_in_library(task));
    Run run = worker.submit(
        [=, tensor = flag.tensor()](Orchestration& o) {
          const Call call = limit > 0ns ? Call(callable).within(limit) : Call(callable);
          const TaskId submitted = o.submit(call, inout(tensor), target, named("the task"));
          if (id != nullptr) *id = submitted;
        },
        std::move(options));
    EXPECT_TRUE(flag.begun_within(5s));
    return run;
  }
  static WorkerOptions two_subs(std::chrono::milliseconds grace) {
    WorkerOptions options;
    options.subs = {{.count = 2}};
    options.cancel_grace = grace;
    return options;
  }
};

TEST_F(NodeCancel, ACancelledRunTellsItsTaskAndThrowsCancelled) {
  Worker worker(two_subs(60s));
  worker.init();
  const TaskFlag flag(worker);
  const Run run = begin(worker, flag, "until_cancelled", on(worker.sub(0)));
  run.cancel();
  thrown_by<Cancelled>([&] { run.result(); });
  // The same process goes on.
  EXPECT_EQ(value_of(worker, "return_pid", on(worker.sub(0))), std::to_string(flag.value()));
}

TEST_F(NodeCancel, ARunPastItsDeadlineIsToldToo) {
  Worker worker(two_subs(60s));
  worker.init();
  const TaskFlag flag(worker);
  const Run run = begin(worker, flag, "until_cancelled", on(worker.any_sub()),
                        {.deadline = std::chrono::steady_clock::now() + bound(300ms)});
  thrown_by<DeadlineExceeded>([&] { run.result(); });
}

TEST_F(NodeCancel, ATaskThatDoesNotListenIsEndedAfterTheGraceAndItsWorkerReplaced) {
  Worker worker(two_subs(200ms));
  worker.init();
  const TaskFlag flag(worker);
  const Run run = begin(worker, flag, "ignore_everything", on(worker.sub(0)));
  const Stopwatch watch;
  run.cancel();
  ASSERT_TRUE(run.wait_for(bound(2s)));
  thrown_by<Cancelled>([&] { run.result(); });
  EXPECT_NE(value_of(worker, "return_pid", on(worker.sub(0))), std::to_string(flag.value()));
}

TEST_F(NodeCancel, OneTaskCanBeCancelledAndTheOthersOfItsRunGoOn) {
  Worker worker(two_subs(60s));
  worker.init();
  const TaskFlag flag(worker);
  const TaskFlag other(worker);
  const CallableId waits = worker.add(task_in_library("until_cancelled"));
  const CallableId nothing = worker.add(task_in_library("nothing"));
  std::atomic<std::uint64_t> id{0};
  const Run run = worker.submit([&](Orchestration& o) {
    id = o.submit(Call(waits), inout(flag.tensor()), on(worker.sub(0)), named("stopped")).value;
    o.submit(Call(nothing), inout(other.tensor()), on(worker.sub(1)), named("other"));
  });
  ASSERT_TRUE(flag.begun_within(5s));
  worker.cancel(TaskId{id});
  ASSERT_TRUE(run.wait_for(bound(2s)));
  const auto failures = failures_of(run);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].first, "stopped");
  EXPECT_NE(other.value(), 0);
}

TEST_F(NodeCancel, ATaskThatHasNotStartedIsCancelledAtOnce) {
  Worker worker(two_subs(60s));
  worker.init();
  const TaskFlag flag(worker);
  const TaskFlag never(worker);
  const Run first = begin(worker, flag, "until_cancelled", on(worker.sub(0)));
  const CallableId nothing = worker.add(task_in_library("nothing"));
  std::atomic<std::uint64_t> id{0};
  const Run second = worker.submit([&](Orchestration& o) {
    id = o.submit(Call(nothing), inout(never.tensor()), on(worker.sub(0)), named("late")).value;
  });
  ASSERT_TRUE(within(5s, [&] { return id != 0; }));
  worker.cancel(TaskId{id});
  // Behind the first in the same mailbox, or not sent at all: its fate is known while the first
  // goes on or when that ends, and it never runs.
  first.cancel();
  ASSERT_TRUE(second.wait_for(bound(5s)));
  EXPECT_EQ(failures_of(second).size(), 1u);
  EXPECT_EQ(never.value(), 0);
}

TEST_F(NodeCancel, ATimeLimitOfATaskTellsItAndFailsItWithDeadlineExceeded) {
  Worker worker(two_subs(60s));
  worker.init();
  const TaskFlag flag(worker);
  const Run run = begin(worker, flag, "until_cancelled", on(worker.any_sub()), {}, 100ms);
  ASSERT_TRUE(run.wait_for(bound(2s)));
  try {
    run.result();
    ADD_FAILURE() << "it went well";
  } catch (const RunFailed& failed) {
    ASSERT_EQ(failed.failed().size(), 1u);
    EXPECT_THROW(std::rethrow_exception(failed.failed()[0].exception), DeadlineExceeded);
  }
}

TEST_F(NodeCancel, ATimeLimitEndsATaskThatDoesNotListen) {
  Worker worker(two_subs(200ms));
  worker.init();
  const TaskFlag flag(worker);
  const Run run = begin(worker, flag, "spin", on(worker.sub(1)), {}, 100ms);
  ASSERT_TRUE(run.wait_for(bound(2s)));
  const auto failures = failures_of(run);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(value_of(worker, "return_worker", on(worker.sub(1))), "node/sub[1]");
}

TEST_F(NodeCancel, ATaskWithinItsTimeLimitIsNotDisturbed) {
  Worker worker(two_subs(0ms));
  worker.init();
  const CallableId nothing = worker.add(task_in_library("nothing"));
  worker.run([&](Orchestration& o) {
    for (int i = 0; i < 500; ++i)
      o.submit(Call(nothing).within(60s), on(worker.any_sub()));
  });
}

TEST_F(NodeCancel, ACancelReachesATaskTwoLevelsDown) {
  Worker worker(tree_options());
  worker.init();
  const TaskFlag flag(worker);
  const CallableId descend = worker.add(task_in_library("descend").as_orchestration());
  const Run run = worker.submit([&](Orchestration& o) {
    o.submit(Call(descend), inout(flag.tensor()), scalar(std::int64_t{0}),
             scalar(number_of_task("until_cancelled")), scalar(std::int64_t{0}),
             on(worker.any_next()));
  });
  ASSERT_TRUE(flag.begun_within(5s));
  run.cancel();
  ASSERT_TRUE(run.wait_for(bound(2s)));
  thrown_by<Cancelled>([&] { run.result(); });
  const int pid = flag.value();
  const auto marked = marked_processes(mark_children());
  EXPECT_TRUE(std::any_of(marked.begin(), marked.end(), [&](const MarkedProcess& p) {
    return p.pid == pid;
  })) << "the worker was ended although its task listened";
}

TEST_F(NodeCancel, ManyCancelledRunsLeaveTheWorkerUsable) {
  Worker worker({.chips = {{}}, .subs = {{.count = 2}}});
  worker.init();
  const CallableId nap = worker.add(task_in_library("nap"));
  for (int i = 0; i < 100; ++i) {
    const Run run = worker.submit([&](Orchestration& o) {
      for (int t = 0; t < 50; ++t)
        o.submit(Call(nap), scalar(std::int64_t{1}), on(worker.any_sub()));
    });
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(10 * i));
    run.cancel();
    try {
      run.result();
    } catch (const Cancelled&) {
    }
  }
  EXPECT_THAT(value_of(worker, "return_worker", on(worker.any_sub())), HasSubstr("node/sub["));
}

}  // namespace
}  // namespace strata::test
