// The watchdog of a Worker: its reports are those of `strata dump`, come once for each hang, and
// change nothing.
#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "diag_run.hpp"
#include "support/time_bounds.hpp"

namespace strata::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t number = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++number;
  return number;
}

/// What is in the file once so many reports are there.
std::string reports_in(const std::string& path, std::size_t number) {
  std::string text;
  const auto until = std::chrono::steady_clock::now() + bound(30s);
  do {
    std::this_thread::sleep_for(10ms);
    std::stringstream read;
    read << std::ifstream(path).rdbuf();
    text = read.str();
  } while (count(text, "end of the report") < number && std::chrono::steady_clock::now() < until);
  return text;
}

TEST(Watchdog, AHangIsReportedOnceAndSigquitReportsItAgain) {
  const TempDir folder;
  const std::string file = folder.path() / "report.txt";
  Program program({diag_program("hang_program"), "loop", "5", file});
  program.wait_for_output("ready");
  EXPECT_THAT(reports_in(file, 1),
              AllOf(HasSubstr("nothing has moved for"), HasSubstr("never_ends("),
                    HasSubstr("hangs/chip[1]"), HasSubstr("What stands in the way")));
  program.send(SIGQUIT);
  const std::string both = reports_in(file, 2);
  EXPECT_THAT(both, HasSubstr("since it got SIGQUIT"));
  EXPECT_EQ(count(both, "nothing has moved for"), 1U);
  EXPECT_TRUE(program.running());
  program.send(SIGKILL);
  EXPECT_THAT(program.finish().err, HasSubstr("never_ends("));  // It is in the log too.
}

TEST(Watchdog, ARunThatMissesItsDeadlineIsReported) {
  const TempDir folder;
  const std::string file = folder.path() / "report.txt";
  Program program({diag_program("hang_program"), "late", "1", file});
  program.wait_for_output("ready");
  EXPECT_THAT(reports_in(file, 1), AllOf(HasSubstr("has not ended by its deadline"),
                                         HasSubstr("'locks' in hand"), HasSubstr("holder-0")));
  program.send(SIGKILL);
  program.finish();
}

TEST(Watchdog, ItCancelsTheRunsIfItIsToldToAndTheWorkerGoesOn) {
  const TempDir folder;
  const std::string file = folder.path() / "report.txt";
  Program program({diag_program("hang_program"), "cancel", "5", file});
  const Program::Result result = program.finish();
  EXPECT_EQ(result.code(), 0) << result.err;
  const std::string report = reports_in(file, 1);
  EXPECT_THAT(report, AllOf(HasSubstr("nothing has moved for"), HasSubstr("waits for the signal")));
  EXPECT_EQ(count(report, "end of the report"), 1U);
}

TEST(Watchdog, WhatRanksOfADomainWaitForIsInItsReport) {
  for (const char* const kind : {"notify", "absent"}) {
    SCOPED_TRACE(kind);
    const TempDir folder;
    const std::string file = folder.path() / "report.txt";
    Program program({diag_program("hang_program"), kind, "6", file});
    program.wait_for_output("ready");
    const bool notify = kind == std::string("notify");
    EXPECT_THAT(reports_in(file, 1),
                HasSubstr(notify ? "rank 2 of domain 'tp' has sent 0 notifications"
                                 : "rank 0 of domain 'tp' waits in all_reduce #2 on channel 0 for "
                                   "rank 2 (its last call there is #1)"));
    program.send(SIGKILL);
    program.finish();
  }
}

}  // namespace
}  // namespace strata::test
