// close() from every state (design.md, P6), and Worker::cancel.

#include <signal.h>
#include <sys/wait.h>

#include <memory>
#include <thread>

#include "os/deadline.hpp"
#include "support/forked_child.hpp"
#include "support/node_test.hpp"
#include "support/random.hpp"

namespace strata::test {
namespace {

class NodeClose : public NodeTest {
 protected:
  /// Starts a task and returns once it has begun.
  static Run begin(Worker& worker, const TaskFlag& flag, std::string_view task, Target target) {
    const CallableId callable = worker.add(task_in_library(task));
    Run run = worker.submit([callable, target, tensor = flag.tensor()](Orchestration& o) {
      o.submit(Call(callable), inout(tensor), scalar(std::int64_t{50}), target, named("the task"));
    });
    EXPECT_TRUE(flag.begun_within(5s));
    return run;
  }
};

// "A task ignores everything (SIGTERM, shutdown): close(1 s) ends within 2 s, with one error naming
// worker and task."
TEST_F(NodeClose, ATaskThatIgnoresEverythingIsEndedAndNamed) {
  Worker worker(tree_options());
  worker.init();
  const TaskFlag flag(worker);
  const Run run = begin(worker, flag, "ignore_everything", on(worker.sub(1)));
  const Stopwatch watch;
  const auto failed = thrown_by<CloseFailed>([&] { worker.close(1s); });
  // The second that was allowed, and the second that is promised beyond it.
  EXPECT_LE(watch.elapsed(), 1s + bound(1s));
  ASSERT_TRUE(failed);
  ASSERT_EQ(failed->faults().size(), 1u) << failed->what();
  EXPECT_EQ(failed->faults()[0].path, "node/sub[1]");
  EXPECT_THAT(failed->faults()[0].task, HasSubstr("the task"));
  EXPECT_THAT(failed->what(), HasSubstr("node/sub[1]"));
  EXPECT_THAT(failed->what(), HasSubstr("the task"));
  EXPECT_TRUE(run.done());
  EXPECT_TRUE(marked_processes(mark_children()).empty());
}

TEST_F(NodeClose, TasksThatSpinOrSleepAreEndedInTime) {
  for (const char* task : {"spin", "spin_everywhere", "sleep_for_ever"}) {
    Worker worker({.chips = {{}}, .subs = {{.count = 1}}});
    worker.init();
    const TaskFlag flag(worker);
    const Run run = begin(worker, flag, task, on(worker.chip(0)));
    const Stopwatch watch;
    const auto failed = thrown_by<CloseFailed>([&] { worker.close(500ms); });
    EXPECT_LE(watch.elapsed(), 500ms + bound(1s)) << task;
    ASSERT_TRUE(failed) << task;
    EXPECT_EQ(failed->faults().size(), 1u) << failed->what();
    EXPECT_TRUE(run.done());
  }
}

TEST_F(NodeClose, ATaskThatIgnoresEverythingTwoLevelsDownIsEndedInTime) {
  Worker worker(tree_options());
  worker.init();
  const TaskFlag flag(worker);
  const CallableId descend = worker.add(task_in_library("descend").as_orchestration());
  const Run run = worker.submit([&](Orchestration& o) {
    o.submit(Call(descend), inout(flag.tensor()), scalar(std::int64_t{0}),
             scalar(number_of_task("ignore_everything")), scalar(std::int64_t{0}),
             on(worker.any_next()));
  });
  ASSERT_TRUE(flag.begun_within(5s));
  const Stopwatch watch;
  thrown_by<CloseFailed>([&] { worker.close(1s); });
  EXPECT_LE(watch.elapsed(), 1s + bound(1s));
  EXPECT_TRUE(run.done());
  EXPECT_TRUE(marked_processes(mark_children()).empty());
}

TEST_F(NodeClose, ATaskThatListensEndsWithoutForce) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  const TaskFlag flag(worker);
  const Run run = begin(worker, flag, "until_cancelled", on(worker.any_sub()));
  worker.close();
  thrown_by<Cancelled>([&] { run.result(); });
}

TEST_F(NodeClose, TwiceIsTheSameAsOnce) {
  Worker worker({.subs = {{.count = 2}}});
  worker.close();
  worker.init();
  worker.close();
  worker.close();
  worker.close(0ms);
}

TEST_F(NodeClose, SeveralThreadsAtOnceAllReturnWhenItIsClosed) {
  for (int i = 0; i < 10; ++i) {
    Worker worker({.subs = {{.count = 3}}});
    worker.init();
    std::vector<std::thread> closers;
    for (int t = 0; t < 4; ++t) {
      closers.emplace_back([&] {
        worker.close();
        EXPECT_FALSE(worker.initialised());
        EXPECT_TRUE(marked_processes(mark_children()).empty());
      });
    }
    for (std::thread& closer : closers)
      closer.join();
  }
}

TEST_F(NodeClose, TheDestructorClosesAndThrowsNothing) {
  const TaskFlag* flag = nullptr;
  {
    WorkerOptions options = tree_options();
    options.close_time_limit = 300ms;
    Worker worker(options);
    worker.init();
    const TaskFlag own(worker);
    flag = &own;
    const Run run = begin(worker, *flag, "ignore_everything", on(worker.chip(0)));
  }
  EXPECT_TRUE(marked_processes(mark_children()).empty());
}

// What a program does that forks, be it by a library, and lets the copy end in order.
TEST_F(NodeClose, ACopyInAForkedProcessIsLeftAlone) {
  auto worker = std::make_unique<Worker>(WorkerOptions{.subs = {{.count = 1}}});
  worker->init();
  auto buffer = std::make_unique<Buffer>(worker->create_buffer(64));
  ForkedChild copy([&] {
    worker->cancel();
    worker->close();
    buffer.reset();
    worker.reset();
    return 0;
  });
  const os::Deadline deadline = os::Deadline::after(30s);
  int status = -1;
  while (::waitpid(copy.pid(), &status, WNOHANG) == 0 && !deadline.passed())
    std::this_thread::sleep_for(1ms);
  EXPECT_EQ(status, 0) << "it hangs, or has failed";
  const CallableId increment = worker->add(task_in_library("increment"));
  const Run run = worker->run([&](Orchestration& o) {
    o.submit(Call(increment), inout(buffer->tensor(DType::int64, {8})), on(worker->any_sub()));
  });
  run.result();
  EXPECT_EQ(buffer->as<std::int64_t>()[0], 1);
  worker->close();
}

TEST_F(NodeClose, AfterADeathItIsCleanSinceNothingIsWrongWithTheClose) {
  WorkerOptions options;
  options.subs = {{.count = 2}};
  options.replace_dead_workers = false;
  Worker worker(options);
  worker.init();
  ::kill(worker.processes().at(0).pid, SIGKILL);
  worker.close();
}

TEST_F(NodeClose, AfterAFailedStartItDoesNothing) {
  WorkerOptions options;
  options.subs = {{.count = 2, .setup = task_in_library("no_such_symbol")}};
  Worker worker(options);
  thrown_by<StartFailed>([&] { worker.init(); });
  worker.close();
}

TEST_F(NodeClose, InTheMiddleOfManyRunsEveryRunEnds) {
  Random random(3);
  for (int i = 0; i < 10; ++i) {
    Worker worker({.chips = {{}}, .subs = {{.count = 2}}});
    worker.init();
    const CallableId nothing = worker.add(task_in_library("nothing"));
    std::vector<std::thread> users;
    std::atomic<int> refused{0};
    for (int u = 0; u < 2; ++u) {
      users.emplace_back([&] {
        try {
          while (true) {
            worker.run([&](Orchestration& o) {
              for (int t = 0; t < 20; ++t)
                o.submit(Call(nothing), on(worker.any_sub()));
            });
          }
        } catch (const Cancelled&) {
        } catch (const InvalidState&) {  // The close was over before the submit.
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
        ++refused;
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(30'000)));
    worker.close();
    for (std::thread& user : users)
      user.join();
    EXPECT_EQ(refused, 2);
  }
}

TEST_F(NodeClose, CancelEndsRunsAndTheWorkerAndReturnsAtOnce) {
  Worker worker(tree_options());
  worker.init();
  const TaskFlag flag(worker);
  const Run run = begin(worker, flag, "until_cancelled", on(worker.any_chip()));
  worker.cancel();
  thrown_by<Cancelled>([&] { run.result(); });
  worker.close();
  EXPECT_TRUE(marked_processes(mark_children()).empty());
  worker.init();
  EXPECT_EQ(value_of(worker, "return_worker", on(worker.sub(0))), "node/sub[0]");
}

TEST_F(NodeClose, AStoppedWorkerIsEndedInTime) {
  Worker worker({.subs = {{.count = 2}}});
  worker.init();
  ::kill(worker.processes().at(1).pid, SIGSTOP);
  const Stopwatch watch;
  try {
    worker.close(500ms);
  } catch (const CloseFailed& failed) {
    EXPECT_THAT(failed.what(), HasSubstr("node/sub[1]"));
  }
  EXPECT_LE(watch.elapsed(), 500ms + bound(1s));
}

TEST_F(NodeClose, BuffersAreReadableAfterwards) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  Buffer x = worker.create_buffer(64);
  const CallableId increment = worker.add(task_in_library("increment"));
  worker.run([&](Orchestration& o) {
    o.submit(Call(increment), inout(x.tensor(DType::int64, {8})), on(worker.any_sub()));
  });
  worker.close();
  EXPECT_EQ(x.as<std::int64_t>()[7], 1);
  worker.init();
  worker.run([&](Orchestration& o) {
    o.submit(Call(increment), inout(x.tensor(DType::int64, {8})), on(worker.any_sub()));
  });
  EXPECT_EQ(x.as<std::int64_t>()[7], 2);
}

}  // namespace
}  // namespace strata::test
