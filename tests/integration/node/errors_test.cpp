// Tasks that fail in other processes: what the caller is told.

#include "support/node_test.hpp"

namespace strata::test {
namespace {

class NodeErrors : public NodeTest {
 protected:
  /// Runs one task at a place; it must fail.
  static Run run_failing(Worker& worker, std::string_view task, Target target,
                         std::int64_t argument = 100) {
    const CallableId callable = worker.add(task_in_library(task));
    const Run run = worker.submit([&](Orchestration& o) {
      o.submit(Call(callable), scalar(argument), target, named("the task"));
    });
    run.wait();
    return run;
  }
};

// "Error text of 10 kB and its type from a task three levels down arrives whole, with the path of
// workers and the callable's name."
TEST_F(NodeErrors, TextOf10kBFromThreeLevelsDownArrivesWholeWithTypePathAndCallable) {
  WorkerOptions third;
  third.subs = {{.count = 1}};
  WorkerOptions second;
  second.next_level = {third};
  WorkerOptions options;
  options.next_level = {second};
  Worker worker(options);
  worker.init();
  const CallableId descend = worker.add(task_in_library("descend").as_orchestration());
  const Run run = worker.submit([&](Orchestration& o) {
    o.submit(Call(descend), scalar(std::int64_t{1}), scalar(number_of_task("fail")),
             scalar(std::int64_t{10'000}), on(worker.any_next()), named("top"));
  });
  run.wait();
  const auto fault = fault_of(run);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->path, "node/next[0]/next[0]/sub[0]");
  EXPECT_EQ(fault->type, "std::runtime_error");
  EXPECT_THAT(fault->cause, HasSubstr(text_of(10'000)));
  EXPECT_THAT(fault->callable, HasSubstr("fail"));
  const std::string text = with_failure_of(run, [](const WorkerError&) {});
  EXPECT_THAT(text, HasSubstr(text_of(10'000)));
  EXPECT_THAT(text, HasSubstr("node/next[0]/next[0]/sub[0]"));
  // The workers are as good as before.
  worker.run([&](Orchestration& o) {
    o.submit(Call(descend), scalar(std::int64_t{1}), scalar(number_of_task("nothing")),
             scalar(std::int64_t{0}), on(worker.any_next()));
  });
}

TEST_F(NodeErrors, TextsOfAnyLengthArriveWhole) {
  Worker worker({.chips = {{}}, .subs = {{.count = 1}}});
  worker.init();
  for (const std::int64_t bytes : {20, 23, 24, 25, 511, 512, 65'536, 200'000, 3'000'000}) {
    for (const Target target : {on(worker.any_sub()), on(worker.any_chip())}) {
      const auto fault = fault_of(run_failing(worker, "fail", target, bytes));
      ASSERT_TRUE(fault);
      EXPECT_TRUE(fault->cause.find(text_of(static_cast<std::size_t>(bytes))) != std::string::npos)
          << bytes << " bytes, got " << fault->cause.size();
    }
  }
}

TEST_F(NodeErrors, TheErrorSaysWhichTaskWhichCallableAndWhichWorker) {
  Worker worker({.subs = {{.count = 2}}});
  worker.init();
  const auto fault = fault_of(run_failing(worker, "fail_with_type", on(worker.sub(1))));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->path, "node/sub[1]");
  EXPECT_EQ(fault->type, "strata_test::OutOfPaper");
  EXPECT_THAT(fault->cause, HasSubstr("tray 2 is empty"));
  EXPECT_THAT(fault->task, HasSubstr("the task"));
  EXPECT_THAT(fault->callable, HasSubstr("fail_with_type"));
}

TEST_F(NodeErrors, WhatIsNoExceptionIsToldByItsType) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  const auto fault = fault_of(run_failing(worker, "fail_with_number", on(worker.any_sub())));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->type, "int");
}

TEST_F(NodeErrors, AnOrchestrationThatThrowsFailsItsTask) {
  WorkerOptions below;
  below.subs = {{.count = 1}};
  WorkerOptions options;
  options.next_level = {below};
  Worker worker(options);
  worker.init();
  const CallableId callable =
      worker.add(task_in_library("fail_in_orchestration").as_orchestration());
  const Run run = worker.submit([&](Orchestration& o) {
    o.submit(Call(callable), scalar(std::int64_t{5000}), on(worker.any_next()));
  });
  const auto fault = fault_of(run);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->path, "node/next[0]");
  EXPECT_THAT(fault->cause, HasSubstr(text_of(5000)));
}

TEST_F(NodeErrors, ReadersOfAFailedTaskAreSkippedInWhateverProcess) {
  Worker worker(tree_options());
  worker.init();
  Buffer x = worker.create_buffer(64);
  const CallableId fail = worker.add(task_in_library("fail"));
  const CallableId increment = worker.add(task_in_library("increment"));
  const Tensor t = x.tensor(DType::int64, {8});
  const Run run = worker.submit([&](Orchestration& o) {
    o.submit(Call(fail), out(t), scalar(std::int64_t{50}), on(worker.sub(0)), named("bad"));
    o.submit(Call(increment), inout(t), on(worker.chip(0)), named("reader"));
  });
  try {
    run.result();
    ADD_FAILURE() << "it went well";
  } catch (const RunFailed& failed) {
    ASSERT_EQ(failed.failed().size(), 1u);
    ASSERT_EQ(failed.skipped().size(), 1u);
    EXPECT_EQ(failed.skipped()[0].name, "reader");
    EXPECT_THAT(failed.skipped()[0].message, HasSubstr(text_of(50)));
  }
  EXPECT_EQ(x.as<std::int64_t>()[0], 0);
}

TEST_F(NodeErrors, ACallableThatCantBeLoadedFailsItsTasksWithTheReason) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  const CallableId no_symbol = worker.add(task_in_library("no_such_symbol"));
  const CallableId no_library = worker.add(Callable::in_library("/nowhere/libno.so", "scale"));
  const CallableId no_program = worker.add(Callable::in_program("no such function"));
  for (const auto& [callable, what] :
       {std::pair{no_symbol, "no_such_symbol"}, std::pair{no_library, "/nowhere/libno.so"},
        std::pair{no_program, "no such function"}}) {
    const Run run = worker.submit(
        [&, id = callable](Orchestration& o) { o.submit(Call(id), on(worker.any_sub())); });
    const auto failures = failures_of(run);
    ASSERT_EQ(failures.size(), 1u) << what;
    EXPECT_THAT(failures[0].second, HasSubstr(what));
  }
  EXPECT_EQ(value_of(worker, "return_worker", on(worker.any_sub())), "node/sub[0]");
}

TEST_F(NodeErrors, ACallOfNoCallableIsRefused) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  for (const CallableId id : {CallableId{}, CallableId{4711}}) {
    const Run run =
        worker.submit([&](Orchestration& o) { o.submit(Call(id), on(worker.any_sub())); });
    EXPECT_EQ(failures_of(run).size(), 1u);
  }
}

}  // namespace
}  // namespace strata::test
