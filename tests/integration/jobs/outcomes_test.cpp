// `strata test`: what becomes of each kind of job, what is printed and written of it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "job_run.hpp"
#include "support/marked_processes.hpp"
#include "support/nothing_left.hpp"

namespace strata::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

json with(json job, const json& more) {
  job.update(more);
  return job;
}

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size())
    ++count;
  return count;
}

TEST(StrataTest, OutcomesAreThoseOfTheJobsInAllResults) {
  const Tested tested = run_jobs(
      {job("good", "echo fine"), job("bad", "echo oops; exit 3"), job("crash", "kill -SEGV $$"),
       with(job("skips", "exit 77"), {{"skip_code", 77}}),
       with(job("off", "exit 1"), {{"disabled", true}}), job("missing", "exec /no/such/program"),
       json{{"name", "nothing"}, {"command", {"/no/such/program"}}},
       with(job("elsewhere", "true"), {{"directory", "/no/such/folder"}})});
  EXPECT_EQ(tested.result.code(), 1);
  EXPECT_EQ(tested.outcome("good"), "passed");
  EXPECT_EQ(tested.outcome("skips"), "skipped");
  EXPECT_EQ(tested.outcome("off"), "disabled");
  for (const char* const name : {"bad", "crash", "missing", "nothing", "elsewhere"})
    EXPECT_EQ(tested.outcome(name), "failed") << name;
  EXPECT_EQ(tested.attempt("bad").at("exit_code"), 3);
  EXPECT_EQ(tested.attempt("bad").at("output"), "oops\n");
  EXPECT_EQ(tested.attempt("crash").at("signal"), SIGSEGV);
  EXPECT_EQ(tested.attempt("missing").at("exit_code"), 127);
  EXPECT_THAT(tested.job("nothing").at("reason"), HasSubstr("/no/such/program"));
  EXPECT_THAT(tested.job("elsewhere").at("reason"), HasSubstr("/no/such/folder"));
  EXPECT_EQ(tested.json.at("counts").at("failed"), 5);
  EXPECT_EQ(tested.json.at("exit_code"), 1);
  EXPECT_THAT(tested.junit, HasSubstr("tests=\"8\" failures=\"5\" errors=\"0\" skipped=\"2\""));
  EXPECT_EQ(count_of(tested.junit, "<failure"), 5U);
  EXPECT_EQ(count_of(tested.junit, "<skipped"), 2U);
  // What is printed says the same.
  EXPECT_THAT(
      tested.result.out,
      AllOf(HasSubstr("1 passed, 5 failed, 1 skipped, 1 disabled of 8 jobs"),
            HasSubstr("---- FAILED bad ----"), HasSubstr("\noops\n"), Not(HasSubstr("\nfine\n"))));
}

TEST(StrataTest, IsZeroIfAllIsWellAndOutputIsPrintedOnRequest) {
  const Tested tested = run_jobs({job("a", "echo fine; echo also >&2")}, {"--output", "all"});
  EXPECT_EQ(tested.result.code(), 0);
  EXPECT_EQ(tested.attempt("a").at("output"), "fine\nalso\n");
  EXPECT_THAT(tested.result.out, HasSubstr("\nfine\nalso\n---- end"));
  EXPECT_EQ(tested.result.err, "");
}

TEST(StrataTest, WhatMakesNoSenseIs2AndRunsNothing) {
  const TempDir elsewhere;
  const std::string ran = elsewhere.path() / "ran";
  const JobFolder folder(std::vector<json>{job("a", "touch " + ran)});
  const auto code_of = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "test");
    return strata_command(words).code();
  };
  EXPECT_EQ(code_of({}), 2);
  EXPECT_EQ(code_of({"--file", "/no/such/file"}), 2);
  EXPECT_EQ(code_of({"--ctest", folder.path("none")}), 2);
  EXPECT_EQ(code_of({"--gtest", "/bin/false"}), 2);
  EXPECT_EQ(code_of({"--file", folder.jobs_path(), "--devices", "3-1"}), 2);
  EXPECT_EQ(code_of({"--file", folder.jobs_path(), "--timeout", "0"}), 2);
  EXPECT_EQ(code_of({"--file", folder.jobs_path(), "--session-timeout", "nan"}), 2);
  EXPECT_EQ(code_of({"--file", folder.jobs_path(), "-R", "("}), 2);
  EXPECT_EQ(code_of({"--file", folder.jobs_path(), "--rerun-failed"}), 2);
  EXPECT_EQ(code_of({"--file", folder.jobs_path(), "--", "x"}), 2);
  EXPECT_FALSE(std::filesystem::exists(ran));
}

TEST(StrataTest, AnEmptyListOfJobsIsAnError) {
  const JobFolder folder;
  const Program::Result none = strata_command({"test", "--file", folder.jobs_path()});
  EXPECT_EQ(none.code(), 2);
  EXPECT_THAT(none.err, HasSubstr("no jobs"));
  const Tested filtered = run_jobs({job("a", "true")}, {"-R", "b"});
  EXPECT_EQ(filtered.result.code(), 2);
  EXPECT_THAT(filtered.result.err, HasSubstr("none of the 1 jobs matches"));
}

TEST(StrataTest, InputIsEmptyAndTheEnvironmentIsTheJobs) {
  const Tested tested = run_jobs(
      {with(job("a", "cat; echo \"$A-$B-$HOME\"; pwd"),
            {{"environment", {{"A", "1 \"2\""}, {"HOME", nullptr}}}, {"directory", "/usr"}})},
      {"--output", "all"}, {.environment = {"B=b"}});
  EXPECT_EQ(tested.attempt("a").at("output"), "1 \"2\"-b-\n/usr\n");
}

TEST(StrataTest, WhatAJobLeavesBehindIsNamedAndEnded) {
  const Tested tested =
      run_jobs({job("a", "setsid sleep 1001 & env -i sleep 1002 & echo $!")}, {"--output", "all"});
  EXPECT_EQ(tested.result.code(), 0);
  EXPECT_THAT(tested.attempt("a").at("left_behind"), SizeIs(2));
  EXPECT_THAT(tested.result.out, HasSubstr("sleep 1001"));
  EXPECT_TRUE(is_gone(std::stoi(tested.attempt("a").at("output").get<std::string>())));
}

// ---- Retries, the first failure, what failed the last time --------------------------------------

/// Fails at first and passes at the second time.
std::string second_time(const std::string& path) {
  return fmt::format("if [ -e {0} ]; then echo now; else touch {0}; echo not yet; exit 4; fi",
                     path);
}

TEST(StrataTest, RetriesAreRecorded) {
  const TempDir folder;
  const Tested tested = run_jobs(
      {job("flaky", second_time(folder.path() / "f")), job("bad", "exit 5"), job("good", "true")},
      {"--retries", "2"});
  EXPECT_EQ(tested.result.code(), 1);
  EXPECT_EQ(tested.outcome("flaky"), "passed");
  ASSERT_THAT(tested.job("flaky").at("attempts"), SizeIs(2));
  EXPECT_EQ(tested.job("flaky").at("attempts")[0].at("outcome"), "failed");
  EXPECT_EQ(tested.job("flaky").at("attempts")[0].at("output"), "not yet\n");
  EXPECT_THAT(tested.job("bad").at("attempts"), SizeIs(3));
  EXPECT_THAT(tested.job("good").at("attempts"), SizeIs(1));
  EXPECT_THAT(tested.junit, AllOf(HasSubstr("<flakyFailure"), HasSubstr("not yet")));
  EXPECT_EQ(count_of(tested.junit, "<rerunFailure"), 2U);
  EXPECT_THAT(tested.result.out, HasSubstr("passed after failures:\n  flaky (attempt 2)"));
}

TEST(StrataTest, TheFirstFailureEndsAllIfThatIsWanted) {
  const NothingLeft nothing(mark_children());
  const Tested tested = run_jobs(
      {job("runs", "sleep 1003"), job("bad", "exit 1"), job("later", "true"), job("last", "true")},
      {"-x", "-j", "2"});
  EXPECT_EQ(tested.result.code(), 1);
  EXPECT_EQ(tested.outcome("bad"), "failed");
  EXPECT_EQ(tested.outcome("runs"), "ended");
  EXPECT_EQ(tested.outcome("later"), "not run");
  EXPECT_EQ(tested.outcome("last"), "not run");
  EXPECT_THAT(tested.job("last").at("reason"), HasSubstr("'bad'"));
}

TEST(StrataTest, WhatFailedTheLastTimeCanBeRunAlone) {
  const TempDir state;
  const std::string path = state.path() / "state.json";
  const std::vector<json> jobs = {job("a", "true"), job("b", second_time(state.path() / "f")),
                                  job("c", "exit 1")};
  EXPECT_EQ(run_jobs(jobs, {"--state", path}).result.code(), 1);
  const Tested second = run_jobs(jobs, {"--state", path, "--rerun-failed"});
  EXPECT_THAT(second.json.at("jobs"), SizeIs(2));
  EXPECT_EQ(second.outcome("b"), "passed");
  EXPECT_EQ(second.outcome("c"), "failed");
  const Tested third = run_jobs(jobs, {"--state", path, "--rerun-failed"});
  EXPECT_THAT(third.json.at("jobs"), SizeIs(1));
  EXPECT_EQ(third.outcome("c"), "failed");
}

// ---- Devices and order --------------------------------------------------------------------------

TEST(StrataTest, NoTwoJobsHaveADeviceAtTheSameTime) {
  // mkdir is what only one of them can do.
  const TempDir folder;
  std::vector<json> jobs;
  for (int i = 0; i < 24; ++i) {
    jobs.push_back(with(
        job(fmt::format("job {}", i),
            fmt::format("cd {}; for d in $(echo {{devices}} | tr , ' '); do mkdir $d || exit 9; "
                        "done; sleep 0.01; for d in $(echo $STRATA_DEVICES | tr , ' '); do "
                        "rmdir $d || exit 8; done; echo {{devices}}",
                        folder.path().string())),
        {{"devices", 1 + i % 3}}));
  }
  const Tested tested = run_jobs(jobs, {"--devices", "0-3", "-j", "8", "--output", "all"});
  EXPECT_EQ(tested.result.code(), 0) << tested.result.out;
  for (int i = 0; i < 24; ++i) {
    const json& attempt = tested.attempt(fmt::format("job {}", i));
    const auto ids = attempt.at("devices").get<std::vector<int>>();
    EXPECT_THAT(ids, SizeIs(1 + i % 3));
    EXPECT_EQ(attempt.at("output"), fmt::format("{}\n", fmt::join(ids, ",")));
  }
}

TEST(StrataTest, AJobThatWantsMoreDevicesThanThereAreIsNotRunAndTold) {
  const Tested tested =
      run_jobs({with(job("a", "true"), {{"devices", 3}}), job("b", "true")}, {"--devices", "0,1"});
  EXPECT_EQ(tested.result.code(), 1);
  EXPECT_EQ(tested.outcome("a"), "not run");
  EXPECT_THAT(tested.job("a").at("reason"), HasSubstr("needs 3 devices, and there are 2"));
  EXPECT_EQ(tested.outcome("b"), "passed");
}

// ---- What is printed ----------------------------------------------------------------------------

TEST(StrataTest, OutputsOfJobsThatPrintAtOnceAreNeverMixed) {
  std::vector<json> jobs;
  for (int i = 0; i < 5; ++i) {
    jobs.push_back(
        job(fmt::format("job {}", i),
            fmt::format("for i in $(seq 300); do printf 'of {} '; echo line $i >&2; done", i)));
  }
  const Tested tested = run_jobs(jobs, {"-j", "5", "--output", "all"});
  EXPECT_EQ(tested.result.code(), 0);
  for (int i = 0; i < 5; ++i) {
    std::string whole = "\noutput:\n";
    for (int line = 1; line <= 300; ++line)
      whole += fmt::format("of {} line {}\n", i, line);
    EXPECT_THAT(tested.result.out, HasSubstr(whole + "---- end of"));
  }
}

TEST(StrataTest, InGithubActionsGroupsCanBeFoldedAndOutputsGiveNoCommands) {
  const Tested tested = run_jobs({job("bad", "echo '::endgroup::'; echo '::error::no'; exit 1")},
                                 {}, {.environment = {"GITHUB_ACTIONS=true"}});
  const auto lines = lines_of(tested.result.out);
  const auto place = [&](const std::string& beginning) {
    return std::ranges::find_if(lines,
                                [&](const auto& line) { return line.starts_with(beginning); });
  };
  const auto stop = place("::stop-commands::");
  ASSERT_NE(stop, lines.end());
  const std::string resume = "::" + stop->substr(std::string("::stop-commands::").size()) + "::";
  const auto group = place("::group::FAILED bad");
  const auto end = place(resume);
  ASSERT_NE(group, lines.end());
  ASSERT_NE(end, lines.end());
  EXPECT_LT(group, stop);
  const auto from_job = std::ranges::find(lines, "::error::no");
  EXPECT_LT(stop, from_job);
  EXPECT_LT(from_job, end);
  EXPECT_EQ(*std::next(end), "::endgroup::");
  EXPECT_EQ(*std::next(end, 2), "::error::FAILED bad");
}

TEST(StrataTest, ProgressIsShownOnATerminalOnly) {
  const JobFolder folder(std::vector<json>{job("a", "true")});
  EXPECT_THAT(Program(folder.command({})).finish().out, Not(HasSubstr("\x1b")));
  const std::string script = fmt::format("{}", fmt::join(folder.command({}), " "));
  // script(1) gives it a terminal.
  if (std::system("script -qec true /dev/null >/dev/null 2>&1 </dev/null") != 0)
    GTEST_SKIP() << "There is no script(1).";
  EXPECT_THAT(Program({"script", "-qec", script, "/dev/null"}).finish().out,
              AllOf(HasSubstr("\x1b[K[0/1]"), HasSubstr("running: a")));
}

TEST(StrataTest, AResultFileThatCanNotBeWrittenIsToldAndIsAFailure) {
  const JobFolder folder(std::vector<json>{job("a", "true")});
  const Program::Result result =
      strata_command({"test", "--file", folder.jobs_path(), "--junit", "/no/such/folder/x"});
  EXPECT_EQ(result.code(), 1);
  EXPECT_THAT(result.err, HasSubstr("/no/such/folder/x"));
}

// ---- No room ------------------------------------------------------------------------------------

/// `strata test` with these options, which may write files of so many blocks of 512 bytes.
Program::Result with_file_limit(const JobFolder& folder, int blocks,
                                const std::vector<std::string>& options) {
  std::string script = fmt::format("ulimit -f {}; exec", blocks);
  for (const std::string& word : folder.command(options))
    script += " '" + word + "'";
  return Program({"sh", "-c", script}).finish();
}

TEST(StrataTest, AFullDiskUnderOneResultIsToldAndTheOthersAreWritten) {
  const JobFolder folder(std::vector<json>{job("a", "true")});
  const Program::Result result = strata_command({"test", "--file", folder.jobs_path(), "--junit",
                                                 "/dev/full", "--json", folder.path("json")});
  EXPECT_EQ(result.code(), 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("'/dev/full'"), HasSubstr("No space left")));
  EXPECT_EQ(json::parse(folder.read("json")).at("jobs").at(0).at("outcome"), "passed");
}

TEST(StrataTest, AResultForWhichThereIsNoRoomLeavesWhatWasThereAndNothingElse) {
  const JobFolder folder(std::vector<json>{job("a", "exit 1"), job("b", "exit 1"),
                                           job("c", "exit 1"), job("d", "exit 1")});
  folder.write("json", "before");
  const Program::Result result = with_file_limit(folder, 2, {});
  EXPECT_EQ(result.code(), 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr(folder.path("json")), HasSubstr("File too large")));
  EXPECT_EQ(folder.read("json"), "before");
  EXPECT_FALSE(std::filesystem::exists(folder.path("json.new")));
}

TEST(StrataTest, OutputForWhichThereIsNoRoomIsToldAndIsAFailure) {
  const NothingLeft nothing(mark_children());
  const JobFolder folder(
      std::vector<json>{job("a", "exec head -c 1000000 /dev/zero"), job("b", "echo fine")});
  // The environment of the jobs has to fit.
  const Tested tested = results_in(folder, with_file_limit(folder, 200, {"--output", "none"}));
  EXPECT_EQ(tested.result.code(), 1);
  EXPECT_THAT(tested.result.out, HasSubstr("its output could not be kept: File too large"));
  EXPECT_THAT(tested.result.out, HasSubstr("1 passed, 1 failed"));
}

TEST(StrataTest, AReportForWhichThereIsNoRoomIsMissedAndTheHangIsToldAllTheSame) {
  const NothingLeft nothing(mark_children());
  const JobFolder folder(std::vector<json>{
      job("a", "for i in 1 2 3 4 5 6 7 8; do {stuck} fork fork futex & done; wait")});
  const Program::Result result = with_file_limit(folder, 40, {"--timeout", "0.5"});
  EXPECT_EQ(result.code(), 124);
  EXPECT_THAT(result.out, AllOf(HasSubstr("HUNG a pid="), HasSubstr("descendants=["),
                                HasSubstr("the report could not be kept"), HasSubstr("1 hung")));
}

// ---- Sources ------------------------------------------------------------------------------------

TEST(StrataTest, RunsTheTestsOfACtestBuildDirectory) {
  const JobFolder folder;
  folder.write("CTestTestfile.cmake", R"(
add_test(good "sh" "-c" "echo $A; pwd")
set_tests_properties(good PROPERTIES ENVIRONMENT "A=b" WORKING_DIRECTORY "/usr" LABELS "x")
add_test(inverted "sh" "-c" "exit 1")
set_tests_properties(inverted PROPERTIES WILL_FAIL ON)
add_test(skips "sh" "-c" "exit 77")
set_tests_properties(skips PROPERTIES SKIP_RETURN_CODE 77)
add_test(says "sh" "-c" "echo '[  SKIPPED ]'")
set_tests_properties(says PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
add_test(off "sh" "-c" "exit 1")
set_tests_properties(off PROPERTIES DISABLED ON)
add_test(hangs "sh" "-c" "sleep 1004")
set_tests_properties(hangs PROPERTIES TIMEOUT 0.5)
add_test(devices "sh" "-c" "echo $STRATA_DEVICES $CTEST_RESOURCE_GROUP_COUNT \
$CTEST_RESOURCE_GROUP_1 $CTEST_RESOURCE_GROUP_1_DEVICES")
set_tests_properties(devices PROPERTIES RESOURCE_GROUPS "2,devices:1")
)");
  Program::Result result =
      strata_command({"test", "--ctest", folder.path(""), "--json", folder.path("json"), "--grace",
                      "0.3", "--devices", "4-7", "-j1", "--output", "all"});
  const Tested tested = results_in(folder, std::move(result));
  ASSERT_FALSE(tested.json.is_null()) << tested.result.err;
  EXPECT_EQ(tested.result.code(), 124);
  EXPECT_EQ(tested.attempt("good").at("output"), "b\n/usr\n");
  EXPECT_EQ(tested.outcome("inverted"), "passed");
  EXPECT_EQ(tested.outcome("skips"), "skipped");
  EXPECT_EQ(tested.outcome("says"), "skipped");
  EXPECT_EQ(tested.outcome("off"), "disabled");
  EXPECT_EQ(tested.outcome("hangs"), "hung");
  EXPECT_EQ(tested.attempt("devices").at("output"), "4,5 2 devices id:5,slots:1\n");
  // It remembers, as ctest does, in the build directory.
  const Program::Result again = strata_command(
      {"test", "--ctest", folder.path(""), "--rerun-failed", "--list", "--devices", "0"});
  EXPECT_EQ(again.out, "hangs\n");
}

TEST(StrataTest, RunsTheCasesOfAGoogleTestProgram) {
  const JobFolder folder;
  Program::Result result = strata_command(
      {"test", "--gtest", diag_program("gtest_sample"), "--json", folder.path("json")});
  const Tested tested = results_in(folder, std::move(result));
  EXPECT_EQ(tested.result.code(), 1);
  EXPECT_EQ(tested.outcome("gtest_sample.Sample.Passes"), "passed");
  EXPECT_EQ(tested.outcome("gtest_sample.Sample.Fails"), "failed");
  EXPECT_EQ(tested.outcome("gtest_sample.Sample.Skips"), "skipped");
  EXPECT_EQ(tested.outcome("gtest_sample.Sample.DISABLED_Waits"), "disabled");
  EXPECT_EQ(tested.outcome("gtest_sample.Other.Passes"), "passed");
  const Program::Result list = strata_command(
      {"test", "--gtest", diag_program("gtest_sample"), "--gtest-by", "suite", "--list"});
  EXPECT_EQ(list.out, "gtest_sample.Sample\ngtest_sample.Other\n");
}

}  // namespace
}  // namespace strata::test
