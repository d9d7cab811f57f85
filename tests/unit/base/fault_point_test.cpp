#include "base/fault_point.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "strata/error.hpp"
#include "support/temp_dir.hpp"

namespace strata::base {
namespace {

using namespace std::chrono_literals;

class FaultPoint : public testing::Test {
 protected:
  void SetUp() override {
    if (!kFaultPoints) GTEST_SKIP() << "this build has no fault points";
    set_faults("");
    set_fault_scope("");
  }
  void TearDown() override {
    set_faults("");
    set_fault_scope("");
  }
};

TEST(FaultPointOff, CostsAndDoesNothing) {
  if (kFaultPoints) GTEST_SKIP() << "this build has fault points";
  set_faults("a=exit:1");
  fault_point("a");
  EXPECT_EQ(fault_error("a"), 0);
  EXPECT_EQ(fault_point_hits("a"), 0U);
  EXPECT_TRUE(passed_fault_points().empty());
}

TEST_F(FaultPoint, NothingHappensUnasked) {
  fault_point("quiet");
  EXPECT_EQ(fault_error("quiet"), 0);
  EXPECT_EQ(fault_point_hits("quiet"), 2U);
}

TEST_F(FaultPoint, ErrorIsAnsweredByItsPointOnly) {
  set_faults("a.b=error:12");
  EXPECT_EQ(fault_error("a.b"), ENOMEM);
  EXPECT_EQ(fault_error("a.b"), ENOMEM);
  EXPECT_EQ(fault_error("a.bc"), 0);
  EXPECT_EQ(fault_error("a"), 0);
}

TEST_F(FaultPoint, StarMeansAllThatBeginSo) {
  set_faults("a.*=error:5");
  EXPECT_EQ(fault_error("a.b"), EIO);
  EXPECT_EQ(fault_error("a."), EIO);
  EXPECT_EQ(fault_error("a"), 0);
  set_faults("*=error:5");
  EXPECT_EQ(fault_error("anything"), EIO);
}

TEST_F(FaultPoint, AtTheThirdHitOnly) {
  set_faults("a=@3:error:5,b*=@2:error:7");
  const auto three = [](const char* name) {
    return std::vector<int>{fault_error(name), fault_error(name), fault_error(name),
                            fault_error(name)};
  };
  EXPECT_EQ(three("a"), (std::vector<int>{0, 0, 5, 0}));
  // A pattern counts the hits of all that it means.
  EXPECT_EQ(fault_error("b1"), 0);
  EXPECT_EQ(fault_error("b2"), 7);
  EXPECT_EQ(fault_error("b1"), 0);
  set_faults("a=@1:error:5");
  EXPECT_EQ(fault_error("a"), 5) << "counted from the last set_faults()";
}

TEST_F(FaultPoint, ScopeChoosesTheProcess) {
  set_faults("node/chip[1]:a=error:5");
  EXPECT_EQ(fault_error("a"), 0);
  set_fault_scope("node/chip[0]");
  EXPECT_EQ(fault_error("a"), 0);
  set_fault_scope("node/chip[1]");
  EXPECT_EQ(fault_error("a"), 5);
  set_faults("node/*:a=error:6");
  EXPECT_EQ(fault_error("a"), 6);
}

TEST_F(FaultPoint, DelayDelays) {
  set_faults("a=delay:20");
  const auto before = std::chrono::steady_clock::now();
  fault_point("a");
  EXPECT_GE(std::chrono::steady_clock::now() - before, 20ms);
}

TEST_F(FaultPoint, SignalReachesTheProcess) {
  static volatile sig_atomic_t handled = 0;
  handled = 0;
  const auto before = ::signal(SIGUSR1, [](int) { handled = handled + 1; });
  set_faults("a=signal:10");
  fault_point("a");
  ::signal(SIGUSR1, before);
  EXPECT_EQ(handled, 1);
}

TEST_F(FaultPoint, HitsAreCountedAndNamesRemembered) {
  fault_point("seen.two");
  fault_point("seen.one");
  fault_point("seen.two");
  EXPECT_EQ(fault_point_hits("seen.two"), 2U);
  EXPECT_EQ(fault_point_hits("never seen"), 0U);
  set_faults("");
  EXPECT_EQ(fault_point_hits("seen.two"), 0U);
  EXPECT_THAT(passed_fault_points(), testing::IsSupersetOf({"seen.one", "seen.two"}));
}

TEST_F(FaultPoint, MalformedTextIsRefusedAndChangesNothing) {
  set_faults("a=error:5");
  for (const char* text :
       {"a", "=stop", "a=", "a=jump", "a=exit", "a=exit:", "a=exit:x", "a=exit:7x", "a=@2",
        "a=@x:stop", "a=@:stop", "s:=stop", "a=stop:1", "b=stop,a", "a=exit:99999999999"}) {
    EXPECT_THROW(set_faults(text), InvalidArgument) << text;
  }
  EXPECT_EQ(fault_error("a"), 5);
  EXPECT_NO_THROW(set_faults(",a=stop,,b=stop,"));
}

TEST_F(FaultPoint, ThreadsMayPassPointsAtTheSameTime) {
  set_faults("a=@500:error:5");
  std::vector<std::thread> threads;
  std::atomic<int> errors{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 250; ++i)
        errors += fault_error("a") != 0 ? 1 : 0;
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(errors.load(), 1);
  EXPECT_EQ(fault_point_hits("a"), 1000U);
}

// Below, the point is passed in a new process, started by the test framework.
class FaultPointDeathTest : public FaultPoint {
 protected:
  void SetUp() override {
    FaultPoint::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  void TearDown() override {
    ::unsetenv("STRATA_FAULTS");
    ::unsetenv("STRATA_FAULT_LOG");
    FaultPoint::TearDown();
  }
};

TEST_F(FaultPointDeathTest, ExitEndsTheProcessWithThatStatus) {
  EXPECT_EXIT(
      {
        set_faults("a=exit:7");
        fault_point("a");
      },
      testing::ExitedWithCode(7), "");
}

TEST_F(FaultPointDeathTest, SignalKillsTheProcess) {
  EXPECT_EXIT(
      {
        set_faults("a=signal:9");
        fault_point("a");
      },
      testing::KilledBySignal(SIGKILL), "");
}

/// For processes of which the environment alone says what they do: a test that asks for it and one
/// that is asked. Runs this test program anew, with one test.
int run_disabled_test(const char* name) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "exec '" + program +
                              "' --gtest_also_run_disabled_tests --gtest_filter=" + name +
                              " >/dev/null 2>&1";
  const int status = std::system(command.c_str());  // NOLINT(cert-env33-c)
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(FaultPointChild, DISABLED_PassesPoints) {
  fault_point("child.one");
  set_fault_scope("node/chip[1]");
  fault_point("child.two");
  fault_point("child.two");
}

TEST_F(FaultPointDeathTest, EnvironmentReachesOtherProcesses) {
  EXPECT_EQ(run_disabled_test("FaultPointChild.DISABLED_PassesPoints"), 0);
  ::setenv("STRATA_FAULTS", "node/chip[1]:child.*=exit:33", 1);
  EXPECT_EQ(run_disabled_test("FaultPointChild.DISABLED_PassesPoints"), 33);
  ::setenv("STRATA_FAULTS", "node/chip[2]:child.*=exit:33", 1);
  EXPECT_EQ(run_disabled_test("FaultPointChild.DISABLED_PassesPoints"), 0);
  ::setenv("STRATA_FAULTS", "nonsense", 1);
  EXPECT_EQ(run_disabled_test("FaultPointChild.DISABLED_PassesPoints"), 2);
}

TEST_F(FaultPointDeathTest, LogNamesEachPointOnceInAFormThatFaultsTake) {
  const test::TempDir folder;
  const std::string path = (folder.path() / "log").string();
  ::setenv("STRATA_FAULT_LOG", path.c_str(), 1);
  EXPECT_EQ(run_disabled_test("FaultPointChild.DISABLED_PassesPoints"), 0);
  EXPECT_EQ(run_disabled_test("FaultPointChild.DISABLED_PassesPoints"), 0);
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string once = "child.one\nnode/chip[1]:child.two\n";
  EXPECT_EQ(text, once + once);
}

}  // namespace
}  // namespace strata::base
