// The command and a real tree of workers: prefixes from all levels, the tree in `strata ps`, and
// nothing left when `strata run` is killed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "os/procfs.hpp"
#include "strata_command.hpp"

namespace strata::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::SizeIs;
using testing::UnorderedElementsAre;

TEST(StrataRunWithWorkers, LinesOfAllLevelsHaveOnePrefix) {
  const Program::Result result = strata_command({"run", "--", STRATA_TREE_PROGRAM});
  EXPECT_EQ(result.code(), 3);
  EXPECT_THAT(lines_of(result.err),
              UnorderedElementsAre(
                  "[tree/sub[0]] a line of a sub worker", "[tree/sub[0]] and half a line",
                  "[tree/next[0]/sub[0]] a line of a sub worker",
                  "[tree/next[0]/sub[0]] and half a line", "[tree_program] line of the program"));
}

TEST(StrataRunWithWorkers, WithoutTheCommandTheProgramsOwnLinesHaveNone) {
  const Program::Result result = Program({STRATA_TREE_PROGRAM}).finish();
  EXPECT_EQ(result.code(), 3);
  EXPECT_THAT(
      lines_of(result.err),
      UnorderedElementsAre("[tree/sub[0]] a line of a sub worker", "[tree/sub[0]] and half a line",
                           "[tree/next[0]/sub[0]] a line of a sub worker",
                           "[tree/next[0]/sub[0]] and half a line", "line of the program"));
}

/// The tree of the program that runs below this process; null until it is there.
json tree_below(pid_t command) {
  const json all = json::parse(strata_command({"ps", "--json"}).out);
  for (const json& tree : all.at("trees")) {
    if (tree.at("parent") == command) return tree;
  }
  return nullptr;
}

TEST(StrataRunWithWorkers, TheTreeIsListedAndGoneOnceTheCommandIsKilled) {
  // A stdin that stays open.
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const os::UniqueFd read_end(ends[0]);
  const os::UniqueFd write_end(ends[1]);
  Program command({"sh", "-c", "exec \"$@\" <&9", "sh", STRATA_COMMAND_PATH, "run", "--",
                   STRATA_TREE_PROGRAM, "hang"},
                  {.descriptors = {{read_end.get(), 9}}});
  command.wait_for_output("ready");

  const Guard guard("the hanging task should appear in strata ps");
  json tree;
  for (;;) {
    tree = tree_below(command.pid());
    if (tree.is_object() && tree.at("children").size() == 2 &&
        tree.at("children")[1].at("task").is_object()) {
      break;
    }
    ::usleep(10'000);
  }
  EXPECT_EQ(tree.at("path"), "tree");
  const json& next = tree.at("children")[0];
  const json& sub = tree.at("children")[1];
  EXPECT_EQ(next.at("path"), "tree/next[0]");
  EXPECT_EQ(next.at("role"), "next-level worker");
  ASSERT_THAT(next.at("children"), SizeIs(1));
  EXPECT_EQ(next.at("children")[0].at("path"), "tree/next[0]/sub[0]");
  EXPECT_EQ(next.at("children")[0].at("task"), nullptr);
  EXPECT_EQ(sub.at("path"), "tree/sub[0]");
  EXPECT_EQ(sub.at("role"), "sub worker");
  EXPECT_EQ(sub.at("state"), "running");
  EXPECT_EQ(sub.at("task").at("name"), "never ends");

  command.send(SIGKILL);
  for (const json& process : {tree, next, sub, next.at("children")[0]}) {
    wait_until_gone(process.at("pid"));
  }
}

}  // namespace
}  // namespace strata::test
