// Calls of the operating system that fail while a Worker starts: no descriptors, no memory, no
// processes. A clear error, nothing left, and the same Worker starts once it is better.

#include <algorithm>

#include "base/fault_point.hpp"
#include "support/node_test.hpp"

namespace strata::test {
namespace {

class SystemFailures : public NodeTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (!base::kFaultPoints) GTEST_SKIP() << "this build has no fault points";
    NodeTest::SetUp();
  }
  void TearDown() override {
    base::set_faults("");
    NodeTest::TearDown();
  }
};

// As SQLite's tests do: the first call fails, then the second, ..., until a start meets no fault.
TEST_P(SystemFailures, EveryCallInAStartMayFailOnce) {
  Worker worker({.chips = {{}}, .subs = {{.count = 2}}});
  const std::string point = GetParam();
  int round = 1;
  for (; round < 200; ++round) {
    SCOPED_TRACE(point + " fails in call " + std::to_string(round));
    base::set_faults(point + "=@" + std::to_string(round) + ":error:12");
    try {
      worker.init();
      EXPECT_EQ(value_of(worker, "return_worker", on(worker.sub(1))), "node/sub[1]");
      worker.close();
      if (base::fault_point_hits(point) < static_cast<std::uint64_t>(round)) break;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("memory")) << "the reason is named";  // ENOMEM
      worker.close();
    }
    EXPECT_TRUE(within(1s, [] { return marked_processes(mark_children()).empty(); }));
  }
  EXPECT_LT(round, 200);
  EXPECT_GT(round, 1) << "the point was never passed";
}

INSTANTIATE_TEST_SUITE_P(All, SystemFailures,
                         testing::Values("os.memfd", "os.mapping", "os.spawn", "os.epoll.add"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::test
