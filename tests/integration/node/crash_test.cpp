// "A crash in any phase (a null write in a task, in a chip library's init, in a constructor; stack
// overflow; abort) gives the native stack with the crashing function's name, also with `ulimit -c
// 0` and no debugger installed." No debugger is used anywhere; these tests run with a core limit
// of 0.

#include <sys/resource.h>

#include <fstream>

#include "support/node_test.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {
namespace {

bool has_frame(const WorkerFault& fault, const std::string& function) {
  for (const std::string& frame : fault.stack) {
    if (frame.find(function) != std::string::npos) return true;
  }
  return false;
}

class NodeCrash : public NodeTest {
 protected:
  NodeCrash() {
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    ::setrlimit(RLIMIT_CORE, &none);
    ::setenv("STRATA_TEST_SETUP", told_.c_str(), 1);
  }
  ~NodeCrash() override { ::unsetenv("STRATA_TEST_SETUP"); }

  static void expect_crash(const WorkerFault& fault, const std::string& cause,
                           const std::string& function) {
    EXPECT_THAT(fault.cause, HasSubstr(cause)) << fault.to_string();
    EXPECT_TRUE(has_frame(fault, function)) << "no frame of " << function << ":\n"
                                            << fault.to_string();
    EXPECT_THAT(fault.to_string(), HasSubstr(function));
    if (!fault.stack.empty()) {
      // Module, build id or offset: enough to look the frame up elsewhere.
      EXPECT_THAT(fault.to_string(), HasSubstr(".so"));
    }
  }
  void crash_in_task(std::string_view task, const std::string& cause, const std::string& function) {
    Worker worker(tree_options());
    worker.init();
    const CallableId crash = worker.add(task_in_library(task));
    for (const Target place : {on(worker.sub(1)), on(worker.chip(0))}) {
      const Run run =
          worker.submit([&](Orchestration& o) { o.submit(Call(crash), place, named("crasher")); });
      ASSERT_TRUE(run.wait_for(bound(5s)));
      const auto fault = fault_of(run);
      ASSERT_TRUE(fault);
      expect_crash(*fault, cause, function);
      EXPECT_THAT(fault->task, HasSubstr("crasher"));
    }
  }
  void crash_in_setup(WorkerOptions options, const std::string& what, const std::string& cause,
                      const std::string& function) {
    std::ofstream(told_) << what;
    Worker worker(std::move(options));
    const auto failed = thrown_by<StartFailed>([&] { worker.init(); });
    ASSERT_TRUE(failed);
    expect_crash(failed->fault(), cause, function);
  }
  static WorkerOptions chip_with_setup() {
    WorkerOptions options;
    options.chips.emplace_back().setup = task_in_library("setup_as_told");
    return options;
  }

  TempDir folder_;
  std::string told_ = (folder_.path() / "setup").string();
};

TEST_F(NodeCrash, NullWriteInATask) {
  crash_in_task("null_write", "signal 11 (segmentation fault)", "strata_test_null_write");
}
TEST_F(NodeCrash, StackOverflowInATask) {
  crash_in_task("overflow", "signal 11 (segmentation fault)", "strata_test_overflow");
}
TEST_F(NodeCrash, AbortInATask) { crash_in_task("abort_now", "signal 6", "strata_test_abort"); }
TEST_F(NodeCrash, ConstructorOfALibraryThatATaskLoads) {
  crash_in_task("crash_in_library", "signal 11", "strata_test_crash_in_constructor");
}
TEST_F(NodeCrash, NullWriteInTheInitOfAChipsLibrary) {
  crash_in_setup(chip_with_setup(), "segfault", "signal 11", "strata_test_null_write");
}
TEST_F(NodeCrash, StackOverflowInTheInitOfAChipsLibrary) {
  crash_in_setup(chip_with_setup(), "overflow", "signal 11", "strata_test_overflow");
}
TEST_F(NodeCrash, AbortInTheInitOfASubThreeLevelsDown) {
  WorkerOptions third;
  third.subs = {{.count = 1, .setup = task_in_library("setup_as_told")}};
  WorkerOptions second;
  second.next_level = {third};
  WorkerOptions options;
  options.next_level = {second};
  crash_in_setup(options, "abort", "signal 6", "strata_test_abort");
}
TEST_F(NodeCrash, ConstructorOfTheLibraryWithTheSetup) {
  WorkerOptions options;
  options.chips.emplace_back().setup =
      Callable::in_library(test_library("strata_test_constructor_crashes"), "never_reached");
  crash_in_setup(options, "", "signal 11", "strata_test_crash_in_constructor");
}

}  // namespace
}  // namespace strata::test
