// Devices and the plan: what is given out, to whom, and when; which jobs are chosen.
#include "cli/jobs/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cli/jobs/selection.hpp"
#include "strata/error.hpp"

namespace strata::cli::jobs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Job job(const std::string& name) {
  Job job;
  job.name = name;
  job.command = {"x"};
  return job;
}

Job with(const std::string& name, const std::function<void(Job&)>& change) {
  Job result = job(name);
  change(result);
  return result;
}

Job with_devices(const std::string& name, unsigned devices) {
  return with(name, [&](Job& of) { of.devices = devices; });
}

// ---- Devices ------------------------------------------------------------------------------------

TEST(Devices, AreThoseOfTheList) {
  EXPECT_THAT(DevicePool("0-3").take(4), testing::Optional(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(DevicePool("7,2,4-5").take(4), testing::Optional(ElementsAre(2, 4, 5, 7)));
  EXPECT_EQ(DevicePool("0-3").take(5), std::nullopt);
}

TEST(Devices, OfAListThatMakesNoSenseAreRefused) {
  for (const char* const list :
       {"", "a", "1-", "-1", "3-1", "1,,2", "1,1", "0-2,2", "1 2", "99999999999"}) {
    EXPECT_THROW(DevicePool{list}, InvalidArgument) << list;
  }
}

TEST(Devices, ThatAreLostAreGivenToNobody) {
  DevicePool pool("0-2");
  pool.retire(*pool.take(1));
  EXPECT_EQ(pool.size(), 2U);
  EXPECT_THAT(pool.take(2), testing::Optional(ElementsAre(1, 2)));
}

// ---- The plan -----------------------------------------------------------------------------------

/// Names of what can be started now.
std::vector<std::string> started(Plan& plan, const std::vector<Job>& jobs,
                                 std::vector<Plan::Start>* starts = nullptr) {
  std::vector<std::string> names;
  while (const auto start = plan.next()) {
    names.push_back(jobs[start->job].name);
    if (starts != nullptr) starts->push_back(*start);
  }
  return names;
}

void end(Plan& plan, const Plan::Start& start, Outcome outcome = Outcome::passed) {
  plan.ended(start, Plan::Devices::free);
  plan.finished(start.job, outcome);
}

TEST(JobPlan, KeepsTheOrderOneAtATimeAndGoesByCostOtherwise) {
  const std::vector<Job> jobs = {job("a"), with("b", [](Job& of) { of.cost = 2; }),
                                 with("c", [](Job& of) { of.cost = 9; })};
  Plan one(jobs, 1, std::nullopt);
  EXPECT_THAT(started(one, jobs), ElementsAre("a"));
  Plan many(jobs, 3, std::nullopt);
  EXPECT_THAT(started(many, jobs), ElementsAre("c", "b", "a"));
}

TEST(JobPlan, AJobThatWaitsForDevicesIsNotOvertakenByOthersThatWantSome) {
  const std::vector<Job> jobs = {with_devices("one", 1), with_devices("all", 4),
                                 with_devices("two", 2), with_devices("none", 0)};
  Plan plan(jobs, 4, DevicePool("0-3"));
  std::vector<Plan::Start> starts;
  EXPECT_THAT(started(plan, jobs, &starts), ElementsAre("one", "none"));
  end(plan, starts[0]);
  starts.clear();
  EXPECT_THAT(started(plan, jobs, &starts), ElementsAre("all"));
  end(plan, starts[0]);
  EXPECT_THAT(started(plan, jobs), ElementsAre("two"));
}

TEST(JobPlan, LocksKeepApartAndSlotsAreCounted) {
  const auto lock = [](Job& of) { of.locks = {"l"}; };
  const std::vector<Job> jobs = {with("a", lock), with("b", lock), job("c"),
                                 with("wide", [](Job& of) { of.slots = 99; })};
  Plan plan(jobs, 3, std::nullopt);
  std::vector<Plan::Start> starts;
  EXPECT_THAT(started(plan, jobs, &starts), ElementsAre("a", "c"));
  end(plan, starts[0]);
  EXPECT_THAT(started(plan, jobs, &starts), ElementsAre("b"));
  end(plan, starts[1]);
  EXPECT_THAT(started(plan, jobs), ElementsAre()) << "All slots are not free yet.";
  end(plan, starts[2]);
  EXPECT_THAT(started(plan, jobs), ElementsAre("wide"));
}

TEST(JobPlan, AJobThatIsToBeAloneIs) {
  const std::vector<Job> jobs = {with("alone", [](Job& of) { of.alone = true; }), job("a"),
                                 job("b")};
  Plan plan(jobs, 4, std::nullopt);
  std::vector<Plan::Start> starts;
  EXPECT_THAT(started(plan, jobs, &starts), ElementsAre("a", "b"));
  end(plan, starts[0]);
  EXPECT_THAT(started(plan, jobs), ElementsAre());
  end(plan, starts[1]);
  EXPECT_THAT(started(plan, jobs), ElementsAre("alone"));
}

TEST(JobPlan, FixturesAreSetUpBeforeAndCleanedUpAfter) {
  const auto needs = [](Job& of) { of.fixtures_required = {"f"}; };
  const std::vector<Job> jobs = {with("clean", [](Job& of) { of.fixtures_cleaned_up = {"f"}; }),
                                 with("a", needs), with("b", needs),
                                 with("set up", [](Job& of) { of.fixtures_set_up = {"f"}; })};
  Plan plan(jobs, 4, std::nullopt);
  std::vector<Plan::Start> starts;
  EXPECT_THAT(started(plan, jobs, &starts), ElementsAre("set up"));
  end(plan, starts[0]);
  EXPECT_THAT(started(plan, jobs, &starts), ElementsAre("a", "b"));
  end(plan, starts[1], Outcome::failed);
  EXPECT_THAT(started(plan, jobs), ElementsAre());
  end(plan, starts[2]);
  EXPECT_THAT(started(plan, jobs), ElementsAre("clean"));
}

TEST(JobPlan, WhatCanNeverBeStartedIsToldWithTheReason) {
  const std::vector<Job> jobs = {
      with_devices("many", 9), with("set up", [](Job& of) { of.fixtures_set_up = {"f"}; }),
      with("needs", [](Job& of) { of.fixtures_required = {"f"}; }),
      with("x", [](Job& of) { of.after = {"y"}; }), with("y", [](Job& of) { of.after = {"x"}; })};
  Plan plan(jobs, 4, DevicePool("0-3"));
  const auto first = plan.unreachable();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->job, 0U);
  EXPECT_THAT(first->why, HasSubstr("needs 9 devices, and there are 4"));
  EXPECT_FALSE(plan.unreachable());
  const auto start = plan.next();
  ASSERT_TRUE(start);
  EXPECT_FALSE(plan.unreachable());
  end(plan, *start, Outcome::failed);
  const auto second = plan.unreachable();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->job, 2U);
  EXPECT_THAT(second->why, HasSubstr("'set up'"));
  const auto third = plan.unreachable();
  ASSERT_TRUE(third);
  EXPECT_THAT(third->why, HasSubstr("come after it"));
}

TEST(JobPlan, WithoutDevicesJobsThatAskForNoneGetNone) {
  const std::vector<Job> jobs = {job("a"), with_devices("b", 1)};
  Plan plan(jobs, 4, std::nullopt);
  const auto never = plan.unreachable();
  ASSERT_TRUE(never);
  EXPECT_EQ(never->job, 1U);
  EXPECT_THAT(never->why, HasSubstr("--devices"));
  const auto start = plan.next();
  ASSERT_TRUE(start);
  EXPECT_THAT(start->devices, ElementsAre());
}

/// Invariants 1 and 2 of Plan, of random jobs that end in random order.
TEST(JobPlan, EachJobRunsOnceAndNothingIsSharedWhateverTheOrder) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned limit) { return static_cast<unsigned>(random() % limit); };
    std::vector<Job> jobs;
    for (unsigned i = 0; i < 40; ++i) {
      jobs.push_back(with_devices(std::to_string(i), below(5)));
      jobs.back().cost = below(3);
      jobs.back().slots = 1 + below(2);
      jobs.back().alone = below(10) == 0;
      if (below(4) == 0) jobs.back().locks = {std::string(1, static_cast<char>('a' + below(3)))};
      if (i > 0 && below(3) == 0) jobs.back().after = {std::to_string(below(i))};
    }
    Plan plan(jobs, 4, DevicePool("0-5"));
    std::vector<Plan::Start> running;
    std::map<std::size_t, int> runs;
    while (plan.waiting() > 0 || !running.empty()) {
      ASSERT_FALSE(plan.unreachable());
      while (auto start = plan.next()) {
        ++runs[start->job];
        running.push_back(std::move(*start));
      }
      ASSERT_FALSE(running.empty());
      std::set<int> devices;
      std::multiset<std::string> locks;
      std::size_t given = 0;
      unsigned slots = 0;
      for (const Plan::Start& one : running) {
        const Job& of = jobs[one.job];
        EXPECT_EQ(one.devices.size(), *of.devices);
        devices.insert(one.devices.begin(), one.devices.end());
        given += one.devices.size();
        locks.insert(of.locks.begin(), of.locks.end());
        slots += of.slots;
        EXPECT_TRUE(!of.alone || running.size() == 1);
      }
      EXPECT_EQ(devices.size(), given);
      EXPECT_EQ(std::set<std::string>(locks.begin(), locks.end()).size(), locks.size());
      EXPECT_LE(slots, 4U);
      const auto which = running.begin() + below(static_cast<unsigned>(running.size()));
      end(plan, *which);
      running.erase(which);
    }
    EXPECT_EQ(runs.size(), jobs.size());
    EXPECT_TRUE(std::ranges::all_of(runs, [](const auto& run) { return run.second == 1; }));
  }
}

// ---- Selection ----------------------------------------------------------------------------------

std::vector<std::string> names_of(const std::vector<Job>& jobs) {
  std::vector<std::string> names;
  for (const Job& of : jobs)
    names.push_back(of.name);
  return names;
}

TEST(JobSelection, GoesByNamesAndLabels) {
  std::vector<Job> jobs = {job("unit.a"), job("unit.b"), job("slow.a")};
  jobs[1].labels = {"unit-concurrent"};
  EXPECT_THAT(names_of(select(jobs, {.names = "^unit"})), ElementsAre("unit.a", "unit.b"));
  EXPECT_THAT(names_of(select(jobs, {.without_names = "a$"})), ElementsAre("unit.b"));
  EXPECT_THAT(names_of(select(jobs, {.labels = "concurrent"})), ElementsAre("unit.b"));
  EXPECT_THAT(names_of(select(jobs, {.without_labels = "^unit-"})),
              ElementsAre("unit.a", "slow.a"));
  EXPECT_THAT(names_of(select(jobs, {})), ElementsAre("unit.a", "unit.b", "slow.a"));
  EXPECT_THROW((void)select(jobs, {.names = "("}), InvalidArgument);
}

TEST(JobSelection, BringsWhatSetsUpAndWhatCleansUp) {
  std::vector<Job> jobs = {job("set up all"), job("set up"), job("a"), job("clean"), job("b")};
  jobs[0].fixtures_set_up = {"all"};
  jobs[1].fixtures_required = {"all"};
  jobs[1].fixtures_set_up = {"f"};
  jobs[2].fixtures_required = {"f"};
  jobs[3].fixtures_cleaned_up = {"f"};
  EXPECT_THAT(names_of(select(jobs, {.names = "^a$"})),
              ElementsAre("set up all", "set up", "a", "clean"));
}

}  // namespace
}  // namespace strata::cli::jobs
