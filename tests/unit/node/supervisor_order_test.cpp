// The supervisor with real processes: who is replaced, who takes whom down, and how long a stop
// takes.
#include <gtest/gtest.h>

#include <chrono>

#include "support/process.hpp"
#include "unit/node/supervisor_rig.hpp"

namespace strata::node {
namespace {

using namespace std::chrono_literals;

TEST(Supervisor, AProcessOverTheLimitOfItsTaskIsEndedAndReplaced) {
  const test::LeakCheck leaks;
  SupervisorRig rig({.scripts = {kGood, kGood}});
  rig.start();
  rig.wait_started();
  rig.end_at_next_look("was over its time");
  rig.supervisor().timers_changed();
  rig.wait_ups(2);
  EXPECT_TRUE(rig.causes().at(0).cause.starts_with("was over its time (process state "));
  EXPECT_EQ(rig.lost(), 0);
  rig.stop();
  rig.wait_ends(1);
}

TEST(Supervisor, AStopThatWasHastenedBeforeItCameIsHastened) {
  const test::LeakCheck leaks;
  SupervisorRig rig({.scripts = {"say hello say ready pause"}});
  rig.start();
  rig.wait_started();
  rig.supervisor().hasten(100ms);
  rig.stop(kLong);
  rig.wait_ends(1);  // Or the guard ends the test.
}

TEST(Supervisor, ALaterLongerLimitDoesNotProlongAStop) {
  const test::LeakCheck leaks;
  SupervisorRig rig({.scripts = {"say hello say ready pause"}});
  rig.start();
  rig.wait_started();
  rig.stop(100ms);
  rig.supervisor().hasten(kLong);
  rig.wait_ends(1);
}

TEST(Supervisor, OneOfManyThatFailsToStartTakesAllDown) {
  const test::LeakCheck leaks;
  SupervisorRig rig({.places = 4,
                     .scripts = {kGood, "say hello say step say failed exit 1",
                                 "say hello wait_stop exit 0", kGood}});
  rig.start();
  rig.wait_ends(1);
  EXPECT_EQ(rig.failed_count(), 1);
  EXPECT_EQ(rig.problems().at(0).path, "p1");
  EXPECT_EQ(rig.problems().at(0).cause, "its own words");
  EXPECT_EQ(rig.downs(), 4);
}

TEST(Supervisor, APlaceWhoseProcessesDoNotStartIsLostAndCanBeFilledAgain) {
  const test::LeakCheck leaks;
  SupervisorRig rig(
      {.replace = true,
       .scripts = {"say hello say ready wait_go exit 7", "exit 1", "exit 2", "exit 3", kGood}});
  rig.start();
  rig.wait_started();
  rig.go();
  rig.wait_downs(4);
  EXPECT_EQ(rig.lost(), 1);
  rig.supervisor().replace(0, "for a test");
  rig.wait_ups(2);
  rig.stop();
  rig.wait_ends(1);
  EXPECT_TRUE(rig.problems().empty());
}

}  // namespace
}  // namespace strata::node
