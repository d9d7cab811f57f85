#include "diag/runtime_state.hpp"

#include <gmock/gmock.h>

#include "diag/runtime_findings.hpp"
#include "diag/tree_report.hpp"

namespace strata::diag {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

json core(int number, const char* state, double for_s, const char* waits_for = "") {
  return {{"where", "core " + std::to_string(number)},
          {"state", state},
          {"kernel", "softmax"},
          {"task", 5},
          {"task_name", "rows"},
          {"block", number},
          {"blocks", 4},
          {"for_s", for_s},
          {"waits_for", waits_for},
          {"thread", 0},
          {"arguments", json::array()}};
}

std::vector<RuntimeFinding> findings_of(const json& state) {
  ProcessReport process;
  process.strata.emplace();
  process.strata->state = state;
  return runtime_findings(process, "node/chip[1] (pid 7)",
                          [](const ThreadReport&) { return std::string(); });
}

TEST(RuntimeFindings, ACoreThatRunsForLongComesBeforeThoseThatWait) {
  const auto findings = findings_of(
      {{"chip",
        {{{"cores",
           {core(0, "waiting", 40, "the barrier of its task"), core(1, "running", 41),
            core(2, "waiting", 40, "the barrier of its task"), core(3, "running", 0.001)}}}}}});
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[0].line, AllOf(HasSubstr("core 1 of node/chip[1] (pid 7)"),
                                      HasSubstr("kernel 'softmax', task 5 'rows', block 1 of 4"),
                                      HasSubstr("for 41 s")));
  EXPECT_THAT(findings[1].line, AllOf(HasSubstr("core 0, core 2"), HasSubstr("2 of the lanes")));
}

TEST(RuntimeFindings, AWaitThatNoLaneOfTheTaskCanEndIsSaidToBeOne) {
  const auto findings =
      findings_of({{"chip", {{{"cores", {core(2, "waiting", 3, "its flag 3")}}}}}});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0].line,
              AllOf(HasSubstr("waits for its flag 3"), HasSubstr("nothing will end this wait")));
}

TEST(RuntimeFindings, WhoWaitsForTheHeapIsToldWhoHoldsIt) {
  const json engine = {
      {"heap", {{"used", 96U << 20U}, {"capacity", 100U << 20U}}},
      {"blocked",
       {{{"run", "b"},
         {"scope", "root"},
         {"needs", "heap"},
         {"asked", 64U << 20U},
         {"for_s", 3.5}}}},
      {"holders",
       {{{"bytes", 64U << 20U}, {"run", "a"}, {"task", 9}, {"kept_by", "scope 'root/tiles'"}}}}};
  const auto findings = findings_of({{"engine", {engine}}});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0].line,
              AllOf(HasSubstr("64 MiB of the heap for 3.5 s"),
                    HasSubstr("task 9 of a (64 MiB, kept by scope 'root/tiles')")));
}

TEST(RuntimeState, WhatIsMissingOrOfAnotherTypeIsNotSaid) {
  for (const json& state :
       {json(nullptr), json(3), json::array({1}), json{{"chip", 3}}, json{{"chip", {1, "x"}}},
        json{{"engine", {{{"blocked", "x"}, {"tasks", 7}, {"runs", {1}}, {"heap", {1, 2}}}}}},
        json{{"chip", {{{"cores", {nullptr, {{"for_s", "x"}, {"block", -1}}}}}}}},
        json{{"worker", {{{"children", {1, {{"in_hand", {1}}}}}}}}}}) {
    EXPECT_THAT(findings_of(state), IsEmpty()) << state;
    EXPECT_NO_THROW((void)to_text(runtime_state(state))) << state;
  }
}

}  // namespace
}  // namespace strata::diag
