// The janitor: strata-worker as the process that outlives a Worker's.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "node/worker_program.hpp"
#include "os/child_process.hpp"
#include "os/spawn.hpp"
#include "support/forked_child.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kGuard{60};

/// A directory stands for the control groups: what the janitor does there is to remove what is
/// named after its parent. Each case holds a copy of the parent's end of the socket.
class JanitorTest : public ::testing::Test {
 protected:
  JanitorTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    ours = os::UniqueFd(ends[0]);
    theirs = os::UniqueFd(ends[1]);
    copy = os::UniqueFd(fcntl(ours.get(), F_DUPFD_CLOEXEC, 0));
    fs::create_directory(group);
  }
  [[nodiscard]] os::ChildProcess start(pid_t parent) const {
    const os::UniqueFd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
    os::SpawnOptions spawn;
    spawn.program_fd = program.file.get();
    spawn.path = program.path;
    spawn.argv = {"strata-worker", "--janitor", folder.path(), "group", std::to_string(parent)};
    spawn.envp = os::current_environment();
    spawn.descriptors = {
        {nothing.get(), 0}, {nothing.get(), 1}, {nothing.get(), 2}, {theirs.get(), 3}};
    spawn.die_with_parent = false;
    return os::spawn(spawn);
  }
  /// Whether the group goes in time.
  [[nodiscard]] bool cleans_up() const {
    const os::Deadline deadline = os::Deadline::after(kGuard);
    while (fs::exists(group) && !deadline.passed())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return !fs::exists(group);
  }

  node::OpenProgram program = node::find_worker_program("");
  TempDir folder;
  fs::path group = fs::path(folder.path()) / "group-1";
  os::UniqueFd ours;
  os::UniqueFd theirs;
  os::UniqueFd copy;
};

TEST_F(JanitorTest, GoesWhenItIsDismissedWhoeverHasACopyOfTheEnd) {
  os::ChildProcess janitor = start(getpid());
  EXPECT_EQ(send(ours.get(), "", 1, MSG_NOSIGNAL), 1);
  ours.reset();
  EXPECT_EQ(janitor.wait(os::Deadline::after(kGuard)),
            (os::ExitStatus{.kind = os::ExitStatus::Kind::exited, .value = 0}));
  EXPECT_TRUE(fs::exists(group)) << "it touches nothing then";
}

TEST_F(JanitorTest, CleansUpAfterAParentThatDiesWhoeverHasACopyOfTheEnd) {
  std::array<int, 2> started{};
  ASSERT_EQ(pipe2(started.data(), O_CLOEXEC), 0);
  ForkedChild parent([&] {
    (void)start(getpid());
    (void)write(started[1], "", 1);
    pause();
    return 0;
  });
  char byte = 1;
  EXPECT_EQ(read(started[0], &byte, 1), 1);
  close(started[0]);
  close(started[1]);
  ours.reset();
  parent.send(SIGKILL);
  (void)parent.wait();
  EXPECT_TRUE(cleans_up());
}

TEST_F(JanitorTest, CleansUpAfterAParentThatHasDiedBeforeItBegan) {
  os::ChildProcess janitor = start(1 << 30);  // Nobody has this number.
  EXPECT_TRUE(cleans_up());
  EXPECT_TRUE(janitor.wait(os::Deadline::after(kGuard)));
}

}  // namespace
}  // namespace strata::test
