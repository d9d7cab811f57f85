// Signals, kills and cancels that hit the parent while a worker process is in a given state of the
// supervisor's table. A thread of the program waits for the state, then a random time, then notes
// what states its workers are in and sends the signal: so the report counts what was really hit.
//
// "SIGTERM to the parent at every moment: random moments drawn per state over start, run and close
// (the report shows at least 5 hits in every Supervisor state)."

#include <signal.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "support/node_test.hpp"
#include "support/random.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {
namespace {

/// States in which a process can be met, the order as in the table.
constexpr const char* kStates[] = {"absent", "spawned", "connected",   "initialising",
                                   "ready",  "asked",   "terminating", "killing"};
constexpr int kHits = 5;

struct Way {
  const char* name;
  const char* scope;   ///< Argument of the driver; empty for none.
  const char* action;  ///< Step of the driver.
};
void PrintTo(const Way& way, std::ostream* stream) { *stream << way.name; }

class SignalStates : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override { std::ofstream(told_) << "nap 5"; }

  /// A life that comes through the state: most do so in any start or close.
  static std::vector<std::string> steps_through(const std::string& state, std::uint64_t us) {
    std::vector<std::string> steps{"tree=subs", "close-limit=150"};
    if (*GetParam().scope != '\0') steps.emplace_back(GetParam().scope);
    const std::string watch =
        std::string(GetParam().action) + ":" + state + ":" + std::to_string(us);
    if (state == "terminating" || state == "killing") {
      // Only a worker whose task does not listen gets that far.
      for (const char* step : {"init", "submit:ignore_everything@sub0"})
        steps.emplace_back(step);
      steps.push_back(watch);
      for (const char* step : {"close", "pause"})
        steps.emplace_back(step);
    } else if (state == "absent") {
      for (const char* step : {"init", "close"})
        steps.emplace_back(step);
      steps.push_back(watch);
      steps.emplace_back("cycle");
    } else {
      steps.push_back(watch);
      steps.emplace_back("cycle");
    }
    return steps;
  }

  static bool by_signal() { return std::string(GetParam().action) == "signal-in"; }
  /// Whether the program is told by Cancelled, rather than ended.
  static bool cancels() { return std::string(GetParam().scope) == "scope=cancel" || !by_signal(); }
  static void expect_end(const ProgramEnd& end, const Program& root) {
    if (!cancels()) {
      EXPECT_TRUE(end.signal == SIGTERM || end.exit_code == 143) << to_string(end);
      return;
    }
    // Cancelled, or an error of the very close that was cancelled; never anything else.
    EXPECT_TRUE(end.exit_code == 30 ||
                (end.exit_code == 31 && root.output().find("CloseFailed") != std::string::npos))
        << to_string(end) << "\n"
        << root.output();
  }

  TempDir folder_;
  const std::string told_ = (folder_.path() / "setup").string();
};

TEST_P(SignalStates, EveryStateIsHitAndNothingIsLeft) {
  std::map<std::string, int> hits;
  Random random(5);
  for (const std::string state : kStates) {
    // A Worker without processes has nothing to cancel: the program goes on, as it should.
    if (state == "absent" && !by_signal()) continue;
    for (int round = 0; round < 40 * kHits && hits[state] < kHits; ++round) {
      SCOPED_TRACE(state + ", round " + std::to_string(round));
      Guard guard(state, std::chrono::duration_cast<std::chrono::seconds>(bound(60s)));
      // States that are left by themselves within microseconds are hit at once.
      const bool brief = state == "spawned" || state == "connected" || state == "killing" ||
                         (state == "asked" && round % 4 != 0);
      Program root("node_driver", steps_through(state, brief ? 0 : random.below(4000)),
                   {{"STRATA_TEST_SETUP", told_}});
      // A state may be over before the program's thread has seen it: then this round is void.
      const auto hit = [&] { return root.output().find("hit ") != std::string::npos; };
      ASSERT_TRUE(within(20s, [&] { return hit() || root.ended(); })) << root.output();
      if (!hit()) {
        EXPECT_TRUE(within(1s, [&] { return root.descendants().empty(); }));
        continue;
      }
      std::istringstream output(*root.line("hit", 1s));
      for (std::string word; output >> word;)
        ++hits[word];
      // A close that is cancelled goes on to its end, which is right; then the program pauses.
      (void)within(
          5s, [&] { return root.ended() || root.output().find("pausing") != std::string::npos; });
      if (!root.ended() && cancels()) root.signal(SIGKILL);
      const auto end = root.end(5s);
      ASSERT_TRUE(end) << "it goes on:\n" << root.output();
      if (!(cancels() && end->signal == SIGKILL)) expect_end(*end, root);
      EXPECT_TRUE(within(1s, [&] { return root.descendants().empty(); }))
          << to_string(root.descendants());
    }
  }
  std::printf("%s: hits by state\n", GetParam().name);
  for (const char* state : kStates) {
    std::printf("  %-13s %d\n", state, hits[state]);
    if (std::string(state) != "absent" || by_signal()) {
      EXPECT_GE(hits[state], kHits) << state;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SignalStates,
                         testing::Values(Way{"SigtermWithoutScope", "", "signal-in"},
                                         Way{"SigtermThatCancels", "scope=cancel", "signal-in"},
                                         Way{"SigtermThatTerminates", "scope=terminate",
                                             "signal-in"},
                                         Way{"CancelFromAnotherThread", "", "cancel-in"}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace strata::test
