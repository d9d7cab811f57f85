// Tasks that are stuck with a lock that everyone needs, or that take all the CPU: the worker still
// answers, and still ends with its parent.

#include "support/node_test.hpp"

namespace strata::test {
namespace {

class NodeStuck : public NodeTest, public testing::WithParamInterface<const char*> {};

std::string name_of_param(const testing::TestParamInfo<const char*>& test) { return test.param; }

// "Tasks stuck while holding malloc's, the loader's or stdio's lock, or spinning at full speed in
// every thread: the worker still answers, and still dies with its parent."
TEST_P(NodeStuck, TheWorkerStillAnswersAndIsEndedByClose) {
  Worker worker(tree_options());
  worker.init();
  const TaskFlag flag(worker);
  const CallableId stuck = worker.add(task_in_library(GetParam()));
  const Run run = worker.submit([&](Orchestration& o) {
    o.submit(Call(stuck), inout(flag.tensor()), on(worker.sub(0)), named("stuck task"));
  });
  ASSERT_TRUE(flag.begun_within(5s)) << with_failure_of(run, [](const WorkerError&) {});
  std::string step;
  EXPECT_TRUE(within(1s,
                     [&] {
                       for (const ProcessStatus& process : worker.processes()) {
                         if (process.path == "node/sub[0]") step = process.step;
                       }
                       return step.find(GetParam()) != std::string::npos ||
                              step.find("stuck task") != step.npos;
                     }))
      << "it says that it does: " << step;
  // Others are not disturbed.
  EXPECT_EQ(value_of(worker, "return_worker", on(worker.sub(1))), "node/sub[1]");
  const Stopwatch watch;
  const auto failed = thrown_by<CloseFailed>([&] { worker.close(500ms); });
  EXPECT_LE(watch.elapsed(), 500ms + bound(1s));
  ASSERT_TRUE(failed);
  EXPECT_THAT(failed->what(), HasSubstr("stuck task"));
}

TEST_P(NodeStuck, TheWorkerDiesWithItsParent) {
  for (const char* place : {"sub0", "chip1", "next0"}) {
    Program root("node_driver",
                 {"init", std::string("submit:") + GetParam() + "@" + place, "pause"});
    ASSERT_TRUE(root.line("pausing", 20s));
    EXPECT_EQ(root.descendants().size(), kTreeProcesses);
    root.signal(SIGKILL);
    EXPECT_TRUE(root.end(1s));
    EXPECT_TRUE(within(1s, [&] { return root.descendants().empty(); }))
        << place << ":\n"
        << to_string(root.descendants());
  }
}

INSTANTIATE_TEST_SUITE_P(All, NodeStuck,
                         testing::Values("hold_malloc", "hold_loader", "hold_stdio",
                                         "spin_everywhere"),
                         name_of_param);

}  // namespace
}  // namespace strata::test
