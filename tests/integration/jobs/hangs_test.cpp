// `strata test`: jobs that hang, in each way, and what is left of them: nothing.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "job_run.hpp"
#include "support/marked_processes.hpp"
#include "support/nothing_left.hpp"
#include "support/time_bounds.hpp"

namespace strata::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr int kTimedOut = 124;

const std::vector<std::string> kSoon = {"--timeout", "0.5"};

/// Job "a" hung, its report has the function, its header names all, and all are gone.
void expect_explained(const Tested& tested, const std::string& function, std::size_t descendants) {
  EXPECT_EQ(tested.result.code(), kTimedOut);
  EXPECT_EQ(tested.outcome("a"), "hung");
  const json& attempt = tested.attempt("a");
  const auto below = attempt.at("descendants").get<std::vector<int>>();
  EXPECT_THAT(below, SizeIs(descendants));
  EXPECT_THAT(all_functions(attempt.at("report")), Contains(function));
  EXPECT_THAT(tested.result.out,
              AllOf(HasSubstr(fmt::format("HUNG a pid={} descendants=[{}] after=",
                                          attempt.at("pid").get<int>(), fmt::join(below, ", "))),
                    HasSubstr(function)));
  EXPECT_THAT(tested.junit, AllOf(HasSubstr("<error type=\"hung\""), HasSubstr(function)));
  EXPECT_TRUE(is_gone(attempt.at("pid")));
  for (const int pid : below)
    EXPECT_TRUE(is_gone(pid));
}

json stuck_job(const std::vector<std::string>& steps) {
  std::vector<std::string> words = {"{stuck}"};
  words.insert(words.end(), steps.begin(), steps.end());
  return {{"name", "a"}, {"command", words}};
}

struct Kind {
  const char* step;
  const char* function;
};
constexpr Kind kKinds[] = {{"futex", "stuck_on_a_futex"},
                           {"spin", "stuck_in_a_spin"},
                           {"sleep", "stuck_in_a_sleep"},
                           {"read", "stuck_in_a_read"}};

TEST(StrataTestHang, AGrandchildForkedTwoDeepIsExplained) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.step);
    expect_explained(run_jobs({stuck_job({"fork", "fork", kind.step})}, kSoon), kind.function, 2);
  }
}

TEST(StrataTestHang, AGrandchildWithoutAParentInASessionOfItsOwnIsExplained) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.step);
    expect_explained(run_jobs({stuck_job({"daemon", kind.step})}, kSoon), kind.function, 1);
  }
}

TEST(StrataTestHang, ThoseThatHangTogetherAreEachExplainedByWhatIsTheirs) {
  // Orphans of both lose their parents at the same time.
  std::vector<json> jobs;
  for (const Kind& kind : kKinds) {
    json one = stuck_job({"daemon", kind.step});
    one["name"] = kind.function;
    jobs.push_back(std::move(one));
  }
  const Tested tested = run_jobs(jobs, {"--timeout", "1", "-j", "4"});
  EXPECT_EQ(tested.result.code(), kTimedOut);
  for (const Kind& kind : kKinds) {
    const json& report = tested.attempt(kind.function).at("report");
    EXPECT_THAT(report.at("processes"), SizeIs(2));
    for (const Kind& other : kKinds) {
      const bool own = std::string(other.function) == kind.function;
      EXPECT_EQ(std::ranges::count(all_functions(report), other.function), own ? 1 : 0);
    }
  }
}

TEST(StrataTestHang, AJobThatIgnoresSigtermIsEnded) {
  expect_explained(run_jobs({stuck_job({"ignore", "fork", "futex"})}, kSoon), "stuck_on_a_futex",
                   1);
}

TEST(StrataTestHang, AStoppedJobIsExplainedAndEnded) {
  const Tested tested = run_jobs({stuck_job({"fork", "ignore", "stop"})}, kSoon);
  expect_explained(tested, "main", 1);
  EXPECT_THAT(verdict_of(tested.attempt("a").at("report")), HasSubstr("is stopped by a signal"));
}

TEST(StrataTestHang, AJobThatStopsItsSupervisorIsExplainedAndEndedAllTheSame) {
  const NothingLeft nothing(mark_children());
  const Tested tested =
      run_jobs({job("a", "kill -STOP $PPID; exec {stuck} fork futex"), job("b", "true")}, kSoon);
  expect_explained(tested, "stuck_on_a_futex", 1);
  EXPECT_EQ(tested.outcome("b"), "passed");
}

TEST(StrataTestHang, AJobWhoseSupervisorIsStoppedAgainAndAgainIsExplainedAndEndedFromOutside) {
  const NothingLeft nothing(mark_children());
  const Tested tested = run_jobs({job("a", "while :; do kill -STOP $PPID; done"), job("b", "true")},
                                 {"--timeout", "0.3", "--patience", "0.5"});
  EXPECT_EQ(tested.result.code(), kTimedOut);
  EXPECT_EQ(tested.outcome("a"), "hung");
  EXPECT_THAT(tested.job("a").at("reason"), HasSubstr("its supervisor did not end it"));
  EXPECT_THAT(tested.attempt("a").at("descendants"), SizeIs(1));
  EXPECT_THAT(verdict_of(tested.attempt("a").at("report")), HasSubstr("is stopped by a signal"));
  EXPECT_EQ(tested.outcome("b"), "passed");
}

TEST(StrataTestHang, NoLineUpToTheTimeOutIsLost) {
  const Tested tested = run_jobs({stuck_job({"fork", "count"})}, kSoon);
  EXPECT_EQ(tested.outcome("a"), "hung");
  const std::string output = tested.attempt("a").at("output");
  std::size_t count = 0;
  for (const std::string& line : lines_of(output))
    ASSERT_EQ(line, fmt::format("line {}", count++));
  EXPECT_GT(count, 100U);
  EXPECT_THAT(tested.result.out, HasSubstr(output)) << "The same is printed, in one piece.";
  EXPECT_THAT(tested.junit, HasSubstr(output));
}

TEST(StrataTestHang, ManyThatPrintAtOnceAreNotMixedIntoTheReport) {
  const Tested tested =
      run_jobs({job("a", "for i in 1 2 3 4 5; do {stuck} flood & done; wait")}, kSoon);
  EXPECT_EQ(tested.outcome("a"), "hung");
  EXPECT_THAT(tested.attempt("a").at("descendants"), SizeIs(5));
  const std::size_t begin = tested.result.out.find("HUNG a pid=");
  const std::size_t output = tested.result.out.find("\noutput:\n", begin);
  ASSERT_NE(output, std::string::npos);
  EXPECT_THAT(tested.result.out.substr(begin, output - begin), Not(HasSubstr("\nflood of")));
}

TEST(StrataTestHang, AHangThatPassesAtTheNextAttemptIsRecorded) {
  const TempDir folder;
  const std::string path = folder.path() / "f";
  const Tested tested =
      run_jobs({job("a", fmt::format("[ -e {0} ] || {{ touch {0}; sleep 1005; }}", path))},
               {"--timeout", "0.5", "--retries", "1"});
  EXPECT_EQ(tested.result.code(), 0);
  EXPECT_EQ(tested.job("a").at("attempts")[0].at("outcome"), "hung");
  EXPECT_EQ(tested.outcome("a"), "passed");
  EXPECT_THAT(tested.junit, HasSubstr("<flakyFailure type=\"hung\""));
}

TEST(StrataTestHang, TheTimeOutOfTheSessionEndsAllAndExplainsIt) {
  const Tested tested = run_jobs({stuck_job({"fork", "futex"}), job("b", "true")},
                                 {"--session-timeout", "0.5", "-j", "1"});
  expect_explained(tested, "stuck_on_a_futex", 1);
  EXPECT_TRUE(tested.json.at("timed_out"));
  EXPECT_EQ(tested.outcome("b"), "not run");
}

// ---- The end of `strata test` itself ------------------------------------------------------------

TEST(StrataTestEnd, ASignalEndsAllAndTheResultsAreWritten) {
  for (const int signal : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(signal);
    const NothingLeft nothing(mark_children());
    const TempDir marks;
    const std::string path = marks.path() / "ready";
    const JobFolder folder(
        {job("a", fmt::format("touch {}; {{stuck}} daemon futex", path)), job("b", "true")});
    Program program(folder.command({"-j", "1"}));
    ASSERT_TRUE(within(std::chrono::seconds(5), [&] { return std::filesystem::exists(path); }));
    program.send(signal);
    const Tested tested = results_in(folder, program.finish());
    EXPECT_EQ(tested.result.code(), 128 + signal);
    EXPECT_EQ(tested.json.at("signal"), signal);
    EXPECT_EQ(tested.outcome("a"), "ended");
    EXPECT_EQ(tested.outcome("b"), "not run");
    // Whoever sends SIGTERM may wonder what it was doing.
    EXPECT_EQ(tested.attempt("a").at("report").is_null(), signal == SIGINT);
  }
}

TEST(StrataTestEnd, SigkillOfItLeavesNothing) {
  const std::string mark = mark_children();
  const TempDir marks;
  const std::string path = marks.path() / "ready";
  const JobFolder folder({job("a", fmt::format("touch {}; {{stuck}} ignore daemon futex", path)),
                          job("b", "setsid sh -c 'trap \"\" TERM; sleep 1006 & sleep 1007'")});
  Program program(folder.command({"-j", "2"}));
  ASSERT_TRUE(within(std::chrono::seconds(5), [&] { return std::filesystem::exists(path); }));
  program.send(SIGKILL);
  (void)program.finish();
  EXPECT_TRUE(within(std::chrono::seconds(2), [&] { return marked_processes(mark).empty(); }))
      << to_string(marked_processes(mark));
}

TEST(StrataTestEnd, AJobThatKillsItsSupervisorFailsAndIsEndedAndOthersAreLeftAlone) {
  const NothingLeft nothing(mark_children());
  const Tested tested = run_jobs({job("a", "sleep 1008 & kill -9 $PPID; sleep 1009"),
                                  job("b", "sh -c 'setsid sleep 1 & wait'; echo done")},
                                 {"-j", "2", "--output", "all"});
  EXPECT_EQ(tested.result.code(), 1);
  EXPECT_EQ(tested.outcome("a"), "failed");
  EXPECT_THAT(tested.job("a").at("reason"), HasSubstr("signal 9"));
  EXPECT_EQ(tested.attempt("b").at("output"), "done\n");
}

TEST(StrataTestEnd, AJobThatKillsItsProcessGroupKillsNobodyElse) {
  const Tested tested =
      run_jobs({job("a", "kill -9 0"), job("b", "sleep 0.2; echo done")}, {"--output", "all"});
  EXPECT_EQ(tested.attempt("a").at("signal"), SIGKILL);
  EXPECT_EQ(tested.attempt("b").at("output"), "done\n");
}

// ---- pytest -------------------------------------------------------------------------------------

/// The first Python that has pytest; "" if none has. A package of the distribution is there for the
/// distribution's Python only, and another may come first in PATH.
std::string python_with_pytest() {
  for (const char* const python : {"python3", "/usr/bin/python3"}) {
    const std::string command = std::string(python) + " -c 'import pytest' 2>/dev/null";
    if (std::system(command.c_str()) == 0) return python;
  }
  return "";
}

class StrataTestPytest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(python_, "") << "There is no pytest: ./dev installs it (Debian: python3-pytest).";
    folder_.write("pytest.ini", "[pytest]\n");  // So that ids are relative to this folder.
    folder_.write("test_sample.py", R"(
import os
import time

import pytest

def test_passes():
    print("fine")

@pytest.mark.skip(reason="not here")
def test_skips():
    pass

def test_fails():
    assert 1 == 2

@pytest.mark.devices(2)
def test_devices():
    assert os.environ["STRATA_DEVICES"] == "4,5"

def stuck_in_python():
    time.sleep(1000)

def test_hangs():
    print("before it hangs")
    if os.fork() == 0:
        stuck_in_python()
    os.wait()
)");
  }
  Tested run(const std::vector<std::string>& options) {
    std::vector<std::string> words = {"test",
                                      "--pytest",
                                      folder_.path("test_sample.py"),
                                      "--python",
                                      python_,
                                      "--json",
                                      folder_.path("json"),
                                      "--junit",
                                      folder_.path("junit"),
                                      "--grace",
                                      "0.3"};
    words.insert(words.end(), options.begin(), options.end());
    return results_in(
        folder_, strata_command(words, {.environment = {"PYTHONDONTWRITEBYTECODE=1",
                                                        "PYTEST_ADDOPTS=-p no:cacheprovider"}}));
  }
  const std::string python_ = python_with_pytest();
  JobFolder folder_;
};

TEST_F(StrataTestPytest, ATestIsAJobWithItsDevices) {
  const Tested tested = run({"--pytest-by", "test", "-E", "hangs", "--devices", "4-5", "-j", "2"});
  ASSERT_FALSE(tested.json.is_null()) << tested.result.err;
  EXPECT_EQ(tested.result.code(), 1);
  EXPECT_EQ(tested.outcome("test_sample.py::test_passes"), "passed");
  EXPECT_EQ(tested.outcome("test_sample.py::test_skips"), "skipped");
  EXPECT_EQ(tested.outcome("test_sample.py::test_fails"), "failed");
  EXPECT_EQ(tested.outcome("test_sample.py::test_devices"), "passed");
  EXPECT_THAT(tested.attempt("test_sample.py::test_devices").at("devices"),
              testing::ElementsAre(4, 5));
}

TEST_F(StrataTestPytest, AForkedProcessThatHangsUnderCaptureIsExplained) {
  const Tested tested = run({"--pytest-by", "test", "-R", "hangs", "--timeout", "5"});
  ASSERT_FALSE(tested.json.is_null()) << tested.result.err;
  EXPECT_EQ(tested.result.code(), kTimedOut);
  const json& attempt = tested.attempt("test_sample.py::test_hangs");
  EXPECT_THAT(attempt.at("descendants"), SizeIs(1));
  EXPECT_THAT(verdict_of(attempt.at("report")), HasSubstr("stuck_in_python"));
  EXPECT_THAT(tested.result.out, HasSubstr("stuck_in_python"));
}

TEST_F(StrataTestPytest, AFileIsAJob) {
  const Tested tested = run({"--timeout", "5", "--devices", "4-5"});
  ASSERT_FALSE(tested.json.is_null()) << tested.result.err;
  EXPECT_EQ(tested.outcome("test_sample.py"), "hung");
}

}  // namespace
}  // namespace strata::test
