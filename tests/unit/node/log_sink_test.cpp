// Attacks the invariants of node/log_sink.hpp.
#include "node/log_sink.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "os/unique_fd.hpp"
#include "support/guard.hpp"
#include "support/process.hpp"

namespace strata::node {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const auto kLong = os::Deadline::after(10min);

/// A pipe whose bytes a thread reads, from the beginning or once it is told to.
class Reader {
 public:
  explicit Reader(bool at_once = true) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    in_.reset(ends[0]);
    out_.reset(ends[1]);
    if (at_once) start();
  }
  ~Reader() {
    out_.reset();
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] int fd() const { return out_.get(); }
  void start() {
    thread_ = std::thread([this] {
      char bytes[4096];
      for (ssize_t got = 0; (got = ::read(in_.get(), bytes, sizeof bytes)) > 0;) {
        text_.append(bytes, static_cast<std::size_t>(got));
      }
    });
  }
  /// Without a thread: reads what is there; false if there is nothing.
  bool read_now() {
    int there = 0;
    EXPECT_EQ(::ioctl(in_.get(), FIONREAD, &there), 0);
    char bytes[4096];
    return there > 0 && ::read(in_.get(), bytes, sizeof bytes) > 0;
  }
  void close_read_end() { in_.reset(); }
  /// Everything, once all writers are gone.
  std::vector<std::string> lines() {
    out_.reset();
    thread_.join();
    std::vector<std::string> all;
    std::istringstream stream(text_);
    for (std::string line; std::getline(stream, line);)
      all.push_back(line);
    return all;
  }

 private:
  os::UniqueFd in_;
  os::UniqueFd out_;
  std::string text_;
  std::thread thread_;
};

/// Sets a variable of the environment for a test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(LogSink, LinesHaveThePathOfTheirProcess) {
  Reader reader;
  {
    LogSink sink({.fd = reader.fd()});
    sink.worker_line("node/sub[0]", "hello");
    sink.message(LogLevel::warning, "node", "careful");
    sink.message(LogLevel::error, "node/chip[1]", "two\nlines\n");
    EXPECT_TRUE(sink.flush(kLong));
  }
  EXPECT_THAT(reader.lines(), ElementsAre("[node/sub[0]] hello", "[node] strata: warning: careful",
                                          "[node/chip[1]] strata: error: two",
                                          "[node/chip[1]] strata: error: lines"));
}

TEST(LogSink, TheLevelLeavesOutMessagesAndNeverWorkerLines) {
  Reader reader;
  {
    LogSink sink({.fd = reader.fd(), .level = LogLevel::warning});
    EXPECT_FALSE(sink.enabled(LogLevel::info));
    EXPECT_TRUE(sink.enabled(LogLevel::error));
    EXPECT_FALSE(sink.enabled(LogLevel::off));
    sink.message(LogLevel::info, "node", "not this");
    sink.message(LogLevel::warning, "node", "this");
    sink.set_level(LogLevel::off);
    sink.message(LogLevel::error, "node", "not this");
    sink.worker_line("node/sub[0]", "and this");
  }
  EXPECT_THAT(reader.lines(),
              ElementsAre("[node] strata: warning: this", "[node/sub[0]] and this"));
}

TEST(LogSink, TheEnvironmentOverridesTheLevel) {
  const Variable level(kLogLevelVariable, "error");
  Reader reader;
  const LogSink sink({.fd = reader.fd(), .level = LogLevel::debug});
  EXPECT_EQ(sink.level(), LogLevel::error);
}

TEST(LogSink, ALevelThatDoesNotExistIsToldOf) {
  const Variable level(kLogLevelVariable, "loud");
  Reader reader;
  {
    const LogSink sink({.fd = reader.fd()});
    EXPECT_EQ(sink.level(), LogLevel::info);
  }
  EXPECT_THAT(reader.lines(), ElementsAre(HasSubstr("is 'loud', which is none of debug, info")));
}

TEST(LogSink, LinesFromBelowKeepThePrefixTheyHave) {
  Reader reader;
  {
    LogSink sink({.fd = reader.fd()});
    sink.worker_line("node/next[0]", "\x1e[node/next[0]/sub[1]] deep");
  }
  EXPECT_THAT(reader.lines(), ElementsAre("[node/next[0]/sub[1]] deep"));
}

TEST(LogSink, AWorkerProcessMarksWhatItPassesOn) {
  Reader reader;
  {
    LogSink sink({.fd = reader.fd(), .marked = true});
    sink.worker_line("node/next[0]/sub[1]", "deep");
    sink.worker_line("node/next[0]/next[0]", "\x1e[node/next[0]/next[0]/sub[0]] deeper");
  }
  EXPECT_THAT(reader.lines(), ElementsAre("\x1e[node/next[0]/sub[1]] deep",
                                          "\x1e[node/next[0]/next[0]/sub[0]] deeper"));
}

TEST(LogSink, MarksLinesWhereTheReaderOfItsStderrSaysSo) {
  Reader asked;
  Reader other;
  struct stat status {};
  ASSERT_EQ(::fstat(asked.fd(), &status), 0);
  const Variable stream(kLogStreamVariable, fmt::format("{}:{}", status.st_dev, status.st_ino));
  LogSink({.fd = asked.fd()}).worker_line("node", "x");
  LogSink({.fd = other.fd()}).worker_line("node", "x");
  EXPECT_THAT(asked.lines(), ElementsAre("\x1e[node] x"));
  EXPECT_THAT(other.lines(), ElementsAre("[node] x"));
}

TEST(LogSink, LinesOfManyThreadsAreWholeAndInEachThreadsOrder) {
  constexpr int kThreads = 4;
  constexpr int kLines = 500;
  Reader reader;
  {
    LogSink sink({.fd = reader.fd(), .queue_bytes = 1 << 30});
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&sink, t] {
        for (int i = 0; i < kLines; ++i) {
          // Every tenth is longer than what a pipe takes at once.
          const std::string filler(i % 10 == 0 ? 9000 : 20, static_cast<char>('a' + t));
          sink.worker_line("w", fmt::format("{} {} {}", t, i, filler));
        }
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    EXPECT_TRUE(sink.flush(kLong));
    EXPECT_EQ(sink.dropped(), 0U);
  }
  std::map<int, int> next;
  int count = 0;
  for (const std::string& line : reader.lines()) {
    int thread = -1;
    int index = -1;
    ASSERT_EQ(std::sscanf(line.c_str(), "[w] %d %d ", &thread, &index), 2) << line;
    const std::string filler(index % 10 == 0 ? 9000 : 20, static_cast<char>('a' + thread));
    ASSERT_EQ(line, fmt::format("[w] {} {} {}", thread, index, filler));
    ASSERT_EQ(index, next[thread]++);
    ++count;
  }
  EXPECT_EQ(count, kThreads * kLines);
}

TEST(LogSink, ABlockedStderrCostsLinesAndNotTime) {
  const test::Guard guard("log lines into a pipe that nobody reads");
  constexpr int kLines = 10'000;
  Reader reader(/*at_once=*/false);
  std::uint64_t dropped = 0;
  {
    LogSink sink({.fd = reader.fd(), .queue_bytes = 64 << 10});
    // Would never end if it waited: the pipe takes 64 KiB.
    for (int i = 0; i < kLines; ++i) {
      sink.worker_line("w", fmt::format("{:06} {}", i, std::string(100, 'x')));
    }
    EXPECT_FALSE(sink.flush(os::Deadline::after(1ms)));
    reader.start();
    EXPECT_TRUE(sink.flush(kLong));
    dropped = sink.dropped();
  }
  EXPECT_GT(dropped, 0U);

  // Every line came or was counted, in order, and the count stands where they are missing.
  int next = 0;
  std::uint64_t told = 0;
  for (const std::string& line : reader.lines()) {
    std::uint64_t missing = 0;
    int index = -1;
    if (std::sscanf(line.c_str(), "strata: warning: %lu lines dropped", &missing) == 1) {
      told += missing;
      next += static_cast<int>(missing);
    } else {
      ASSERT_EQ(std::sscanf(line.c_str(), "[w] %d ", &index), 1) << line;
      ASSERT_EQ(index, next++);
    }
  }
  EXPECT_EQ(next, kLines) << "The last lines are those that are kept.";
  EXPECT_EQ(told, dropped);
}

TEST(LogSink, TheDestructorDoesNotWaitForEver) {
  const test::LeakCheck leaks;
  const test::Guard guard("the destructor of a LogSink with a blocked stderr");
  const std::size_t threads = test::holdings().threads;
  Reader reader(/*at_once=*/false);
  {
    LogSink sink({.fd = reader.fd()});
    for (int i = 0; i < 100; ++i)
      sink.worker_line("w", std::string(2000, 'x'));
  }
  // Its thread is stuck, and shares nothing with what is gone. It ends once it can.
  while (reader.read_now() || test::holdings().threads > threads)
    std::this_thread::yield();
}

TEST(LogSink, AClosedStderrEndsNothing) {
  Reader reader(/*at_once=*/false);
  reader.close_read_end();
  LogSink sink({.fd = reader.fd()});
  for (int i = 0; i < 100; ++i)
    sink.worker_line("w", "x");  // SIGPIPE would end the program.
  EXPECT_TRUE(sink.flush(kLong));
  EXPECT_EQ(sink.dropped(), 100U);
}

TEST(LogSink, ANonBlockingStderrGetsAllLinesWhole) {
  Reader reader;
  ASSERT_EQ(::fcntl(reader.fd(), F_SETFL, O_NONBLOCK), 0);
  const std::string line(300'000, 'x');
  {
    LogSink sink({.fd = reader.fd()});
    for (int i = 0; i < 5; ++i)
      sink.worker_line("w", line);
    EXPECT_TRUE(sink.flush(kLong));
  }
  const std::vector<std::string> lines = reader.lines();
  ASSERT_THAT(lines, SizeIs(5));
  for (const std::string& got : lines)
    EXPECT_EQ(got, "[w] " + line);
}

TEST(LogSink, ALineLargerThanTheQueueIsWhole) {
  Reader reader;
  const std::string line(100'000, 'x');
  {
    LogSink sink({.fd = reader.fd(), .queue_bytes = 1000});
    sink.worker_line("w", line);
    EXPECT_TRUE(sink.flush(kLong));
  }
  EXPECT_THAT(reader.lines(), ElementsAre("[w] " + line));
}

TEST(LogSink, StartsNoThreadBeforeTheFirstLineAndLeavesNone) {
  const test::LeakCheck leaks;
  const std::size_t before = test::holdings().threads;
  Reader reader(/*at_once=*/false);
  {
    LogSink sink({.fd = reader.fd()});
    EXPECT_EQ(test::holdings().threads, before);
    sink.worker_line("w", "x");
    EXPECT_TRUE(sink.flush(kLong));
  }
}

TEST(LogSink, KnowsTheNamesOfTheLevels) {
  EXPECT_EQ(log_level_from("debug"), LogLevel::debug);
  EXPECT_EQ(log_level_from("warning"), LogLevel::warning);
  EXPECT_EQ(log_level_from("off"), LogLevel::off);
  EXPECT_EQ(log_level_from("Debug"), std::nullopt);
  EXPECT_EQ(log_level_from(""), std::nullopt);
}

}  // namespace
}  // namespace strata::node
