// Runs over worker processes that go well: where tasks run, what they see, what they return.

#include <numeric>
#include <set>
#include <thread>

#include "support/node_test.hpp"

namespace strata::test {
namespace {

class NodeRuns : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    worker_.emplace(tree_options());
    worker_->init();
  }
  void TearDown() override {
    worker_.reset();
    NodeTest::TearDown();
  }
  CallableId add(std::string_view task) { return worker_->add(task_in_library(task)); }

  std::optional<Worker> worker_;
};

TEST_F(NodeRuns, ATaskRunsWhereItIsSent) {
  EXPECT_EQ(value_of(*worker_, "return_worker", on(worker_->sub(0))), "node/sub[0]");
  EXPECT_EQ(value_of(*worker_, "return_worker", on(worker_->sub(1))), "node/sub[1]");
  EXPECT_EQ(value_of(*worker_, "return_worker", on(worker_->chip(0))), "node/chip[0]");
  EXPECT_EQ(value_of(*worker_, "return_worker", on(worker_->chip(1))), "node/chip[1]");
  EXPECT_THAT(value_of(*worker_, "return_worker", on(worker_->any_sub())), HasSubstr("node/sub["));
  EXPECT_THAT(value_of(*worker_, "return_worker", on(worker_->any_chip())),
              HasSubstr("node/chip["));
}

TEST_F(NodeRuns, ReadersSeeWhatWritersInOtherProcessesWrote) {
  Buffer x = worker_->create_buffer(4096);
  const Tensor t = x.tensor(DType::int64, {512});
  const CallableId increment = add("increment");
  constexpr int kTimes = 200;
  worker_->run([&](Orchestration& o) {
    for (int i = 0; i < kTimes; ++i) {
      const Target places[] = {on(worker_->sub(0)), on(worker_->chip(0)), on(worker_->sub(1)),
                               on(worker_->any_chip())};
      o.submit(Call(increment), inout(t), places[i % 4]);
    }
  });
  for (const std::int64_t value : x.as<std::int64_t>())
    ASSERT_EQ(value, kTimes);
}

TEST_F(NodeRuns, TensorsFromTheHeapGoFromWorkerToWorker) {
  Buffer x = worker_->create_buffer(4000);
  const CallableId fill = add("fill");
  const CallableId sum = add("add");
  worker_->run([&](Orchestration& o) {
    Tensor a(DType::float32, {1000});
    Tensor b(DType::float32, {1000});
    o.submit(Call(fill), out(a), scalar(1.5F), on(worker_->sub(0)));
    o.submit(Call(fill), out(b), scalar(2.0F), on(worker_->chip(1)));
    o.submit(Call(sum), in(a), in(b), out(x.tensor(DType::float32, {1000})),
             on(worker_->any_sub()));
  });
  for (const float value : x.as<float>())
    ASSERT_EQ(value, 3.5F);
}

TEST_F(NodeRuns, TheOrchestrationReadsAndWritesElements) {
  Buffer x = worker_->create_buffer(64);
  const Tensor t = x.tensor(DType::int64, {8});
  const CallableId increment = add("increment");
  worker_->run([&](Orchestration& o) {
    o.write<std::int64_t>(t, {3}, 40);
    o.submit(Call(increment), inout(t), on(worker_->any_sub()));
    EXPECT_EQ(o.read<std::int64_t>(t, {3}), 41);
    o.submit(Call(increment), inout(t), on(worker_->any_chip()));
    EXPECT_EQ(o.read<std::int64_t>(t, {3}), 42);
  });
}

TEST_F(NodeRuns, ANextLevelWorkerSplitsItsTaskOverItsSubs) {
  Buffer x = worker_->create_buffer(4096);
  std::iota(x.as<float>().begin(), x.as<float>().end(), 0.0F);
  const CallableId split = worker_->add(task_in_library("scale_in_quarters").as_orchestration());
  worker_->run([&](Orchestration& o) {
    o.submit(Call(split), inout(x.tensor(DType::float32, {1024})), scalar(2.0F),
             on(worker_->any_next()));
  });
  for (std::size_t i = 0; i < 1024; ++i)
    ASSERT_EQ(x.as<float>()[i], 2.0F * static_cast<float>(i));
}

TEST_F(NodeRuns, ATaskThreeLevelsDownRuns) {
  WorkerOptions third;
  third.subs = {{.count = 1}};
  WorkerOptions second;
  second.next_level = {third};
  WorkerOptions options;
  options.next_level = {second};
  Worker deep(options);
  deep.init();
  const TaskFlag flag(deep);
  const CallableId descend = deep.add(task_in_library("descend").as_orchestration());
  deep.run([&](Orchestration& o) {
    o.submit(Call(descend), inout(flag.tensor()), scalar(std::int64_t{1}),
             scalar(number_of_task("nothing")), scalar(std::int64_t{0}), on(deep.any_next()));
  });
  EXPECT_NE(flag.value(), 0);
}

TEST_F(NodeRuns, MembersOfAGroupRunOnTheirLanes) {
  Buffer x = worker_->create_buffer(64);
  const CallableId mark = add("mark_member");
  worker_->run([&](Orchestration& o) {
    const Tensor t = x.tensor(DType::int64, {8});
    const TensorArg arg = no_dep(inout(t));
    std::vector<GroupMember> members;
    for (const LaneId lane : {worker_->sub(0), worker_->chip(1), worker_->sub(1)}) {
      members.push_back({.lane = lane, .body = Call(mark), .tensors = {&arg, 1}});
    }
    o.submit_group({.members = members, .name = "three"});
  });
  EXPECT_EQ(x.as<std::int64_t>()[0], 1);
  EXPECT_EQ(x.as<std::int64_t>()[1], 2);
  EXPECT_EQ(x.as<std::int64_t>()[2], 3);
}

TEST_F(NodeRuns, AFunctionOnAChipIsCalledOnceBesideTheChip) {
  WorkerOptions options;
  options.chips = {{.platform = "a2a3sim"}};
  Worker chip(options);
  chip.init();
  Buffer x = chip.create_buffer(64);
  const CallableId mark = chip.add(task_in_library("mark_member"));
  chip.run([&](Orchestration& o) {
    o.submit(Call(mark), inout(x.tensor(DType::int64, {8})), on(chip.chip(0)));
  });
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(x.as<std::int64_t>()[i], i == 0 ? 1 : 0);
}

TEST_F(NodeRuns, ValuesOfAnyLengthComeBack) {
  for (const std::int64_t bytes : {20, 24, 25, 100, 4096, 65'535, 65'536, 300'000, 5'000'000}) {
    EXPECT_EQ(value_of(*worker_, "return_bytes", on(worker_->any_sub()), bytes),
              text_of(static_cast<std::size_t>(bytes)))
        << bytes;
  }
  EXPECT_EQ(value_of(*worker_, "return_nul", on(worker_->any_chip())), std::string("a\0b", 3));
}

TEST_F(NodeRuns, AFailedTaskAndOneThatReturnsNothingHaveNoValue) {
  const CallableId fails = add("return_and_fail");
  const CallableId nothing = add("nothing");
  TaskId failed;
  TaskId plain;
  const Run run = worker_->submit([&](Orchestration& o) {
    failed = o.submit(Call(fails), on(worker_->any_sub()));
    plain = o.submit(Call(nothing), on(worker_->any_sub()));
  });
  run.wait();
  EXPECT_FALSE(run.value(failed).has_value());
  EXPECT_FALSE(run.value(plain).has_value());
  EXPECT_TRUE(run.values().empty());
}

TEST_F(NodeRuns, ManySmallTasksAllRunOnce) {
  constexpr std::size_t kTasks = 20'000;
  Buffer x = worker_->create_buffer(8 * 64);
  const CallableId increment = add("increment");
  worker_->run([&](Orchestration& o) {
    for (std::size_t i = 0; i < kTasks; ++i) {
      o.submit(Call(increment), inout(x.tensor(DType::int64, {1}, 8 * (i % 64))),
               i % 2 == 0 ? on(worker_->any_sub()) : on(worker_->any_chip()));
    }
  });
  const auto counts = x.as<std::int64_t>();
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
            static_cast<std::int64_t>(kTasks));
}

TEST_F(NodeRuns, TasksWithVeryManyArgumentsArrive) {
  // Far more than fits a slot of the mailbox.
  constexpr std::size_t kTensors = 60;
  Buffer x = worker_->create_buffer(8 * kTensors);
  const CallableId increment = add("increment");
  worker_->run([&](Orchestration& o) {
    for (int round = 0; round < 100; ++round) {
      std::vector<Tensor> tensors;
      for (std::size_t i = 0; i < kTensors; ++i)
        tensors.push_back(x.tensor(DType::int64, {1, 1, 1, 1}, 8 * i));
      std::vector<TensorArg> args;
      for (const Tensor& tensor : tensors)
        args.push_back(inout(tensor));
      std::vector<Scalar> scalars(100, scalar(1));
      TaskSpec spec;
      spec.body = Call(increment);
      spec.target = on(worker_->any_sub());
      spec.tensors = args;
      spec.scalars = scalars;
      o.submit_task(spec);
    }
  });
  EXPECT_EQ(x.as<std::int64_t>()[0], 100);
}

TEST_F(NodeRuns, RunsOfManyThreadsOverlap) {
  constexpr int kThreads = 4;
  constexpr int kRuns = 50;
  Buffer x = worker_->create_buffer(8 * kThreads);
  const CallableId increment = add("increment");
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int r = 0; r < kRuns; ++r) {
        worker_->run([&](Orchestration& o) {
          o.submit(Call(increment), inout(x.tensor(DType::int64, {1}, 8 * i)),
                   on(worker_->any_sub()));
        });
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const std::int64_t value : x.as<std::int64_t>())
    EXPECT_EQ(value, kRuns);
}

TEST_F(NodeRuns, ABodyThatIsNoCallIsRefusedByWorkersWithAReason) {
  // There is no lane of this process: a body of its own for a worker's lane is refused clearly.
  const Run run = worker_->submit([&](Orchestration& o) {
    o.submit([](TaskContext&) {}, on(worker_->any_sub()), named("here"));
  });
  const auto failures = failures_of(run);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_THAT(failures[0].second, HasSubstr("Call"));
}

}  // namespace
}  // namespace strata::test
