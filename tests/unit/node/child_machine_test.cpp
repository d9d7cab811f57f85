// The supervisor's table: every cell against one that was written by hand, and the invariants of
// the header by going through all that can follow from a start.
#include "node/child_machine.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace strata::node {
namespace {

using A = ChildAction;
using E = ChildEvent;
using S = ChildState;

template <typename Enum>
std::vector<Enum> all(std::size_t count) {
  std::vector<Enum> values;
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(static_cast<Enum>(i));
  return values;
}
std::vector<S> states() { return all<S>(kChildStates); }
std::vector<E> events() { return all<E>(kChildEvents); }

// A cell: what is done (Spawn, Note, Up, spawn has Failed, Blame, Ask, Insist, Kill, buRy, Give up)
// and the state that comes next, or '.' where nothing is done and the state stays.
constexpr std::string_view kTable = R"(
             start spawn_failed hello step ready failed broken disconnected exited stop end timeout
absent        Sp        .         .    .    .      .      .        .          .     .    .     .
spawned       .         Fa        Nc   Bk   Bk     Bk     Bk       Bk         Ra    Aq   Kk    Bk
connected     .         .         Bk   Ni   Ur     Bk     Bk       Bk         Ra    Aq   Kk    Bk
initialising  .         .         Bk   Ni   Ur     Bk     Bk       Bk         Ra    Aq   Kk    Bk
ready         .         .         Bk   Nr   Bk     Bk     Bk       Bk         Ra    Aq   Kk    .
asked         .         .         .    .    .      .      Kk       .          Ra    .    Kk    It
terminating   .         .         .    .    .      .      Kk       .          Ra    .    Kk    Kk
killing       .         .         .    .    .      .      .        .          Ra    .    .     Gx
abandoned     Sp        .         .    .    .      .      .        .          .     .    .     .
)";

char letter(A action) {
  constexpr std::string_view kLetters = ".SNUFBAIKRG";
  return kLetters[static_cast<std::size_t>(action)];
}
char letter(S state) {
  constexpr std::string_view kLetters = "apcirqtkx";
  return kLetters[static_cast<std::size_t>(state)];
}

std::string cell(S state, E event) {
  const ChildTransition to = transition(state, event);
  if (to.action == A::ignore && to.next == state) return ".";
  return {letter(to.action), letter(to.next)};
}

TEST(ChildMachine, EveryCellIsAsWrittenByHand) {
  std::istringstream lines{std::string(kTable)};
  std::string line;
  std::getline(lines, line);  // Empty.
  std::getline(lines, line);
  std::istringstream head(line);
  for (const E event : events()) {
    std::string name;
    head >> name;
    ASSERT_EQ(name, name_of(event));
  }
  for (const S state : states()) {
    ASSERT_TRUE(std::getline(lines, line));
    std::istringstream row(line);
    std::string name;
    row >> name;
    ASSERT_EQ(name, name_of(state));
    for (const E event : events()) {
      std::string expected;
      ASSERT_TRUE(row >> expected);
      EXPECT_EQ(cell(state, event), expected) << name_of(state) << ", " << name_of(event);
    }
    std::string more;
    EXPECT_FALSE(row >> more) << more;
  }
  EXPECT_FALSE(std::getline(lines, line)) << line;
}

TEST(ChildMachine, EveryNameIsItsOwn) {
  std::set<std::string_view> names;
  for (const S state : states())
    EXPECT_TRUE(names.insert(name_of(state)).second) << name_of(state);
  names.clear();
  for (const E event : events())
    EXPECT_TRUE(names.insert(name_of(event)).second) << name_of(event);
  names.clear();
  for (const A action : all<A>(static_cast<std::size_t>(A::abandon) + 1))
    EXPECT_TRUE(names.insert(name_of(action)).second) << name_of(action);
}

TEST(ChildMachine, ATableIsTotalAlsoForWhatIsNoEvent) {
  for (const S state : states()) {
    const ChildTransition to = transition(state, static_cast<E>(kChildEvents));
    EXPECT_EQ(to.action, A::ignore);
    EXPECT_EQ(to.next, state);
  }
}

/// A place, and what is true of its process.
struct World {
  S state = S::absent;
  bool process = false;  ///< There is one that was neither buried nor abandoned.
  bool killed = false;   ///< It got SIGKILL.
  bool making = false;   ///< `spawn` is not over yet.
  auto operator<=>(const World&) const = default;
};

std::string text_of(const World& world, E event) {
  return std::string(name_of(world.state)) + " at " + std::string(name_of(event)) +
         (world.process ? ", with a process" : "") + (world.killed ? ", killed" : "");
}

/// All events that the world allows, and what follows from them. Attacks (1) and (2).
void explore(const World& world, std::set<World>& seen) {
  if (!seen.insert(world).second) return;
  if (world.making) {
    World made = world;
    made.making = false;
    made.process = true;
    explore(made, seen);
  } else {
    ASSERT_EQ(has_process(world.state), world.process) << name_of(world.state);
  }
  for (const E event : events()) {
    // A spawn fails before there is a process, and nothing else happens during it.
    if ((event == E::spawn_failed) != world.making) continue;
    if (event == E::exited && !world.process) continue;
    const ChildTransition to = transition(world.state, event);
    SCOPED_TRACE(text_of(world, event));
    World next = world;
    next.state = to.next;
    next.making = false;
    switch (to.action) {
      case A::spawn:
        ASSERT_FALSE(world.process);
        next.making = true;
        next.killed = false;
        break;
      case A::fail_spawn:
        ASSERT_TRUE(world.making);
        break;
      case A::bury:
        ASSERT_TRUE(world.process);
        ASSERT_EQ(event, E::exited) << "it is waited for, and only then";
        next.process = false;
        break;
      case A::abandon:
        ASSERT_TRUE(world.process);
        ASSERT_TRUE(world.killed);
        ASSERT_EQ(event, E::timeout);
        next.process = false;
        break;
      case A::blame:
      case A::kill:
        ASSERT_TRUE(world.process);
        ASSERT_FALSE(world.killed) << "once is enough";
        next.killed = true;
        break;
      case A::note:
      case A::announce:
      case A::ask:
      case A::insist:
        ASSERT_TRUE(world.process);
        break;
      case A::ignore:
        ASSERT_EQ(to.next, world.state);
        ASSERT_NE(event, E::exited) << "an end must not be missed";
        break;
    }
    explore(next, seen);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ChildMachine, AProcessIsThereExactlyInItsStatesAndIsLeftOnce) {  // (1), (2)
  std::set<World> seen;
  explore(World{}, seen);
  std::set<S> reached;
  for (const World& world : seen)
    reached.insert(world.state);
  EXPECT_EQ(reached.size(), kChildStates) << "some state can't be reached";
}

TEST(ChildMachine, StopAndTimeOutsEndEverything) {  // (3)
  for (S state : states()) {
    SCOPED_TRACE(name_of(state));
    state = transition(state, E::stop).next;
    int steps = 0;
    for (; has_process(state) && steps < 4; ++steps)
      state = transition(state, E::timeout).next;
    EXPECT_FALSE(has_process(state));
  }
}

TEST(ChildMachine, AnEndComesWithNoHelpOfTheProcess) {  // (3), from each state of an end.
  for (const S state : {S::asked, S::terminating, S::killing}) {
    const S next = transition(state, E::timeout).next;
    EXPECT_GT(next, state) << "it must go on towards the end";
    EXPECT_EQ(transition(state, E::stop).next, state) << "it is under way";
  }
}

TEST(ChildMachine, WhatAProcessSaysWhileItIsEndedIsIgnored) {  // (4)
  for (const S state : {S::asked, S::terminating, S::killing}) {
    for (const E event : {E::hello, E::step, E::ready, E::failed, E::disconnected})
      EXPECT_EQ(cell(state, event), ".") << name_of(state) << ", " << name_of(event);
    // Nonsense can only hurry it.
    EXPECT_EQ(transition(state, E::broken).next, S::killing) << name_of(state);
  }
}

TEST(ChildMachine, TheKindsOfStatesDivideThem) {
  for (const S state : states()) {
    const int kinds = static_cast<int>(is_starting(state)) + static_cast<int>(is_ending(state)) +
                      static_cast<int>(state == S::ready) + static_cast<int>(!has_process(state));
    EXPECT_EQ(kinds, 1) << name_of(state);
  }
}

}  // namespace
}  // namespace strata::node
