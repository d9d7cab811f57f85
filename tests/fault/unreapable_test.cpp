// "A process the kernel won't give back (injected at the reaping call): close ends at its deadline,
// says so, and the reaper finishes later."

#include "base/fault_point.hpp"
#include "node/reaper.hpp"
#include "support/node_test.hpp"

namespace strata::test {
namespace {

class Unreapable : public NodeTest {
 protected:
  void SetUp() override {
    if (!base::kFaultPoints) GTEST_SKIP() << "this build has no fault points";
    // The reaper's thread, which then stays, is no leak.
    wait_denied([] {});
    NodeTest::SetUp();
  }
  void TearDown() override {
    base::set_faults("");
    NodeTest::TearDown();
  }

  /// Closes a Worker whose processes can't be waited for, calls `meanwhile`, and lets them be.
  template <class Meanwhile>
  static std::optional<CloseFailed> wait_denied(Meanwhile&& meanwhile) {
    Worker worker({.chips = {{}}, .subs = {{.count = 2}}});
    worker.init();
    base::set_faults("supervisor.wait=error:11,reaper.wait=error:11");
    const Stopwatch watch;
    auto failed = thrown_by<CloseFailed>([&] { worker.close(300ms); });
    EXPECT_LE(watch.elapsed(), 300ms + bound(1s));
    EXPECT_FALSE(worker.initialised());
    meanwhile();
    base::set_faults("");
    EXPECT_TRUE(within(1s, [] { return node::reaper_backlog() == 0; }));
    return failed;
  }
};

TEST_F(Unreapable, CloseEndsAtItsDeadlineSaysSoAndTheReaperFinishesLater) {
  const auto failed = wait_denied([] { EXPECT_EQ(node::reaper_backlog(), 3u); });
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->faults().size(), 3u) << failed->what();
  for (const char* path : {"node/chip[0]", "node/sub[0]", "node/sub[1]"})
    EXPECT_THAT(failed->what(), HasSubstr(path));
  for (const WorkerFault& fault : failed->faults()) {
    EXPECT_NE(fault.pid, 0);
    EXPECT_THAT(failed->what(), HasSubstr(std::to_string(fault.pid)));
  }
}

TEST_F(Unreapable, TheSameWorkerStartsAgainWhileTheReaperWaits) {
  Worker worker({.subs = {{.count = 2}}});
  worker.init();
  base::set_faults("supervisor.wait=error:11,reaper.wait=error:11");
  thrown_by<CloseFailed>([&] { worker.close(200ms); });
  base::set_faults("reaper.wait=error:11");
  worker.init();
  EXPECT_EQ(value_of(worker, "return_worker", on(worker.sub(1))), "node/sub[1]");
  worker.close();
  EXPECT_EQ(node::reaper_backlog(), 2u);
  base::set_faults("");
  EXPECT_TRUE(within(1s, [] { return node::reaper_backlog() == 0; }));
}

}  // namespace
}  // namespace strata::test
