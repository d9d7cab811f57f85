// The death of the user's program, by whatever signal: nothing is left of the tree (design.md, P3,
// P4, P7). Moments within the state machine are in tests/fault.

#include <signal.h>

#include <thread>

#include "support/node_test.hpp"
#include "support/random.hpp"

namespace strata::test {
namespace {

class NodeRootDeath : public NodeTest {
 protected:
  /// Within the second that is promised no descendant is left.
  static void expect_nothing_left(const Program& root) {
    EXPECT_TRUE(within(1s, [&] { return root.descendants().empty(); }))
        << to_string(root.descendants());
  }
};

// "SIGKILL of the root [...] idle, in a task that spins without a system call, and in one that
// sleeps: within 1 s no descendant is left, nothing in the shared-memory or temporary file
// systems."
TEST_F(NodeRootDeath, SigkillWhileIdleLeavesNothing) {
  Program root("node_driver", {"init", "run:nothing@sub", "pause"});
  ASSERT_TRUE(root.line("pausing", 10s));
  EXPECT_EQ(root.descendants().size(), kTreeProcesses);
  root.signal(SIGKILL);
  expect_nothing_left(root);
}

class NodeRootDeathInTask : public NodeRootDeath,
                            public testing::WithParamInterface<const char*> {};

TEST_P(NodeRootDeathInTask, SigkillLeavesNothing) {
  for (const char* place : {"sub1", "chip0", "next0"}) {
    Program root("node_driver",
                 {"init", std::string("submit:") + GetParam() + "@" + place, "pause"});
    ASSERT_TRUE(root.line("pausing", 10s));
    EXPECT_EQ(root.descendants().size(), kTreeProcesses);
    root.signal(SIGKILL);
    expect_nothing_left(root);
  }
}

INSTANTIATE_TEST_SUITE_P(All, NodeRootDeathInTask,
                         testing::Values("spin", "sleep_for_ever", "ignore_everything"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(NodeRootDeath, ThreeLevelsOfWorkersGoTogether) {
  Program root("node_driver", {"tree=deep", "init", "submit:spin@next0+1", "pause"});
  ASSERT_TRUE(root.line("pausing", 10s));
  EXPECT_EQ(root.descendants().size(), 3u);
  root.signal(SIGKILL);
  expect_nothing_left(root);
}

TEST_F(NodeRootDeath, EveryOtherFatalSignalLeavesNothingEither) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGSEGV, SIGABRT, SIGUSR1, SIGALRM}) {
    Program root("node_driver", {"init", "submit:spin@sub0", "pause"});
    ASSERT_TRUE(root.line("pausing", 10s));
    root.signal(number);
    const auto end = root.end(2s);
    ASSERT_TRUE(end) << number;
    EXPECT_EQ(end->signal, number);
    expect_nothing_left(root);
  }
}

TEST_F(NodeRootDeath, AnEndOfMainWithoutCloseLeavesNothing) {
  Program root("node_driver", {"init", "run:nothing@next0"});
  const auto end = root.end(10s);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code, 0);
  expect_nothing_left(root);
}

// "SIGTERM to the parent at every moment [...] over start, run and close [...]. Always: nothing
// left, parent dies of SIGTERM, exits 143, or gets Cancelled where the program asked for that."
struct Scope {
  const char* name;
  const char* argument;  ///< Of the driver; empty for none.
};
void PrintTo(const Scope& scope, std::ostream* stream) { *stream << scope.name; }

class NodeRootSignal : public NodeRootDeath, public testing::WithParamInterface<Scope> {
 protected:
  static std::vector<std::string> steps(std::vector<std::string> wanted) {
    if (*GetParam().argument != '\0') wanted.insert(wanted.begin(), GetParam().argument);
    return wanted;
  }
  static void expect_end(Program& root, int number, const std::string& what) {
    const auto end = root.end(5s);
    ASSERT_TRUE(end) << what << ": it goes on";
    const bool cancels = std::string(GetParam().argument) == "scope=cancel";
    if (cancels) {
      EXPECT_EQ(end->exit_code, 30) << what << ": " << to_string(*end) << "\n" << root.output();
    } else {
      EXPECT_TRUE(end->signal == number || end->exit_code == 128 + number)
          << what << ": " << to_string(*end);
    }
    expect_nothing_left(root);
  }
};

TEST_P(NodeRootSignal, WhileIdleInARunAndInAHangingTask) {
  for (const char* task :
       {"submit:until_cancelled@sub0", "submit:sleep_for_ever@chip1", "submit:spin@next0"}) {
    // The program waits for the run's end in "close", which a signal cancels.
    Program root("node_driver",
                 steps({"close-limit=300", "init", task, "run:sleep_for_ever@sub1"}));
    ASSERT_TRUE(root.line("begun", 10s));
    std::this_thread::sleep_for(20ms);
    root.signal(SIGTERM);
    expect_end(root, SIGTERM, task);
  }
}

TEST_P(NodeRootSignal, AtRandomMomentsOfStartRunAndClose) {
  Random random(static_cast<std::uint64_t>(GetParam().name[0]));
  constexpr int kRounds = 60;
  for (int i = 0; i < kRounds; ++i) {
    Program root("node_driver", steps({"close-limit=1000", "cycle"}));
    // Before or in the first start, or somewhere in the cycles after that.
    const bool first = i % 3 == 0;
    if (!first) {
      ASSERT_TRUE(root.line("cycle", 20s));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(first ? 40'000 : 150'000)));
    // A signal before the SignalScope exists, or before main, is like in any program.
    const bool ready_to_cancel = !first || root.output().find("cycle") != std::string::npos;
    root.signal(i % 2 == 0 ? SIGTERM : SIGINT);
    const int number = i % 2 == 0 ? SIGTERM : SIGINT;
    if (ready_to_cancel) {
      expect_end(root, number, "round " + std::to_string(i));
    } else {
      const auto end = root.end(5s);
      ASSERT_TRUE(end);
      EXPECT_TRUE(end->signal == number || end->exit_code == 128 + number || end->exit_code == 30)
          << to_string(*end);
      expect_nothing_left(root);
    }
  }
}

TEST_P(NodeRootSignal, ManySignalsAtOnceAreAsGoodAsOne) {
  for (int i = 0; i < 5; ++i) {
    Program root("node_driver",
                 steps({"close-limit=300", "init", "submit:spin@sub0", "run:sleep_for_ever@sub1"}));
    ASSERT_TRUE(root.line("begun", 10s));
    for (int n = 0; n < 20; ++n)
      root.signal(SIGTERM);
    expect_end(root, SIGTERM, "many");
  }
}

INSTANTIATE_TEST_SUITE_P(All, NodeRootSignal,
                         testing::Values(Scope{"WithoutScope", ""},
                                         Scope{"ThatCancels", "scope=cancel"},
                                         Scope{"ThatTerminates", "scope=terminate"}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace strata::test
