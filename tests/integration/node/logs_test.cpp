// What workers write reaches the program's stderr in whole lines, each with its writer's path.

#include <unistd.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "support/node_test.hpp"

namespace strata::test {
namespace {

class NodeLogs : public NodeTest {
 protected:
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      lines.push_back(line);
    return lines;
  }
};

TEST_F(NodeLogs, LinesOfAllWorkersArriveWholeAndPrefixed) {
  Program root("node_driver",
               {"init", "submit:write_lines:500@sub0", "submit:write_lines:500@sub1",
                "submit:write_lines:500@chip0", "submit:write_lines:500@next0", "run:nothing@sub0",
                "run:nothing@sub1", "run:nothing@chip0", "run:nothing@next0", "close"});
  ASSERT_EQ(root.end(20s), ProgramEnd{.exit_code = 0});
  std::map<std::string, int> count;
  for (const std::string& line : lines_of(root.errors())) {
    if (line.find("ends here") == std::string::npos) continue;
    EXPECT_TRUE(line.ends_with("ends here")) << line;
    EXPECT_EQ(line.find("line "), line.rfind("line ")) << line;
    const std::size_t node = line.find("node/");
    ASSERT_NE(node, std::string::npos) << line;
    const std::string prefix = line.substr(0, line.find("line "));
    // One prefix, also of what comes from two levels down.
    EXPECT_EQ(prefix.find("node/"), prefix.rfind("node/")) << line;
    EXPECT_EQ(line.find('\x1e'), std::string::npos);
    for (const char* path : {"node/sub[0]", "node/sub[1]", "node/chip[0]", "node/next[0]/sub["}) {
      if (prefix.find(path) != std::string::npos) ++count[path];
    }
  }
  EXPECT_EQ(count["node/sub[0]"], 500);
  EXPECT_EQ(count["node/sub[1]"], 500);
  EXPECT_EQ(count["node/chip[0]"], 500);
  EXPECT_EQ(count["node/next[0]/sub["], 500);
}

TEST_F(NodeLogs, TheLastLinesOfAWorkerThatDiesAreInItsError) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  const CallableId write = worker.add(task_in_library("write_lines"));
  const CallableId unfinished = worker.add(task_in_library("write_unfinished_line"));
  const CallableId crash = worker.add(task_in_library("abort_now"));
  const Run run = worker.submit([&](Orchestration& o) {
    o.submit(Call(write), scalar(std::int64_t{1000}), on(worker.sub(0)));
    o.submit(Call(unfinished), on(worker.sub(0)));
    o.submit(Call(crash), on(worker.sub(0)));
  });
  const auto fault = fault_of(run);
  ASSERT_TRUE(fault);
  ASSERT_GE(fault->log.size(), 100u);
  EXPECT_LE(fault->log.size(), 205u);
  const auto has = [&](const std::string& text) {
    return std::any_of(fault->log.begin(), fault->log.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  };
  EXPECT_TRUE(has("line 999 of"));
  EXPECT_TRUE(has("line 900 of"));
  EXPECT_FALSE(has("line 500 of"));
  EXPECT_TRUE(has("no newline after this"));
  EXPECT_THAT(fault->to_string(), HasSubstr("line 999 of"));
}

TEST_F(NodeLogs, ALineOfAnyLengthArrivesWhole) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  const CallableId write = worker.add(task_in_library("write_long_line"));
  testing::internal::CaptureStderr();
  worker.run([&](Orchestration& o) {
    o.submit(Call(write), scalar(std::int64_t{100'000}), on(worker.sub(0)));
  });
  worker.close();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find(text_of(100'000)), std::string::npos) << text.size();
}

TEST_F(NodeLogs, AProgramWhoseStderrIsNotReadStillCloses) {
  // The driver's stderr is a pipe that is full and that nobody reads.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const int saved = ::dup(2);
  ::dup2(ends[1], 2);
  {
    Worker worker({.subs = {{.count = 2}}});
    worker.init();
    const CallableId write = worker.add(task_in_library("write_lines"));
    worker.run([&](Orchestration& o) {
      for (int i = 0; i < 10; ++i)
        o.submit(Call(write), scalar(std::int64_t{2000}), on(worker.any_sub()));
    });
    worker.close();
  }
  ::dup2(saved, 2);
  for (const int fd : {saved, ends[0], ends[1]})
    ::close(fd);
}

}  // namespace
}  // namespace strata::test
