// Python programs under `strata exec`: their Python stacks are in the report, whatever they do with
// their stderr, and they notice nothing of it otherwise.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "diag_run.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class StrataExecPython : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c 'import os; os.memfd_create' 2>/dev/null") != 0) {
      GTEST_SKIP() << "There is no Python 3.8 or later.";
    }
  }
  std::string script(const std::string& text) {
    const std::string path = folder_.path() / "program.py";
    std::ofstream(path) << text;
    return path;
  }
  [[nodiscard]] std::string folder() const { return folder_.path(); }
  /// Found by the shell, which knows the way.
  static std::vector<std::string> python(const std::string& path) {
    return {"sh", "-c", "exec python3 \"$0\"", path};
  }

 private:
  TempDir folder_;
};

std::string all_python(const nlohmann::json& report) {
  std::string text;
  for (const auto& process : report.at("processes")) {
    if (process.at("python").is_object()) text += process.at("python").at("stacks");
  }
  return text;
}

TEST_F(StrataExecPython, AForkedGrandchildUnderACaptureIsExplained) {
  const std::string path = script(R"py(
import os, tempfile, threading, time

def stuck_in_python():
    time.sleep(1000)

def waits_in_a_thread(event):
    event.wait()

threading.Thread(target=waits_in_a_thread, args=(threading.Event(),), daemon=True).start()
# As a test runner that captures does.
capture = tempfile.TemporaryFile()
os.dup2(capture.fileno(), 1)
os.dup2(capture.fileno(), 2)
if os.fork() == 0:
    if os.fork() == 0:
        stuck_in_python()
    os.wait()
os.wait()
)py");
  const Executed executed = execute({"--timeout", "1.5", "--grace", "0.5"}, python(path));
  EXPECT_EQ(executed.result.code(), 124);
  ASSERT_THAT(executed.pids, SizeIs(3));
  EXPECT_THAT(all_python(executed.report),
              AllOf(HasSubstr("in stuck_in_python"), HasSubstr("in waits_in_a_thread")));
  const auto& grandchild = executed.report.at("processes")[2];
  EXPECT_THAT(grandchild.at("python").at("stacks").get<std::string>(),
              AllOf(HasSubstr("in stuck_in_python"), Not(HasSubstr("in waits_in_a_thread"))));
  EXPECT_THAT(verdict_of(executed.report),
              HasSubstr(fmt::format("in stuck_in_python() at {}:5", path)));
  // And native ones beside them.
  EXPECT_THAT(functions_of(grandchild), Not(IsEmpty()));
}

TEST_F(StrataExecPython, ASubprocessWithClosedDescriptorsIsExplainedToo) {
  const std::string path = script(R"py(
import subprocess, sys
subprocess.run([sys.executable, "-c", "import time\ndef inner():\n  time.sleep(1000)\ninner()"])
)py");
  const Executed executed = execute({"--timeout", "1.5", "--grace", "0.5"}, python(path));
  EXPECT_THAT(all_python(executed.report), HasSubstr("in inner"));
}

TEST_F(StrataExecPython, BelowTwoOfThemItIsExplainedByEither) {
  const std::string path = script("import time\ndef inner():\n  time.sleep(1000)\ninner()\n");
  const std::vector<std::string> soon = {"--timeout", "1.5", "--grace", "0.5"};
  const std::vector<std::string> inner = strata_with({"exec", "--", "python3", path});
  EXPECT_THAT(all_python(execute(soon, inner).report), HasSubstr("in inner"));
  const Program::Result outer = strata_command(
      {"exec", "--", STRATA_COMMAND_PATH, "exec", "--timeout", "1.5", "--", "python3", path});
  EXPECT_EQ(outer.code(), 124);
  EXPECT_THAT(outer.err, HasSubstr("in inner"));
}

TEST_F(StrataExecPython, AProgramThatHasAnsweredGoesOn) {
  // Looked at by `strata dump` while it computes and waits.
  const std::string path = script(R"py(
import sys
print("ready", flush=True)
total = 0
for i in range(3_000_000):
    total += i
sys.stdin.read()
print(total, flush=True)
)py");
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const os::UniqueFd read_end(ends[0]);
  os::UniqueFd write_end(ends[1]);
  Program program({"sh", "-c", "exec \"$0\" exec -- python3 \"$1\" <&9", STRATA_COMMAND_PATH, path},
                  {.descriptors = {{read_end.get(), 9}}});
  program.wait_for_output("ready");
  for (int i = 0; i < 3; ++i) {
    const auto dump = strata_command({"dump", std::to_string(program.pid()), "--json"});
    EXPECT_THAT(all_python(nlohmann::json::parse(dump.out)), HasSubstr("in <module>"));
  }
  write_end.reset();
  EXPECT_EQ(program.finish().out, "ready\n4499998500000\n");
}

TEST_F(StrataExecPython, TheProgramsOwnSitecustomizeAndPathStay) {
  std::ofstream(folder() + "/sitecustomize.py") << "import builtins\nbuiltins.mine = 'it ran'\n";
  std::ofstream(folder() + "/beside.py") << "value = 7\n";
  const std::string path = script(R"py(
import sys, beside
print(mine, beside.value, [p for p in sys.path if p.startswith("/proc/")])
import sitecustomize
print(sitecustomize.__file__)
)py");
  const Executed executed = execute({}, python(path), {.environment = {"PYTHONPATH=" + folder()}});
  EXPECT_EQ(executed.result.err, "");
  EXPECT_EQ(executed.result.out, "it ran 7 []\n" + folder() + "/sitecustomize.py\n");
}

TEST_F(StrataExecPython, WithoutTheHookItSaysWhyThereAreNoPythonStacks) {
  const std::string path = script("import time\nprint('ready', flush=True)\ntime.sleep(1000)\n");
  Program program(python(path));
  program.wait_for_output("ready");
  const auto dump =
      nlohmann::json::parse(strata_command({"dump", std::to_string(program.pid()), "--json"}).out);
  const auto& python = dump.at("processes")[0].at("python");
  ASSERT_TRUE(python.is_object());
  EXPECT_TRUE(python.at("stacks") != "" || python.at("note") != "");
}

}  // namespace
}  // namespace strata::test
