// What ctest, GoogleTest, pytest and files list becomes jobs that say the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/jobs/pytest_source.hpp"
#include "cli/jobs/sources.hpp"
#include "strata/error.hpp"

namespace strata::cli::jobs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> names_of(const std::vector<Job>& jobs) {
  std::vector<std::string> names;
  for (const Job& job : jobs)
    names.push_back(job.name);
  return names;
}

std::string refusal(const auto& what) {
  try {
    what();
    return "it was taken";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

// ---- ctest --------------------------------------------------------------------------------------

Job ctest_job(const std::string& properties) {
  return jobs_from_ctest(R"({"tests": [{"name": "a", "command": ["/bin/x", "1"], "properties": [)" +
                         properties + "]}]}")
      .at(0);
}

TEST(CtestJobs, EachPropertyIsWhatItMeans) {
  const Job job = ctest_job(R"(
    {"name": "COST", "value": 3.0}, {"name": "DEPENDS", "value": ["b"]},
    {"name": "DISABLED", "value": true}, {"name": "ENVIRONMENT", "value": ["A=1=2", "B="]},
    {"name": "FAIL_REGULAR_EXPRESSION", "value": ["bad"]},
    {"name": "FIXTURES_CLEANUP", "value": ["c"]}, {"name": "FIXTURES_REQUIRED", "value": ["r"]},
    {"name": "FIXTURES_SETUP", "value": ["s"]}, {"name": "LABELS", "value": ["x", "y"]},
    {"name": "PASS_REGULAR_EXPRESSION", "value": ["good", "fine"]},
    {"name": "PROCESSORS", "value": 2}, {"name": "REQUIRED_FILES", "value": ["/f"]},
    {"name": "RESOURCE_LOCK", "value": ["l1", "l2"]}, {"name": "RUN_SERIAL", "value": true},
    {"name": "SKIP_REGULAR_EXPRESSION", "value": ["no"]}, {"name": "SKIP_RETURN_CODE", "value": 77},
    {"name": "TIMEOUT", "value": 5.5}, {"name": "WILL_FAIL", "value": true},
    {"name": "WORKING_DIRECTORY", "value": "/d"}, {"name": "MEASUREMENT", "value": ["m=1"]})");
  EXPECT_EQ(job.name, "a");
  EXPECT_THAT(job.command, ElementsAre("/bin/x", "1"));
  EXPECT_EQ(job.cost, 3);
  EXPECT_THAT(job.after, ElementsAre("b"));
  EXPECT_TRUE(job.disabled);
  EXPECT_THAT(environment_of(job, {"A=0", "C=3"}), ElementsAre("C=3", "A=1=2", "B="));
  EXPECT_THAT(job.expectation.fail, ElementsAre("bad"));
  EXPECT_THAT(job.expectation.pass, ElementsAre("good", "fine"));
  EXPECT_THAT(job.expectation.skip, ElementsAre("no"));
  EXPECT_EQ(job.expectation.skip_code, 77);
  EXPECT_TRUE(job.expectation.will_fail);
  EXPECT_THAT(job.fixtures_cleaned_up, ElementsAre("c"));
  EXPECT_THAT(job.fixtures_required, ElementsAre("r"));
  EXPECT_THAT(job.fixtures_set_up, ElementsAre("s"));
  EXPECT_THAT(job.labels, ElementsAre("x", "y"));
  EXPECT_EQ(job.slots, 2);
  EXPECT_THAT(job.required_files, ElementsAre("/f"));
  EXPECT_THAT(job.locks, ElementsAre("l1", "l2"));
  EXPECT_TRUE(job.alone);
  EXPECT_EQ(job.timeout, 5.5);
  EXPECT_EQ(job.directory, "/d");
  EXPECT_EQ(job.devices, std::nullopt);
}

TEST(CtestJobs, DevicesComeFromResourceGroupsOrALabel) {
  EXPECT_EQ(ctest_job(R"({"name": "LABELS", "value": ["devices=4"]})").devices, 4);
  const Job job = ctest_job(R"({"name": "RESOURCE_GROUPS", "value": [
      {"requirements": [{".type": "devices", "slots": 1}]},
      {"requirements": [{".type": "devices", "slots": 2}, {".type": "licences", "slots": 9}]}]})");
  EXPECT_EQ(job.devices, 3);
  EXPECT_THAT(job.device_groups, ElementsAre(1, 2));
  EXPECT_THAT(refusal([] { ctest_job(R"({"name": "LABELS", "value": ["devices=two"]})"); }),
              HasSubstr("'devices=two'"));
}

TEST(CtestJobs, ModificationsOfTheEnvironmentFollowWhatIsSetWhereverTheyAreListed) {
  const Job job = ctest_job(R"(
    {"name": "ENVIRONMENT_MODIFICATION", "value": ["P=path_list_append:/x:/y", "Q=unset:",
     "S=string_prepend:a", "N=path_list_prepend:/n", "R=set:1", "R=reset:"]},
    {"name": "ENVIRONMENT", "value": ["S=b"]})");
  EXPECT_THAT(environment_of(job, {"P=/p", "Q=1", "R=0"}),
              ElementsAre("P=/p:/x:/y", "S=ab", "N=/n", "R=0"));
}

TEST(CtestJobs, ATestWhoseProgramWasNotFoundHasNoCommand) {
  EXPECT_THAT(jobs_from_ctest(R"({"tests": [{"name": "a"}]})").at(0).command, IsEmpty());
}

TEST(CtestJobs, WhatIsNoListingIsRefused) {
  EXPECT_THAT(refusal([] { (void)jobs_from_ctest("No tests were found!!!"); }),
              HasSubstr("no listing"));
  EXPECT_THAT(refusal([] { (void)jobs_from_ctest("{}"); }), HasSubstr("no listing"));
  EXPECT_THAT(refusal([] { ctest_job(R"({"name": "TIMEOUT", "value": "long"})"); }),
              HasSubstr("no listing"));
}

// ---- GoogleTest ---------------------------------------------------------------------------------

constexpr const char* kListing =
    "Running main() from gtest_main.cc\n"
    "Queue.\n"
    "  IsEmptyAtFirst\n"
    "  DISABLED_IsFast\n"
    "Typed/0.  # TypeParam = int\n"
    "  Works\n"
    "DISABLED_Old.\n"
    "  Case\n"
    "All/Each.\n"
    "  Takes/0  # GetParam() = \"a.b\"\n"
    "  DISABLED_Gives/1  # GetParam() = 4\n";

TEST(GtestJobs, ACaseIsAJobAndDisabledOnesAreKnown) {
  const std::vector<Job> jobs = jobs_from_gtest("/b/unit", kListing, GtestBy::test);
  EXPECT_THAT(names_of(jobs),
              ElementsAre("unit.Queue.IsEmptyAtFirst", "unit.Queue.DISABLED_IsFast",
                          "unit.Typed/0.Works", "unit.DISABLED_Old.Case", "unit.All/Each.Takes/0",
                          "unit.All/Each.DISABLED_Gives/1"));
  std::vector<bool> disabled;
  for (const Job& job : jobs)
    disabled.push_back(job.disabled);
  EXPECT_THAT(disabled, ElementsAre(false, true, false, true, false, true));
  EXPECT_THAT(jobs[0].command, ElementsAre("/b/unit", "--gtest_filter=Queue.IsEmptyAtFirst"));
}

TEST(GtestJobs, ASuiteIsAJob) {
  const std::vector<Job> jobs = jobs_from_gtest("unit", kListing, GtestBy::suite);
  EXPECT_THAT(names_of(jobs),
              ElementsAre("unit.Queue", "unit.Typed/0", "unit.DISABLED_Old", "unit.All/Each"));
  EXPECT_THAT(jobs[0].command, ElementsAre("unit", "--gtest_filter=Queue.*"));
  EXPECT_TRUE(jobs[2].disabled);
  EXPECT_THAT(jobs[0].expectation.skip, IsEmpty()) << "One skipped case is not all of them.";
}

// ---- pytest -------------------------------------------------------------------------------------

constexpr const char* kTests =
    R"({"id": "t/test_a.py::test_x[1-2]", "path": "/r/t/test_a.py", "devices": null}
{"id": "t/test_a.py::TestC::test_y", "path": "/r/t/test_a.py", "devices": 4}
{"id": "t/test_a.py::test_z", "path": "/r/t/test_a.py", "devices": 2}
{"id": "test_b.py::test_w", "path": "/r/test_b.py", "devices": null}
)";

TEST(PytestJobs, ATestIsAJobByItsNodeId) {
  const std::vector<Job> jobs =
      PytestSource({.paths = {}, .python = "py", .by = PytestBy::test}).jobs_from(kTests);
  EXPECT_THAT(names_of(jobs), ElementsAre("t/test_a.py::test_x[1-2]", "t/test_a.py::TestC::test_y",
                                          "t/test_a.py::test_z", "test_b.py::test_w"));
  EXPECT_EQ(jobs[1].command.back(), "/r/t/test_a.py::TestC::test_y");
  EXPECT_EQ(jobs[0].devices, std::nullopt);
  EXPECT_EQ(jobs[1].devices, 4);
}

TEST(PytestJobs, AFileIsAJobAndWantsWhatTheTestWantsThatWantsTheMost) {
  const std::vector<Job> jobs =
      PytestSource({.paths = {}, .python = "py", .by = PytestBy::file}).jobs_from(kTests);
  EXPECT_THAT(names_of(jobs), ElementsAre("t/test_a.py", "test_b.py"));
  EXPECT_EQ(jobs[0].command.back(), "/r/t/test_a.py");
  EXPECT_EQ(jobs[0].devices, 4);
  EXPECT_EQ(jobs[1].devices, std::nullopt);
}

// ---- Files --------------------------------------------------------------------------------------

TEST(FileJobs, AreTheSameAsArrayAsObjectAndByLine) {
  const std::string first = R"({"name": "a", "command": ["x", "{devices}"], "devices": 2})";
  for (const std::string& text :
       {"[" + first + R"(, "echo hi"])", R"({"jobs": [)" + first + R"(, "echo hi"]})",
        first + "\n\n# a remark\n\"echo hi\"\n", first + "\n  echo hi"}) {
    SCOPED_TRACE(text);
    const std::vector<Job> jobs = jobs_from_file_text(text);
    ASSERT_THAT(names_of(jobs), ElementsAre("a", "echo hi"));
    EXPECT_THAT(jobs[0].command, ElementsAre("x", "{devices}"));
    EXPECT_EQ(jobs[0].devices, 2);
    EXPECT_THAT(jobs[1].command, ElementsAre("sh", "-c", "echo hi"));
  }
}

TEST(FileJobs, OneObjectAloneIsAJob) {
  EXPECT_THAT(names_of(jobs_from_file_text(R"({"command": "true"})")), ElementsAre("true"));
}

TEST(FileJobs, EachFieldIsWhatItMeans) {
  const Job job = jobs_from_file_text(R"([{"command": "x", "timeout": 2, "directory": "/d",
      "environment": {"A": "1", "B": null}, "labels": "l", "locks": ["k"], "after": ["y"],
      "alone": true, "disabled": true, "slots": 3, "skip_code": 4, "skip_if": "s", "pass_if": "p",
      "fail_if": ["f"], "will_fail": true}])")
                      .at(0);
  EXPECT_EQ(job.timeout, 2);
  EXPECT_EQ(job.directory, "/d");
  EXPECT_THAT(environment_of(job, {"B=2", "C=3"}), ElementsAre("C=3", "A=1"));
  EXPECT_THAT(job.labels, ElementsAre("l"));
  EXPECT_THAT(job.locks, ElementsAre("k"));
  EXPECT_THAT(job.after, ElementsAre("y"));
  EXPECT_TRUE(job.alone && job.disabled && job.expectation.will_fail);
  EXPECT_EQ(job.slots, 3);
  EXPECT_EQ(job.expectation.skip_code, 4);
  EXPECT_THAT(job.expectation.skip, ElementsAre("s"));
  EXPECT_THAT(job.expectation.pass, ElementsAre("p"));
  EXPECT_THAT(job.expectation.fail, ElementsAre("f"));
}

TEST(FileJobs, WhatMakesNoSenseIsNamed) {
  const auto of = [](const char* text) {
    return refusal([&] { (void)jobs_from_file_text(text); });
  };
  EXPECT_THAT(of(R"([{"command": "x", "device": 1}])"), HasSubstr("no field 'device'"));
  EXPECT_THAT(of(R"([{"name": "x"}])"), HasSubstr("'command'"));
  EXPECT_THAT(of(R"([{"command": []}])"), HasSubstr("no words"));
  EXPECT_THAT(of(R"([{"command": "x", "devices": "two"}])"), HasSubstr("wrong type"));
  EXPECT_THAT(of("true\n{\"command\": \n"), HasSubstr("line 2"));
}

TEST(Jobs, OfOneNameGetNumbers) {
  std::vector<Job> jobs(4);
  jobs[0].name = jobs[1].name = jobs[3].name = "a";
  jobs[2].name = "a (2)";
  make_names_unique(jobs);
  EXPECT_THAT(names_of(jobs), ElementsAre("a", "a (3)", "a (2)", "a (4)"));
}

}  // namespace
}  // namespace strata::cli::jobs
