#include "diag/python_stack.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <string>

#include "diag/python_hook.hpp"
#include "os/procfs.hpp"

namespace strata::diag {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

TEST(PythonFrames, AreReadFromFaulthandlersText) {
  const auto stacks = python_frames(
      "Thread 0x00007ff93fe426c0 (most recent call first):\n"
      "  File \"/a b/c\", line 1.py\", line 327 in wait\n"
      "  File \"x.py\", line 5 in <module>\n"
      "\n"
      "Current thread 0x00007ff940c8cb80 [python] (most recent call first):\n"
      "  File \"y.py\", line ??? in f\n"
      "  ...\n");
  ASSERT_THAT(stacks, SizeIs(2));
  const auto& first = stacks.at(0x7ff93fe426c0);
  ASSERT_THAT(first, SizeIs(2));
  EXPECT_EQ(first[0].file, "/a b/c\", line 1.py");
  EXPECT_EQ(first[0].line, 327);
  EXPECT_EQ(first[0].function, "wait");
  EXPECT_EQ(first[1].function, "<module>");
  const auto& second = stacks.at(0x7ff940c8cb80);
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(second[0].function, "f");
}

TEST(PythonFrames, OfAnythingElseThereAreNone) {
  for (const char* text : {"", "\n\n", "  File \"a.py\", line 1 in f\n", "Thread ", "Thread 0x"}) {
    for (const auto& [thread, frames] : python_frames(text))
      EXPECT_TRUE(frames.empty()) << text;
  }
}

TEST(PythonStacks, AProcessThatIsNoPythonIsNotAsked) {
  const PythonStacks stacks =
      python_stacks_of(::getpid(), os::Deadline::after(std::chrono::seconds(1)));
  EXPECT_FALSE(stacks.is_python);
  EXPECT_EQ(stacks.text, "");
}

TEST(PythonHook, StandsFirstOnThePathAndLeavesTheRest) {
  const PythonHook hook;
  std::vector<std::string> environment = {"A=1", "PYTHONPATH=/mine:/other"};
  hook.add_to(environment);
  EXPECT_THAT(environment, ElementsAre("A=1", "PYTHONPATH=" + hook.path() + ":/mine:/other"));
  environment = {"PYTHONPATH="};
  hook.add_to(environment);
  EXPECT_THAT(environment, ElementsAre("PYTHONPATH=" + hook.path()));
  environment = {};
  hook.add_to(environment);
  EXPECT_THAT(environment, ElementsAre("PYTHONPATH=" + hook.path()));
  EXPECT_THAT(os::read_small_file(hook.path()).value_or(""), StartsWith("PK\x03\x04"));
}

}  // namespace
}  // namespace strata::diag
