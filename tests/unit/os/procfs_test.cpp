#include "os/procfs.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "child.hpp"
#include "os/mapping.hpp"
#include "os/memfd.hpp"
#include "support/guard.hpp"
#include "support/process.hpp"

namespace strata::os {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

/// A child that sleeps, past its start.
class Sleeper {
 public:
  explicit Sleeper(const std::vector<std::string>& action = {"ready-and-sleep"}) {
    SpawnOptions options = test::child_options(action);
    options.descriptors[1].from = pipe_.write.get();
    child_ = spawn(options);
    pipe_.write.reset();
    line_ = test::read_line(pipe_.read.get());
  }
  ~Sleeper() {
    child_.send(SIGKILL);
    (void)child_.wait(Deadline::never());
    test::read_all(pipe_.read.get());  // Until its own children are gone too.
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ChildProcess& child() { return child_; }
  pid_t pid() const { return child_.pid(); }
  const std::string& line() const { return line_; }

 private:
  test::Pipe pipe_ = test::make_pipe();
  ChildProcess child_;
  std::string line_;
};

TEST(Procfs, KnowsThisProcess) {
  const auto info = read_process(::getpid());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->pid, ::getpid());
  EXPECT_EQ(info->ppid, ::getppid());
  EXPECT_EQ(info->pgid, ::getpgid(0));
  EXPECT_EQ(info->state, 'R');
  EXPECT_EQ(info->comm, "unit_os");
  EXPECT_GE(info->threads, 1);
  EXPECT_GT(info->start_time, 0U);
  EXPECT_EQ(command_line(::getpid()).at(0).substr(command_line(::getpid()).at(0).size() - 7),
            "unit_os");
}

TEST(Procfs, NameWithBlanksAndParenthesesIsReadRight) {
  char before[16] = {};
  ::prctl(PR_GET_NAME, before);
  ::prctl(PR_SET_NAME, ") R (1 2) x");
  const auto info = read_process(::getpid());
  ::prctl(PR_SET_NAME, before);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->comm, ") R (1 2) x");
  EXPECT_EQ(info->ppid, ::getppid());
}

TEST(Procfs, ProcessesThatAreNotThereAreNothing) {
  for (const pid_t pid : {-1, 0, std::numeric_limits<pid_t>::max()}) {
    EXPECT_EQ(read_process(pid), std::nullopt);
    EXPECT_TRUE(children_of(pid == 0 ? -2 : pid).empty());
    EXPECT_TRUE(command_line(pid).empty());
    EXPECT_TRUE(open_descriptors(pid).empty());
    EXPECT_EQ(wait_channel(pid), "");
    EXPECT_EQ(memory_of(pid), std::nullopt);
  }
}

TEST(Procfs, ZombieIsStillAProcessAndHasNothing) {
  const strata::test::Guard guard("a zombie");
  ChildProcess child = spawn(test::child_options({"exit", "0"}));
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, child.pid(), &info, WEXITED | WNOWAIT), 0);
  const auto zombie = read_process(child.pid());
  ASSERT_TRUE(zombie.has_value());
  EXPECT_EQ(zombie->state, 'Z');
  EXPECT_THAT(children_of(::getpid()), Contains(child.pid()));
  EXPECT_TRUE(command_line(child.pid()).empty());
  EXPECT_TRUE(open_descriptors(child.pid()).empty());
  EXPECT_EQ(memory_of(child.pid()), std::nullopt);
  (void)child.wait(Deadline::never());
  EXPECT_EQ(read_process(child.pid()), std::nullopt);
}

TEST(Procfs, StartTimeTellsProcessesOfOneNumberApart) {
  Sleeper sleeper;
  const auto a = read_process(sleeper.pid());
  const auto b = read_process(sleeper.pid());
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->start_time, b->start_time);
  EXPECT_GE(a->start_time, read_process(::getpid())->start_time);
}

TEST(Procfs, FindsChildrenAndTheirChildren) {
  Sleeper parent({"parent", "arm"});
  const pid_t grandchild = std::stoi(parent.line());
  EXPECT_THAT(children_of(::getpid()), Contains(parent.pid()));
  EXPECT_THAT(children_of(parent.pid()), ElementsAre(grandchild));
  const auto all = descendants_of(::getpid());
  const auto first = std::find(all.begin(), all.end(), parent.pid());
  const auto second = std::find(all.begin(), all.end(), grandchild);
  ASSERT_NE(first, all.end());
  ASSERT_NE(second, all.end());
  EXPECT_LT(first, second);
  EXPECT_THAT(descendants_of(parent.pid()), ElementsAre(grandchild));
}

TEST(Procfs, SaysWhatASleeperWaitsFor) {
  const strata::test::Guard guard("a sleeper");
  Sleeper sleeper;
  // It has said that it will sleep; the kernel may still be on the way there.
  while (read_process(sleeper.pid())->state != 'S')
    std::this_thread::yield();
  EXPECT_EQ(read_process(sleeper.pid())->state, 'S');
  EXPECT_EQ(command_line(sleeper.pid()),
            (std::vector<std::string>{"unit_os", test::kChildMark, "ready-and-sleep"}));
  // Which text depends on the kernel; some hide it.
  const std::string channel = wait_channel(sleeper.pid());
  EXPECT_EQ(channel.find('\n'), std::string::npos);
}

TEST(Procfs, ListsDescriptors) {
  const UniqueFd memory = make_memfd("listed-here", 1);
  const auto all = open_descriptors(::getpid());
  const auto found = std::ranges::find(all, memory.get(), &OpenDescriptor::fd);
  ASSERT_NE(found, all.end());
  EXPECT_THAT(found->target, HasSubstr("listed-here"));
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &OpenDescriptor::fd));
}

TEST(Procfs, CountsOwnDescriptors) {
  const std::size_t before = count_own_descriptors();
  {
    const UniqueFd one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const UniqueFd two(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(count_own_descriptors(), before + 2);
  }
  EXPECT_EQ(count_own_descriptors(), before);
}

TEST(Procfs, MemoryGrowsWithWhatIsTouched) {
  const auto before = memory_of(::getpid());
  ASSERT_TRUE(before.has_value());
  EXPECT_GE(before->resident, before->private_resident);
  constexpr std::size_t kBytes = 32 << 20;
  const Mapping memory = Mapping::anonymous(kBytes, Mapping::Populate::yes);
  const auto after = memory_of(::getpid());
  EXPECT_GE(after->private_resident, before->private_resident + kBytes / 2);
}

TEST(Procfs, ReadingWhileProcessesComeAndGo) {
  const strata::test::LeakCheck leaks;
  std::atomic<bool> stop{false};
  std::thread starter([&] {
    SpawnOptions options;
    options.path = "/bin/true";
    options.argv = {"true"};
    while (!stop.load())
      (void)spawn(options).wait(Deadline::never());
  });
  for (int i = 0; i < 50; ++i) {
    for (const pid_t pid : descendants_of(::getpid())) {
      (void)command_line(pid);
      (void)open_descriptors(pid);
      (void)memory_of(pid);
      (void)wait_channel(pid);
    }
  }
  stop = true;
  starter.join();
}

TEST(Procfs, SmallFilesAreReadWhole) {
  EXPECT_EQ(read_small_file("/nonexistent"), std::nullopt);
  EXPECT_EQ(read_small_file("/proc"), std::nullopt);
  const auto maps = read_small_file("/proc/self/maps");
  ASSERT_TRUE(maps.has_value());
  EXPECT_GT(maps->size(), 4096U) << "longer than one read";
}

}  // namespace
}  // namespace strata::os
