// What the end of a job comes to, and what results files say of it.
#include "cli/jobs/result.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/jobs/pattern.hpp"
#include "cli/jobs/report_files.hpp"
#include "cli/jobs/selection.hpp"
#include "strata/error.hpp"
#include "support/temp_dir.hpp"

namespace strata::cli::jobs {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

JobEnd exited(int code, const std::string& output = "") {
  JobEnd end;
  end.status = {.kind = os::ExitStatus::Kind::exited, .value = code};
  end.output = output;
  return end;
}
JobEnd killed(int signal) {
  JobEnd end;
  end.status = {.kind = os::ExitStatus::Kind::signalled, .value = signal};
  return end;
}

TEST(Judge, GoesByTheExitCode) {
  EXPECT_EQ(judge({}, exited(0)).outcome, Outcome::passed);
  const Attempt failed = judge({}, exited(3));
  EXPECT_EQ(failed.outcome, Outcome::failed);
  EXPECT_EQ(failed.reason, "exit code 3");
  EXPECT_THAT(judge({}, killed(SIGSEGV)).reason, HasSubstr("signal 11"));
}

TEST(Judge, SkipsByCodeOrText) {
  EXPECT_EQ(judge({.skip_code = 77}, exited(77)).outcome, Outcome::skipped);
  EXPECT_EQ(judge({.skip_code = 77}, exited(1)).outcome, Outcome::failed);
  EXPECT_EQ(judge({.skip = {"\\[  SKIPPED \\]"}}, exited(0, "x [  SKIPPED ] y")).outcome,
            Outcome::skipped);
}

TEST(Judge, ATextThatMustBeThereDecidesInPlaceOfTheExitCode) {
  const Expectation good{.pass = {"all well", "fine"}};
  EXPECT_EQ(judge(good, exited(3, "fine")).outcome, Outcome::passed);
  EXPECT_EQ(judge(good, exited(0, "?")).outcome, Outcome::failed);
  EXPECT_EQ(judge(good, killed(SIGABRT)).outcome, Outcome::failed);
}

TEST(Judge, ATextThatMustNotBeThereFails) {
  const Attempt attempt = judge({.fail = {"race"}}, exited(0, "data race"));
  EXPECT_EQ(attempt.outcome, Outcome::failed);
  EXPECT_THAT(attempt.reason, HasSubstr("'race'"));
}

TEST(Judge, WhatShouldFailPassesByFailingButNotByCrashingOrHanging) {
  const Expectation fails{.will_fail = true};
  EXPECT_EQ(judge(fails, exited(1)).outcome, Outcome::passed);
  EXPECT_EQ(judge(fails, exited(0)).outcome, Outcome::failed);
  EXPECT_EQ(judge(fails, killed(SIGSEGV)).outcome, Outcome::failed);
  JobEnd hung;
  hung.cause = JobEnd::Cause::timeout;
  EXPECT_EQ(judge(fails, std::move(hung)).outcome, Outcome::hung);
}

TEST(JobPattern, IsCmakesAndTakesAnyBytesOfAnyNumber) {
  EXPECT_TRUE(Pattern("^a.*z$").matches("a\n" + std::string(1 << 20, 'x') + "z"));
  EXPECT_TRUE(Pattern("b").matches(std::string("a\0b", 3)));
  EXPECT_TRUE(Pattern("{x}").matches("a{x}b")) << "Braces are characters for CMake.";
  EXPECT_TRUE(Pattern("[{]|[]{]").matches("{"));
  EXPECT_TRUE(Pattern("\\{").matches("{"));
  EXPECT_FALSE(Pattern("^b").matches("a\nb")) << "Only at the very beginning.";
  EXPECT_THROW(Pattern{"("}, InvalidArgument);
}

TEST(SessionExitCode, IsThatOfTheWorst) {
  SessionResult result;
  const auto code_of = [&](std::initializer_list<Outcome> outcomes) {
    result.jobs.clear();
    for (const Outcome outcome : outcomes)
      result.jobs.push_back({.outcome = outcome, .reason = "", .attempts = {}});
    return result.exit_code();
  };
  EXPECT_EQ(code_of({Outcome::passed, Outcome::skipped, Outcome::disabled}), 0);
  EXPECT_EQ(code_of({Outcome::passed, Outcome::failed}), 1);
  EXPECT_EQ(code_of({Outcome::not_run}), 1);
  EXPECT_EQ(code_of({Outcome::ended}), 1);
  EXPECT_EQ(code_of({Outcome::failed, Outcome::hung}), 124);
  result.signal = SIGINT;
  EXPECT_EQ(result.exit_code(), 130);
}

TEST(XmlText, IsAllowedInXmlWhateverTheBytes) {
  EXPECT_EQ(xml_text("a<b>&\"c\"\t\n"), "a&lt;b&gt;&amp;&quot;c&quot;\t\n");
  EXPECT_EQ(xml_text("\x1b[31m"), "\xef\xbf\xbd[31m");
  EXPECT_EQ(xml_text(std::string("\0", 1)), "\xef\xbf\xbd");
  EXPECT_EQ(xml_text("\xc3\xa4 \xf0\x9f\x98\x80"), "\xc3\xa4 \xf0\x9f\x98\x80");
  EXPECT_EQ(xml_text("\xc3("), "\xef\xbf\xbd(");
  EXPECT_EQ(xml_text("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd") << "A surrogate.";
  EXPECT_EQ(xml_text("\xc0\x80"), "\xef\xbf\xbd\xef\xbf\xbd") << "Longer than it need be.";
  EXPECT_EQ(xml_text("\xf0\x9f"), "\xef\xbf\xbd\xef\xbf\xbd") << "The end is missing.";
}

class Results : public ::testing::Test {
 protected:
  Results() {
    add("u.S.good", {judge({}, exited(0, "fine"))});
    add("u.S.bad", {judge({}, exited(1, "<oops>")), judge({}, exited(2, "again"))});
    add("u.S.flaky", {judge({}, exited(1)), judge({}, exited(0))});
    JobEnd hung;
    hung.cause = JobEnd::Cause::timeout;
    hung.pid = 5;
    hung.descendants = {6, 7};
    hung.report = "it waits";
    hung.report_json = R"({"verdict": ["it waits"]})";
    add("t/a.py::test_h", {judge({}, hung)});
    add("off", {}, Outcome::disabled);
    add("late", {}, Outcome::not_run);
    result_.jobs.back().reason = "why";
  }
  void add(const std::string& name, std::vector<Attempt> attempts,
           Outcome outcome = Outcome::passed) {
    Job job;
    job.name = name;
    jobs_.push_back(job);
    JobResult result{.outcome = outcome, .reason = "", .attempts = std::move(attempts)};
    if (!result.attempts.empty()) {
      result.outcome = result.attempts.back().outcome;
      result.reason = result.attempts.back().reason;
    }
    result_.jobs.push_back(std::move(result));
  }
  std::vector<Job> jobs_;
  SessionResult result_;
};

TEST_F(Results, InJsonHaveEachAttempt) {
  const auto json = nlohmann::json::parse(json_text(jobs_, result_));
  EXPECT_EQ(json.at("exit_code"), 124);
  EXPECT_EQ(json.at("counts").at("passed"), 2);
  EXPECT_EQ(json.at("counts").at("not run"), 1);
  const auto& bad = json.at("jobs").at(1);
  EXPECT_EQ(bad.at("outcome"), "failed");
  EXPECT_EQ(bad.at("attempts").at(0).at("output"), "<oops>");
  EXPECT_EQ(bad.at("attempts").at(1).at("exit_code"), 2);
  const auto& hung = json.at("jobs").at(3).at("attempts").at(0);
  EXPECT_EQ(hung.at("pid"), 5);
  EXPECT_THAT(hung.at("descendants"), ElementsAre(6, 7));
  EXPECT_EQ(hung.at("report").at("verdict").at(0), "it waits");
  EXPECT_EQ(json.at("jobs").at(5).at("reason"), "why");
}

TEST_F(Results, InXmlHaveTheSame) {
  const std::string xml = junit_text(jobs_, result_);
  EXPECT_THAT(xml, HasSubstr("<testsuites tests=\"6\" failures=\"1\" errors=\"2\" skipped=\"1\""));
  EXPECT_THAT(xml, HasSubstr("classname=\"u.S\" name=\"good\""));
  EXPECT_THAT(xml, HasSubstr("classname=\"t/a.py\" name=\"test_h\""));
  EXPECT_THAT(xml, AllOf(HasSubstr("<failure type=\"failed\" message=\"exit code 2\">"),
                         HasSubstr("<rerunFailure type=\"failed\" message=\"exit code 1\">"),
                         HasSubstr("<flakyFailure type=\"failed\" message=\"exit code 1\">"),
                         HasSubstr("&lt;oops&gt;"), Not(HasSubstr("<oops>"))));
  EXPECT_THAT(xml, HasSubstr("<error type=\"hung\""));
  EXPECT_THAT(xml, HasSubstr("<skipped type=\"disabled\""));
  EXPECT_THAT(xml, HasSubstr("<error type=\"not run\" message=\"why\"/>"));
}

TEST_F(Results, AreRememberedUntilAJobIsGood) {
  const test::TempDir folder;
  const std::string path = folder.path() / "state.json";
  EXPECT_FALSE(Memory::read(path));
  Memory memory;
  memory.failed = {"elsewhere", "off"};
  memory.add(jobs_, result_);
  memory.write(path);
  const auto read = Memory::read(path);
  ASSERT_TRUE(read);
  EXPECT_THAT(read->failed, ElementsAre("elsewhere", "late", "t/a.py::test_h", "u.S.bad"));
  EXPECT_THAT(read->seconds, testing::Contains(Pair("u.S.good", 0.0)));
}

}  // namespace
}  // namespace strata::cli::jobs
