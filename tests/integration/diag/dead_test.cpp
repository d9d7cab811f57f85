// What a report says of workers that have died while the program goes on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "diag_run.hpp"
#include "support/time_bounds.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<std::string> deaths(int workers, int count) {
  return {diag_program("pool_program"), "deaths", std::to_string(workers), std::to_string(count)};
}

TEST(DeadWorker, IsToldWithItsEndItsTaskAndItsLastEvents) {
  Program program(deaths(2, 1));
  program.wait_for_output("ready");
  const nlohmann::json report = dump_of(program.pid(), {"--last", "100"});
  ASSERT_THAT(report.at("dead"), SizeIs(1));
  const auto& dead = report.at("dead")[0];
  EXPECT_EQ(dead.at("parent"), program.pid());
  EXPECT_EQ(dead.at("ended"), "exited with status 7");
  EXPECT_GE(dead.at("ended_ago_s"), 0);
  EXPECT_TRUE(is_gone(dead.at("pid")));
  EXPECT_EQ(dead.at("strata").at("path"), "pools/sub[0]");
  EXPECT_EQ(dead.at("strata").at("role"), "sub worker");
  EXPECT_EQ(dead.at("strata").at("task").at("name"), "falls");
  std::vector<std::string> kinds;
  for (const auto& event : dead.at("strata").at("events")) {
    kinds.push_back(event.at("kind"));
    EXPECT_GE(event.at("ago_s"), dead.at("ended_ago_s"));
  }
  EXPECT_THAT(kinds, AllOf(Contains("state_transition"), Contains("task_start")));
  // The living are told as ever, and the one in its place is another.
  EXPECT_NE(at_path(report, "pools/sub[1]").at("pid"), dead.at("pid"));
  for (const auto& process : report.at("processes"))
    EXPECT_NE(process.at("pid"), dead.at("pid"));
}

TEST(DeadWorker, IsAnEntryOfItsOwnInTheText) {
  Program program(deaths(1, 1));
  program.wait_for_output("ready");
  const std::string text = strata_command({"dump", std::to_string(program.pid())}).out;
  const auto dead = dump_of(program.pid()).at("dead").at(0);
  const std::size_t at =
      text.find(fmt::format("---- pid {}, dead ---- pools/sub[0]", dead.at("pid").get<int>()));
  ASSERT_NE(at, std::string::npos) << text;
  const std::string block = text.substr(at);
  EXPECT_THAT(block,
              AllOf(HasSubstr(fmt::format("child of {}: exited with status 7, ", program.pid())),
                    HasSubstr("(sub worker)"), HasSubstr("when it ended"),
                    HasSubstr("task in hand: "), HasSubstr("'falls'"), HasSubstr("before: ")));
}

TEST(DeadWorker, HasAsManyEventsAsAreAskedFor) {
  Program program(deaths(1, 1));
  program.wait_for_output("ready");
  const auto events = [&](const char* last) {
    return dump_of(program.pid(), {"--last", last}).at("dead").at(0).at("strata").at("events");
  };
  EXPECT_THAT(events("2"), SizeIs(2));
  EXPECT_THAT(events("0"), IsEmpty());
}

TEST(DeadWorker, TheLastSixteenAreKeptInTheOrderInWhichTheyDied) {
  constexpr int kWorkers = 6;
  Program program(deaths(kWorkers, 18));
  program.wait_for_output("ready");
  const nlohmann::json report = dump_of(program.pid());
  ASSERT_THAT(report.at("dead"), SizeIs(16));
  std::set<int> pids;
  for (int i = 0; i < 16; ++i) {
    const auto& dead = report.at("dead")[static_cast<std::size_t>(i)];
    pids.insert(dead.at("pid").get<int>());
    EXPECT_EQ(dead.at("strata").at("path"), fmt::format("pools/sub[{}]", (i + 2) % kWorkers));
  }
  EXPECT_THAT(pids, SizeIs(16));
}

TEST(DeadWorker, ThatIsNotYetBuriedIsTheZombieWithItsRecord) {
  Program program(deaths(1, 0));
  program.wait_for_output("ready");
  const auto worker = at_path(dump_of(program.pid()), "pools/sub[0]");
  ASSERT_TRUE(worker.is_object());
  const pid_t pid = worker.at("pid");
  program.send(SIGSTOP);
  ASSERT_TRUE(within(std::chrono::seconds(5), [&] {
    const auto info = os::read_process(program.pid());
    return info && info->state == 'T';
  }));
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  ASSERT_TRUE(within(std::chrono::seconds(5), [&] {
    const auto info = os::read_process(pid);
    return info && info->state == 'Z';
  }));
  const nlohmann::json report = dump_of(program.pid());
  program.send(SIGCONT);
  EXPECT_THAT(report.at("dead"), IsEmpty());
  const auto dead = at_path(report, "pools/sub[0]");
  ASSERT_TRUE(dead.is_object());
  EXPECT_EQ(dead.at("pid"), pid);
  EXPECT_EQ(dead.at("ended"), "killed by signal 9 (killed)");
}

}  // namespace
}  // namespace strata::test
