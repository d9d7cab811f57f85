// `strata doctor` and the command line as a whole.
#include <gmock/gmock.h>
#include <sched.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "strata_command.hpp"

namespace strata::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

/// What it says of one subject when a shell has set a limit for it.
json finding_with(const std::string& limit, const std::string& subject, int& code) {
  const Program::Result result =
      Program({"sh", "-c", limit + "; exec \"$@\"", "sh", STRATA_COMMAND_PATH, "doctor", "--json"})
          .finish();
  code = result.code();
  const json report = json::parse(result.out);
  for (const json& check : report.at("checks")) {
    if (check.at("subject") == subject) return check;
  }
  ADD_FAILURE() << "Nothing about " << subject;
  return {};
}

TEST(StrataDoctor, TellsOfEverythingItLooksAt) {
  const Program::Result result = strata_command({"doctor", "--json"});
  EXPECT_EQ(result.err, "");
  const json report = json::parse(result.out);
  std::size_t missing = 0;
  for (const json& check : report.at("checks")) {
    EXPECT_THAT(check.at("found").get<std::string>(), Not(IsEmpty()));
    if (check.at("status") == "ok") {
      EXPECT_EQ(check.at("advice"), "") << check;
    } else {
      EXPECT_NE(check.at("advice"), "") << check;
    }
    if (check.at("status") == "missing") ++missing;
  }
  EXPECT_EQ(report.at("ok"), missing == 0);
  EXPECT_EQ(result.code(), missing == 0 ? 0 : 1);

  const Program::Result table = strata_command({"doctor"});
  EXPECT_EQ(table.code(), result.code());
  for (const json& check : report.at("checks")) {
    EXPECT_THAT(table.out, HasSubstr(check.at("subject").get<std::string>()));
  }
}

TEST(StrataDoctor, KernelFeaturesAreTriedAndFoundHere) {
  int code = 0;
  for (const char* const subject :
       {"kernel", "pidfd", "close_range", "memfd", "futex", "/proc", "spawn", "parent death"}) {
    EXPECT_EQ(finding_with("true", subject, code).at("status"), "ok") << subject;
  }
}

TEST(StrataDoctor, AFewOpenFilesAreAWarningAndTooFewAreMissing) {
  int code = 0;
  const json few = finding_with("ulimit -n 128", "open files", code);
  EXPECT_EQ(few.at("status"), "warning");
  EXPECT_THAT(few.at("found").get<std::string>(), StartsWith("128"));
  EXPECT_THAT(few.at("advice").get<std::string>(), HasSubstr("ulimit -n"));
  EXPECT_EQ(finding_with("ulimit -n 32", "open files", code).at("status"), "missing");
  EXPECT_EQ(code, 1);
}

TEST(StrataDoctor, OtherLimitsAreSeen) {
  int code = 0;
  EXPECT_EQ(finding_with("ulimit -f 1000000", "file size", code).at("status"), "warning");
  EXPECT_EQ(finding_with("ulimit -s 512", "stack", code).at("status"), "warning");
}

TEST(StrataDoctor, OneCpuIsAWarning) {
  int code = 0;
  const json cpus = finding_with(
      "exec taskset -c $(taskset -cp $$ | sed 's/.*: //; s/[-,].*//') "
      "\"$@\"",
      "CPUs", code);
  EXPECT_EQ(cpus.at("status"), "warning");
  EXPECT_THAT(cpus.at("found").get<std::string>(), StartsWith("1 of "));
}

TEST(StrataDoctor, AWorkerProgramThatIsNotThereIsMissing) {
  int code = 0;
  const json program =
      finding_with("export STRATA_WORKER_PROGRAM=/no/such/strata-worker", "strata-worker", code);
  EXPECT_EQ(program.at("status"), "missing");
  EXPECT_EQ(code, 1);
  EXPECT_THAT(program.at("found").get<std::string>(), HasSubstr("/no/such/strata-worker"));
}

TEST(StrataCommand, HelpHasExamples) {
  for (const char* const command : {"run", "ps", "doctor"}) {
    const Program::Result result = strata_command({command, "--help"});
    EXPECT_EQ(result.code(), 0);
    EXPECT_THAT(result.out, HasSubstr("Examples:\n  strata " + std::string(command)));
    EXPECT_THAT(strata_command({"--help"}).out, HasSubstr(command));
  }
}

TEST(StrataCommand, VersionIsPrinted) {
  const Program::Result result = strata_command({"--version"});
  EXPECT_EQ(result.code(), 0);
  EXPECT_THAT(result.out, testing::MatchesRegex("strata [0-9]+[.][0-9]+[.][0-9]+\n"));
}

TEST(StrataCommand, WrongUseIsCode2AndSaysWhatIsWrong) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"dance"},
      {"run"},
      {"run", "--"},
      {"run", "--no-such-option", "--", "true"},
      {"run", "extra", "--", "true"},
      {"ps", "--watch", "-1"},
      {"ps", "--watch", "never"},
      {"ps", "--", "x"},
      {"doctor", "x"},
  };
  for (const std::vector<std::string>& arguments : wrong) {
    const Program::Result result = strata_command(arguments);
    EXPECT_EQ(result.code(), 2) << testing::PrintToString(arguments);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, Not(IsEmpty()));
  }
}

}  // namespace
}  // namespace strata::test
