// Reports of Strata programs: who is who in the tree, the task in hand, the last events, and what a
// worker that crashed says.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "diag_run.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(StrataTreeReport, TheHangingTaskItsWorkerAndItsFunctionAreNamed) {
  // A stdin that stays open, or the program would end.
  const Executed executed = execute({"--timeout", "3", "--grace", "1"},
                                    {"sh", "-c", "sleep 1000 | \"$0\" hang", STRATA_TREE_PROGRAM});
  EXPECT_EQ(executed.result.code(), 124);
  ASSERT_FALSE(executed.report.is_null());
  const auto worker = at_path(executed.report, "tree/sub[0]");
  ASSERT_TRUE(worker.is_object()) << executed.result.err;
  EXPECT_EQ(worker.at("strata").at("role"), "sub worker");
  EXPECT_EQ(worker.at("strata").at("task").at("name"), "never ends");
  EXPECT_THAT(functions_of(worker), Contains(HasSubstr("pause")));
  std::vector<std::string> kinds;
  for (const auto& event : worker.at("strata").at("events"))
    kinds.push_back(event.at("kind"));
  EXPECT_THAT(kinds, Contains("task_start"));
  EXPECT_THAT(verdict_of(executed.report),
              AllOf(HasSubstr("tree/sub[0]"), HasSubstr("'never ends' in hand for"),
                    HasSubstr("tree_program.cpp:"), Not(HasSubstr("strata::"))));
  EXPECT_EQ(worker.at("strata").at("state"), "running");
  EXPECT_TRUE(at_path(executed.report, "tree").is_object());
  EXPECT_TRUE(at_path(executed.report, "tree/next[0]/sub[0]").is_object());
  EXPECT_THAT(executed.result.err, HasSubstr("task in hand:"));
  for (const int pid : executed.pids)
    EXPECT_TRUE(is_gone(pid));
}

}  // namespace
}  // namespace strata::test
