// `strata ps`: finds trees whoever made them and whatever they do. The trees here are made of
// records that the test writes and of programs that know nothing of Strata.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "os/memfd.hpp"
#include "os/procfs.hpp"
#include "strata_command.hpp"
#include "trace/process_record.hpp"

namespace strata::test {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using trace::ProcessRecord;
using trace::ProcessState;

/// A path that no other test that runs at the same time has.
std::string unique_name(const std::string& name) {
  return fmt::format("ps-test-{}-{}", name, ::getpid());
}

ProcessRecord record_of(const std::string& path, const std::string& role) {
  return ProcessRecord::create({.path = path, .role = role});
}

/// All trees whose root has this path.
std::vector<json> trees_of(const std::string& path) {
  const Program::Result result = strata_command({"ps", "--json"});
  EXPECT_EQ(result.code(), 0);
  EXPECT_EQ(result.err, "");
  const json all = json::parse(result.out);
  std::vector<json> trees;
  for (const json& tree : all.at("trees")) {
    if (tree.at("path") == path) trees.push_back(tree);
  }
  return trees;
}

std::vector<std::string> table_lines(const std::string& path) {
  std::vector<std::string> lines;
  for (const std::string& line : lines_of(strata_command({"ps"}).out)) {
    if (line.find(path) != std::string::npos) lines.push_back(line);
  }
  return lines;
}

/// A process that sleeps, with this record as a worker has it.
class Sleeper {
 public:
  explicit Sleeper(ProcessRecord& record)
      : program_({"sleep", "1000"}, {.descriptors = {{record.fd(), 5}}}) {
    record.set_pid(program_.pid());
  }
  ~Sleeper() { program_.send(SIGKILL); }
  [[nodiscard]] pid_t pid() const { return program_.pid(); }
  void send(int signal) { program_.send(signal); }

 private:
  Program program_;
};

TEST(StrataPs, ListsATreeWithRolesStatesAndTasks) {
  const std::string root = unique_name("tree");
  // This process is the user's, its children are the workers.
  ProcessRecord own = record_of(root, "node");
  own.set_pid(::getpid());
  own.set_state(ProcessState::idle);
  ProcessRecord late = record_of(root + "/sub[10]", "sub worker");
  ProcessRecord chip = record_of(root + "/chip[0]", "chip worker");
  ProcessRecord early = record_of(root + "/sub[9]", "sub worker");
  const Sleeper a(late);
  const Sleeper b(chip);
  const Sleeper c(early);
  late.set_state(ProcessState::initialising);
  late.set_step("load library ./libmath.so");
  chip.set_state(ProcessState::running);
  chip.begin_task(17, "scale the tile", "scale");
  early.set_state(ProcessState::idle);

  const std::vector<json> trees = trees_of(root);
  ASSERT_THAT(trees, SizeIs(1));
  const json& tree = trees[0];
  EXPECT_EQ(tree.at("pid"), ::getpid());
  EXPECT_EQ(tree.at("role"), "node");
  ASSERT_THAT(tree.at("children"), SizeIs(3));
  const json& children = tree.at("children");
  EXPECT_EQ(children[0].at("path"), root + "/chip[0]");
  EXPECT_EQ(children[0].at("pid"), b.pid());
  EXPECT_EQ(children[0].at("state"), "running");
  EXPECT_EQ(children[0].at("task").at("id"), 17);
  EXPECT_EQ(children[0].at("task").at("name"), "scale the tile");
  EXPECT_EQ(children[0].at("task").at("callable"), "scale");
  EXPECT_GE(children[0].at("task").at("for_s"), 0);
  EXPECT_EQ(children[1].at("path"), root + "/sub[9]") << "Before sub[10].";
  EXPECT_EQ(children[1].at("state"), "idle");
  EXPECT_EQ(children[1].at("task"), nullptr);
  EXPECT_EQ(children[1].at("command_line"), (json{"sleep", "1000"}));
  EXPECT_EQ(children[2].at("path"), root + "/sub[10]");
  EXPECT_EQ(children[2].at("state"), "initialising");
  EXPECT_EQ(children[2].at("step"), "load library ./libmath.so");

  const std::vector<std::string> lines = table_lines(root);
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_THAT(lines[0], HasSubstr(fmt::format("{}  {}", ::getpid(), root)));
  EXPECT_THAT(lines[1], HasSubstr(fmt::format("{}    {}/chip[0]", b.pid(), root)));
  EXPECT_THAT(lines[1], HasSubstr("chip worker"));
  EXPECT_THAT(lines[1], HasSubstr("task 17 scale the tile (scale), for "));
  EXPECT_THAT(lines[3], HasSubstr("load library ./libmath.so, for "));
}

TEST(StrataPs, ProcessesBetweenTwoWorkersDoNotBreakTheTree) {
  const std::string root = unique_name("deep");
  ProcessRecord next = record_of(root, "next-level worker");
  ProcessRecord sub = record_of(root + "/sub[0]", "sub worker");
  // A process, one that is none of Strata's, and one below that. All have both records open, as a
  // parent has those of its children.
  Program program({"sh", "-c", "sh -c 'sleep 1000 & echo $!.; wait' & wait"},
                  {.descriptors = {{next.fd(), 5}, {sub.fd(), 6}}});
  const std::string out = program.wait_for_output(".");
  next.set_pid(program.pid());
  sub.set_pid(std::stoi(out));

  const std::vector<json> trees = trees_of(root);
  ASSERT_THAT(trees, SizeIs(1));
  EXPECT_EQ(trees[0].at("pid"), program.pid());
  ASSERT_THAT(trees[0].at("children"), SizeIs(1));
  EXPECT_EQ(trees[0].at("children")[0].at("pid"), std::stoi(out));
  EXPECT_THAT(table_lines(root), SizeIs(2));
  for (const pid_t pid : os::descendants_of(program.pid()))
    ::kill(pid, SIGKILL);
}

TEST(StrataPs, AStoppedProcessIsListedAsSuch) {
  const std::string root = unique_name("stopped");
  ProcessRecord record = record_of(root, "sub worker");
  record.set_state(ProcessState::running);
  Sleeper sleeper(record);
  sleeper.send(SIGSTOP);
  const Guard guard("the kernel should stop a process");
  while (os::read_process(sleeper.pid())->state != 'T')
    ::usleep(1000);
  const std::vector<json> trees = trees_of(root);
  ASSERT_THAT(trees, SizeIs(1));
  EXPECT_EQ(trees[0].at("stopped"), true);
  EXPECT_THAT(table_lines(root), ElementsAre(HasSubstr("running, stopped")));
}

TEST(StrataPs, WhoHasEndedIsNotListed) {
  const std::string root = unique_name("ended");
  ProcessRecord record = record_of(root, "sub worker");
  {
    Sleeper sleeper(record);
    sleeper.send(SIGKILL);
    wait_until_gone(sleeper.pid());
    EXPECT_THAT(trees_of(root), IsEmpty()) << "Not waited for yet.";
  }
  EXPECT_THAT(trees_of(root), IsEmpty());
}

TEST(StrataPs, BrokenRecordsHarmNobody) {
  const std::string root = unique_name("broken");
  const os::UniqueFd garbage = os::make_memfd("strata-process", 1 << 20);
  const std::string text(1 << 20, '\x5a');
  ASSERT_EQ(::pwrite(garbage.get(), text.data(), text.size(), 0), 1 << 20);
  const os::UniqueFd small = os::make_memfd("strata-process", 8);
  ProcessRecord record = record_of(root, "sub worker");
  Program program({"sleep", "1000"},
                  {.descriptors = {{garbage.get(), 5}, {small.get(), 6}, {record.fd(), 7}}});
  record.set_pid(program.pid());
  EXPECT_THAT(trees_of(root), SizeIs(1));
}

TEST(StrataPs, WhatATerminalWouldObeyIsNotPrinted) {
  const std::string root = unique_name("escape");
  ProcessRecord record = record_of(root, "sub worker");
  record.begin_task(1, "a\x1b[2Jb\nc", "d");
  const Sleeper sleeper(record);
  EXPECT_THAT(table_lines(root), ElementsAre(HasSubstr("task 1 a?[2Jb?c (d)")));
  EXPECT_EQ(trees_of(root)[0].at("task").at("name"), "a\x1b[2Jb\nc");
}

TEST(StrataPs, WatchLooksAgainUntilItIsEnded) {
  const std::string root = unique_name("watch");
  ProcessRecord record = record_of(root, "sub worker");
  record.set_state(ProcessState::idle);
  const Sleeper sleeper(record);
  Program watch(strata_with({"ps", "--watch", "0.01", "--json"}));
  watch.wait_for_output("\"state\":\"idle\"");
  record.set_state(ProcessState::stopping);
  watch.wait_for_output("\"state\":\"stopping\"");
  watch.send(SIGTERM);
  for (const std::string& line : lines_of(watch.finish().out)) {
    EXPECT_TRUE(json::accept(line)) << line;
  }
}

}  // namespace
}  // namespace strata::test
