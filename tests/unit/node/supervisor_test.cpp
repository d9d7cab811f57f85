// The supervisor with real processes: every cell of its table that anything can cause is executed,
// and for each other the reason why nothing can.
//
// Which cells were executed is known from the fault points, so only builds that have them (debug,
// asan, tsan) check it; elsewhere the same lives are lived, and only their outcome is checked.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fault_point.hpp"
#include "node/reaper.hpp"
#include "support/process.hpp"
#include "unit/node/supervisor_rig.hpp"

namespace strata::node {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using E = ChildEvent;
using Rig = SupervisorRig;
using S = ChildState;

using Cells = std::set<Cell>;

Cells cells(std::initializer_list<S> states, std::initializer_list<E> events) {
  Cells all;
  for (const S state : states) {
    for (const E event : events)
      all.emplace(state, event);
  }
  return all;
}

Cells operator+(Cells a, const Cells& b) {
  a.insert(b.begin(), b.end());
  return a;
}

// ---- Lives --------------------------------------------------------------------------------------

/// What it takes to execute some cells.
struct Life {
  std::string name;
  Cells executes;
  std::function<void()> live;
  bool needs_fault_points = false;
};

void PrintTo(const Life& life, std::ostream* out) { *out << life.name; }

/// Lives with limits of time are tried again with longer ones, as long as the machine was too slow
/// for what had to happen in between.
void with_patience(const Cells& wanted, const std::function<void(milliseconds limit)>& live) {
  for (milliseconds limit = 400ms;; limit *= 4) {
    live(limit);
    if (!base::kFaultPoints || limit > 1min) return;
    if (std::all_of(wanted.begin(), wanted.end(), [](const Cell& each) { return hits(each) > 0; }))
      return;
  }
}

void good_life() {
  Rig rig({.places = 2, .scripts = {kGood, kGood}});
  rig.start();
  rig.wait_started();
  rig.stop();
  rig.wait_ends(1);
  EXPECT_EQ(rig.ups(), 2);
  EXPECT_EQ(rig.downs(), 2);
  EXPECT_TRUE(rig.problems().empty());
}

void ready_without_a_step() {
  Rig rig({.scripts = {"say hello say ready say step wait_stop exit 0"}});
  rig.start();
  rig.wait_started();
  Rig::wait_cell(S::ready, E::step);
  rig.stop();
  rig.wait_ends(1);
  EXPECT_TRUE(rig.problems().empty());
}

/// Starts that fail, one after the other, with the same supervisor.
void failing_starts(const std::string& before, const std::vector<std::string>& sins) {
  Rig rig({});
  int ends = 0;
  for (const std::string& sin : sins) {
    SCOPED_TRACE(sin);
    rig.script(before + " " + sin);
    rig.start();
    rig.wait_ends(++ends);
    EXPECT_EQ(rig.failed_count(), ends);
    EXPECT_EQ(rig.problems().at(0).path, "p0");
    EXPECT_FALSE(rig.problems().at(0).cause.empty());
    if (sin.starts_with("say failed")) {
      EXPECT_EQ(rig.problems().at(0).cause, "its own words");
    }
    if (sin.starts_with("exit")) {
      EXPECT_EQ(rig.problems().at(0).cause, "exited with status 7");
    }
  }
  EXPECT_EQ(rig.ups(), 0);
  EXPECT_EQ(rig.downs(), ends);
}

Cells late_cells(S state) { return cells({state}, {E::timeout}); }

void late(S state, const std::string& script) {
  with_patience(late_cells(state), [&](milliseconds limit) {
    Rig rig({.scripts = {script}});
    rig.start(os::Deadline::after(limit));
    rig.wait_ends(1);
    EXPECT_EQ(rig.failed_count(), 1);
    EXPECT_THAT(rig.problems().at(0).cause, HasSubstr("was not ready within"));
  });
}

void stopped_while(S state, const std::string& script) {
  Rig rig({.scripts = {script + " wait_stop exit 0"}});
  rig.start();
  rig.wait_state(0, state);
  rig.stop();
  rig.wait_ends(1);
  EXPECT_EQ(rig.stopped_count(), 1);
  EXPECT_EQ(rig.started_count(), 0);
  EXPECT_TRUE(rig.problems().empty());
}

void no_process_can_be_made() {
  Rig rig({.places = 2});
  const os::UniqueFd no_program(::open("/dev/null", O_PATH | O_CLOEXEC));
  rig.use_program(no_program.get());
  rig.start();
  rig.wait_ends(1);
  EXPECT_EQ(rig.failed_count(), 1);
  EXPECT_THAT(rig.problems().at(0).cause, HasSubstr("could not be started"));
  EXPECT_EQ(rig.downs(), 1) << "the second was not tried";
}

/// Each process is replaced, after it sinned when it was ready.
void sins_when_ready() {
  const std::vector<std::string> sins{"say hello pause", "say ready pause", "say failed pause",
                                      "garbage pause",   "close pause",     "exit 7"};
  Rig rig({.replace = true});
  for (const std::string& sin : sins)
    rig.script("say hello say ready " + sin);
  rig.script(kGood);
  rig.start();
  rig.wait_ups(7);
  EXPECT_EQ(rig.downs(), 6);
  EXPECT_EQ(rig.lost(), 0);
  EXPECT_EQ(rig.started_count(), 1);
  EXPECT_EQ(rig.causes().at(2).cause, "its own words");
  EXPECT_EQ(rig.causes().at(5).cause, "exited with status 7");
  rig.stop();
  rig.wait_ends(1);
  EXPECT_TRUE(rig.problems().empty());
}

/// Replaced on request, in every state of a start too; that never costs the place.
void replaced_while_starting() {
  Rig rig({.scripts = {kGood, "pause", "say hello pause", "say hello say step pause", kGood}});
  rig.start();
  rig.wait_started();
  rig.supervisor().replace(0, "for a test");
  rig.wait_state(0, S::spawned, 2);
  rig.supervisor().replace(0, "for a test");
  rig.wait_state(0, S::connected, 3);
  rig.supervisor().replace(0, "for a test");
  rig.wait_state(0, S::initialising, 4);
  rig.supervisor().replace(0, "for a test");
  rig.wait_ups(2);
  EXPECT_EQ(rig.downs(), 4);
  EXPECT_EQ(rig.lost(), 0);
  for (const WorkerFault& cause : rig.causes())
    EXPECT_EQ(cause.cause, "for a test");
  rig.stop();
  rig.wait_ends(1);
}

void asked_ones_messages() {
  Rig rig({.scripts = {"say hello say ready wait_stop say hello say step say ready say failed close"
                       " wait_go exit 0"}});
  rig.start();
  rig.wait_started();
  rig.stop();
  Rig::wait_cell(S::asked, E::disconnected);
  rig.supervisor().hasten(kLong);
  Rig::wait_cell(S::asked, E::stop);
  rig.go();
  rig.wait_ends(1);
  EXPECT_TRUE(rig.problems().empty()) << rig.problems().at(0).to_string();
}

void asked_ones_nonsense() {
  Rig rig({.places = 2,
           .scripts = {"say hello say ready wait_stop garbage pause",
                       "say hello say ready wait_stop say bad_hello pause"}});
  rig.start();
  rig.wait_started();
  rig.stop();
  rig.wait_ends(1);  // Much sooner than the limit.
  EXPECT_EQ(rig.downs(), 2);
}

const Cells kTerminating = cells({S::terminating}, {E::hello, E::step, E::ready, E::failed,
                                                    E::disconnected, E::stop, E::exited});

void terminating_ones_messages() {
  with_patience(kTerminating, [](milliseconds limit) {
    Rig rig({.scripts = {"say hello say ready wait_term say hello say step say ready say failed"
                         " close wait_go exit 0"}});
    rig.start();
    rig.wait_started();
    rig.stop(limit);
    // Or it was killed, since the machine was too slow.
    const auto wait_for = [&](E event) {
      while (base::kFaultPoints && rig.stopped_count() == 0 && hits({S::terminating, event}) == 0)
        std::this_thread::sleep_for(1ms);
    };
    wait_for(E::failed);
    rig.supervisor().hasten(limit);
    wait_for(E::disconnected);
    rig.go();
    rig.wait_ends(1);
  });
}

void terminating_ones_nonsense() {
  with_patience(cells({S::terminating}, {E::broken}), [](milliseconds limit) {
    Rig rig({.scripts = {"say hello say ready wait_term garbage pause"}});
    rig.start();
    rig.wait_started();
    rig.stop(limit);
    rig.wait_ends(1);
  });
}

void one_that_listens_to_nothing() {
  Rig rig({.scripts = {"say hello say ready pause"}});
  rig.start();
  rig.wait_started();
  rig.stop(100ms);
  rig.wait_ends(1);
  EXPECT_EQ(rig.downs(), 1);
}

/// All that it says is there when the first of it makes the supervisor kill it.
void killed_ones_messages() {
  Rig rig({.scripts = {"say hello say ready say hello say hello say step say ready say failed"
                       " say bad_hello mark pause"},
           .on_up = [](Rig& self) { self.wait_mark(); }});
  rig.start();
  rig.wait_downs(1);
  EXPECT_EQ(rig.lost(), 1);
  rig.stop();
  rig.wait_ends(1);
}

/// Its message makes the client do that, in the supervisor's thread.
void replaced_while_killing() {
  Rig rig({.scripts = {"say hello say ready say hello say task_failed mark pause", kGood},
           .on_up =
               [](Rig& self) {
                 if (self.ups() == 1) self.wait_mark();
               },
           .on_message = [](Rig& self) { self.supervisor().replace(0, "for a test"); }});
  rig.start();
  rig.wait_ups(2);
  EXPECT_EQ(rig.downs(), 1);
  rig.stop();
  rig.wait_ends(1);
}

void stopped_while_killing() {
  Rig rig({.scripts = {"say hello say ready say hello say task_failed mark pause"},
           .on_up = [](Rig& self) { self.wait_mark(); },
           .on_message = [](Rig& self) { self.stop(); }});
  rig.start();
  rig.wait_ends(1);
  EXPECT_EQ(rig.stopped_count(), 1);
}

void stopped_with_a_place_empty() {
  Rig rig({.places = 2, .scripts = {"say hello say ready wait_go exit 7", kGood}});
  rig.start();
  rig.wait_started();
  rig.go();
  rig.wait_downs(1);
  EXPECT_EQ(rig.lost(), 1);
  rig.stop();
  rig.wait_ends(1);
  EXPECT_TRUE(rig.problems().empty());
}

/// The kernel does not give processes back as long as this lives.
class Unreapable {
 public:
  Unreapable() { base::set_faults("supervisor.wait=error:11"); }
  ~Unreapable() {
    base::set_faults("");
    while (reaper_backlog() != 0)
      std::this_thread::sleep_for(1ms);
  }
  Unreapable(const Unreapable&) = delete;
  Unreapable& operator=(const Unreapable&) = delete;
};

/// (set_faults forgets the hits, so these ask before it is called.)
void expect_executed(const Cells& wanted) {
  if (!base::kFaultPoints) return;
  for (const Cell& each : wanted)
    EXPECT_GT(hits(each), 0U) << text_of(each) << " was not executed";
}

const Cells kAbandonedWithoutChannel = cells({S::killing}, {E::disconnected, E::timeout});

void abandoned_without_channel() {
  const Unreapable unreapable;
  Rig rig({.scripts = {"say hello say ready say hello close mark pause"},
           .on_up = [](Rig& self) { self.wait_mark(); }});
  rig.start();
  rig.wait_downs(1);
  EXPECT_THAT(rig.causes().at(0).cause, HasSubstr("the kernel has not given it back"));
  rig.stop();
  rig.wait_ends(1);
  expect_executed(kAbandonedWithoutChannel);
}

const Cells kAbandonedAndReplaced = cells({S::abandoned}, {E::start});

void abandoned_and_replaced() {
  Rig rig({.scripts = {kGood, kGood}});
  {
    const Unreapable unreapable;
    rig.start();
    rig.wait_started();
    rig.supervisor().replace(0, "for a test");
    rig.wait_ups(2);
    expect_executed(kAbandonedAndReplaced);
  }
  rig.stop();
  rig.wait_ends(1);
  EXPECT_TRUE(rig.problems().empty());
}

const Cells kStoppedWithOneAbandoned = cells({S::abandoned}, {E::stop});

void stopped_with_one_abandoned() {
  Rig rig({.places = 2, .scripts = {"say hello say ready wait_go say hello pause", kGood}});
  {
    const Unreapable unreapable;
    rig.start();
    rig.wait_started();
    rig.go();
    rig.wait_downs(1);
    EXPECT_EQ(rig.lost(), 1);
  }
  rig.stop();
  rig.wait_ends(1);
  EXPECT_TRUE(rig.problems().empty());
  expect_executed(kStoppedWithOneAbandoned);
}

// (clang-format off keeps a life's cells in one place with it.)
// clang-format off
const std::vector<Life>& lives() {
  static const std::vector<Life> all{
      {"Good",
       Cells{{S::absent, E::start}, {S::spawned, E::hello}, {S::connected, E::step},
             {S::initialising, E::ready}, {S::ready, E::stop}, {S::asked, E::exited}},
       good_life},
      {"ReadyWithoutAStep", Cells{{S::connected, E::ready}, {S::ready, E::step}},
       ready_without_a_step},
      {"NoProcessCanBeMade", Cells{{S::spawned, E::spawn_failed}}, no_process_can_be_made},
      {"SinsWhenSpawned",
       cells({S::spawned}, {E::step, E::ready, E::failed, E::broken, E::disconnected, E::exited}) +
           Cells{{S::killing, E::exited}},
       [] {
         failing_starts("", {"say step pause", "say ready pause", "say failed pause",
                             "garbage pause", "close pause", "exit 7"});
       }},
      {"SinsWhenConnected",
       cells({S::connected}, {E::hello, E::failed, E::broken, E::disconnected, E::exited}),
       [] {
         failing_starts("say hello", {"say hello pause", "say failed pause", "garbage pause",
                                      "close pause", "exit 7"});
       }},
      {"SinsWhenInitialising",
       cells({S::initialising},
             {E::hello, E::step, E::failed, E::broken, E::disconnected, E::exited}),
       [] {
         failing_starts("say hello say step",
                        {"say hello pause", "say step say failed pause", "garbage pause",
                         "close pause", "exit 7"});
       }},
      {"SinsWhenReady",
       cells({S::ready}, {E::hello, E::ready, E::failed, E::broken, E::disconnected, E::exited}),
       sins_when_ready},
      {"LateWhenSpawned", late_cells(S::spawned), [] { late(S::spawned, "pause"); }},
      {"LateWhenConnected", late_cells(S::connected),
       [] { late(S::connected, "say hello pause"); }},
      {"LateWhenInitialising", late_cells(S::initialising),
       [] { late(S::initialising, "say hello say step pause"); }},
      {"StoppedWhenSpawned", cells({S::spawned}, {E::stop}),
       [] { stopped_while(S::spawned, ""); }},
      {"StoppedWhenConnected", cells({S::connected}, {E::stop}),
       [] { stopped_while(S::connected, "say hello"); }},
      {"StoppedWhenInitialising", cells({S::initialising}, {E::stop}),
       [] { stopped_while(S::initialising, "say hello say step"); }},
      {"ReplacedWhileStarting",
       cells({S::ready, S::spawned, S::connected, S::initialising}, {E::end}),
       replaced_while_starting},
      {"AskedOnesMessages",
       cells({S::asked}, {E::hello, E::step, E::ready, E::failed, E::disconnected, E::stop}),
       asked_ones_messages},
      {"AskedOnesNonsense", cells({S::asked}, {E::broken}), asked_ones_nonsense},
      {"TerminatingOnesMessages", kTerminating, terminating_ones_messages},
      {"TerminatingOnesNonsense", cells({S::terminating}, {E::broken}), terminating_ones_nonsense},
      {"OneThatListensToNothing", cells({S::asked, S::terminating}, {E::timeout}),
       one_that_listens_to_nothing},
      {"KilledOnesMessages",
       cells({S::killing}, {E::hello, E::step, E::ready, E::failed, E::broken}),
       killed_ones_messages},
      {"ReplacedWhileKilling", cells({S::killing}, {E::end}), replaced_while_killing},
      {"StoppedWhileKilling", cells({S::killing}, {E::stop}), stopped_while_killing},
      {"StoppedWithAPlaceEmpty", cells({S::absent}, {E::stop}), stopped_with_a_place_empty},
      {"AbandonedWithoutChannel", kAbandonedWithoutChannel, abandoned_without_channel, true},
      {"AbandonedAndReplaced", kAbandonedAndReplaced, abandoned_and_replaced, true},
      {"StoppedWithOneAbandoned", kStoppedWithOneAbandoned, stopped_with_one_abandoned, true},
  };
  return all;
}
// clang-format on

/// Cells that nothing can cause, each with the reason.
std::map<std::string, Cells> never() {
  const auto nobody = {S::absent, S::abandoned};
  const auto somebody = {S::spawned, S::connected,   S::initialising, S::ready,
                         S::asked,   S::terminating, S::killing};
  return {
      {"nothing of a process is watched where none is ours",
       cells(nobody,
             {E::hello, E::step, E::ready, E::failed, E::broken, E::disconnected, E::exited})},
      {"no timer runs where no process is ours, or when it is ready",
       cells(nobody, {E::timeout}) + cells({S::ready}, {E::timeout})},
      {"where no process is ours, a replacement is a start", cells(nobody, {E::end})},
      {"making a process fails in the state that it is made in",
       cells(nobody, {E::spawn_failed}) +
           cells({S::connected, S::initialising, S::ready, S::asked, S::terminating, S::killing},
                 {E::spawn_failed})},
      {"a process is started only where there is none", cells(somebody, {E::start})},
      {"while the supervisor stops, nothing is replaced and no limit of a task is looked at",
       cells({S::asked, S::terminating}, {E::end})},
  };
}

class SupervisorLives : public testing::TestWithParam<Life> {};

TEST_P(SupervisorLives, ExecutesItsCells) {
  const Life& life = GetParam();
  if (life.needs_fault_points && !base::kFaultPoints) GTEST_SKIP() << "no fault points here";
  base::set_faults("");
  if (life.needs_fault_points) {  // Leaves the reaper's thread, and has asked itself.
    life.live();
    return;
  }
  const test::LeakCheck leaks;
  life.live();
  expect_executed(life.executes);
}

INSTANTIATE_TEST_SUITE_P(Supervisor, SupervisorLives, testing::ValuesIn(lives()),
                         [](const auto& each) { return each.param.name; });

TEST(Supervisor, EveryCellIsExecutedByALifeOrHasAReasonWhyNothingCausesIt) {
  std::map<Cell, std::string> why;
  for (const Life& life : lives()) {
    for (const Cell& each : life.executes)
      why[each] = life.name;
  }
  for (const auto& [reason, those] : never()) {
    for (const Cell& each : those) {
      EXPECT_TRUE(why.emplace(each, reason).second)
          << text_of(each) << " never happens, since " << reason << "; but " << why[each]
          << " executes it";
      // Nothing causes it, and if it came all the same it would be safe: nothing is done, or a
      // process that is being ended is ended at once.
      const ChildTransition to = transition(each.first, each.second);
      EXPECT_TRUE((to.action == ChildAction::ignore && to.next == each.first) ||
                  (to.action == ChildAction::kill && to.next == S::killing))
          << text_of(each);
    }
  }
  for (std::size_t s = 0; s < kChildStates; ++s) {
    for (std::size_t e = 0; e < kChildEvents; ++e) {
      const Cell each{static_cast<S>(s), static_cast<E>(e)};
      EXPECT_TRUE(why.contains(each)) << text_of(each);
    }
  }
}

}  // namespace
}  // namespace strata::node
