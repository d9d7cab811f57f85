#include "os/spawn.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/fault_point.hpp"
#include "child.hpp"
#include "os/cgroup.hpp"
#include "os/mapping.hpp"
#include "os/memfd.hpp"
#include "os/procfs.hpp"
#include "strata/error.hpp"
#include "support/guard.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

namespace strata::os {
namespace {

using test::child_options;
using testing::HasSubstr;

/// Changes what happens at a signal, for a while.
class SignalAction {
 public:
  SignalAction(int signal, void (*handler)(int), int flags = 0) : signal_(signal) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    ::sigaction(signal, &action, &before_);
  }
  ~SignalAction() { ::sigaction(signal_, &before_, nullptr); }
  SignalAction(const SignalAction&) = delete;
  SignalAction& operator=(const SignalAction&) = delete;

 private:
  int signal_;
  struct sigaction before_ {};
};

/// What a child with these descriptors has: number -> target.
std::map<int, std::string> descriptors_of_child(
    const std::vector<SpawnOptions::Descriptor>& descriptors) {
  SpawnOptions options = child_options({"descriptors"});
  options.descriptors = descriptors;
  const auto outcome = test::run(options);
  EXPECT_TRUE(outcome.status.clean()) << outcome.status.to_string();
  std::map<int, std::string> result;
  std::istringstream lines(outcome.output);
  std::string target;
  for (int fd = 0; lines >> fd && std::getline(lines, target);)
    result[fd] = target.substr(1);
  return result;
}

std::string target_of(int fd) {
  for (const OpenDescriptor& open : open_descriptors(::getpid())) {
    if (open.fd == fd) return open.target;
  }
  return "";
}

/// A descriptor at exactly that number.
UniqueFd at_number(const UniqueFd& from, int number) {
  EXPECT_EQ(::dup3(from.get(), number, O_CLOEXEC), number);
  return UniqueFd(number);
}

std::string message_of(const SpawnOptions& options, int expected_code) {
  const test::Pipe pipe = test::make_pipe();
  try {
    ChildProcess child = spawn(options);
    child.send(SIGKILL);
    (void)child.wait(Deadline::never());
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code(), expected_code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "it started";
  return "";
}

TEST(Spawn, StatusOfTheChildIsKnown) {
  const strata::test::LeakCheck leaks;
  EXPECT_EQ(test::run(child_options({"exit", "0"})).status.to_string(), "exited with status 0");
  EXPECT_EQ(test::run(child_options({"exit", "7"})).status.to_string(), "exited with status 7");
  EXPECT_EQ(test::run(child_options({"signal", "11"})).status.to_string(),
            "killed by signal 11 (segmentation fault)");
}

TEST(Spawn, ProgramCanBeAnOpenDescriptor) {
  const UniqueFd program(::open("/proc/self/exe", O_PATH | O_CLOEXEC));
  SpawnOptions options = child_options({"exit", "5"});
  options.path.clear();
  options.program_fd = program.get();
  EXPECT_EQ(test::run(options).status.to_string(), "exited with status 5");
}

// The program's own descriptor lies where another one belongs.
TEST(Spawn, ProgramsDescriptorIsMovedOutOfTheWayAndIsClosedInTheProgram) {
  const UniqueFd program(::open("/proc/self/exe", O_PATH | O_CLOEXEC));
  const UniqueFd low = at_number(program, 20);
  const UniqueFd memory = make_memfd("other", 1);
  SpawnOptions options = child_options({"descriptors"});
  options.path.clear();
  options.program_fd = low.get();
  options.descriptors.push_back({memory.get(), 20});
  const auto outcome = test::run(options);
  EXPECT_THAT(outcome.output, HasSubstr("20 /memfd:other"));
  EXPECT_THAT(outcome.output, testing::Not(HasSubstr("unit_os")));
}

// Invariant (1)
TEST(Spawn, ChildHasTheListedDescriptorsOnly) {
  const UniqueFd memory = make_memfd("listed", 1);
  const int inheritable = ::open("/dev/zero", O_RDONLY);  // Not O_CLOEXEC.
  ASSERT_GE(inheritable, 0);
  const UniqueFd owner(inheritable);
  const auto found = descriptors_of_child({{0, 0}, {2, 2}, {memory.get(), 7}});
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found.at(0), target_of(0));
  EXPECT_THAT(found.at(1), HasSubstr("pipe:"));
  EXPECT_EQ(found.at(2), target_of(2));
  EXPECT_THAT(found.at(7), HasSubstr("memfd:listed"));
}

// Invariant (1)
TEST(Spawn, ChildHasNothingAtNumbersThatAreNotListed) {
  const auto found = descriptors_of_child({});
  EXPECT_EQ(found.size(), 1U);  // Standard input and error are not there; the pipe is.
  EXPECT_TRUE(found.contains(1));
}

// Invariant (1)
TEST(Spawn, DescriptorsMayChangePlaces) {
  const UniqueFd a = at_number(make_memfd("first", 1), 30);
  const UniqueFd b = at_number(make_memfd("second", 1), 31);
  const UniqueFd c = at_number(make_memfd("third", 1), 32);
  const auto found = descriptors_of_child({{30, 31}, {31, 32}, {32, 30}, {30, 33}, {0, 0}});
  EXPECT_THAT(found.at(31), HasSubstr("first"));
  EXPECT_THAT(found.at(33), HasSubstr("first"));
  EXPECT_THAT(found.at(32), HasSubstr("second"));
  EXPECT_THAT(found.at(30), HasSubstr("third"));
  EXPECT_EQ(found.size(), 6U);
}

// Invariant (1)
TEST(Spawn, DescriptorThatStaysInPlaceIsKeptThoughItIsClosedOnExecHere) {
  const UniqueFd memory = at_number(make_memfd("kept", 1), 40);
  EXPECT_THAT(descriptors_of_child({{40, 40}}).at(40), HasSubstr("kept"));
}

// Invariant (1)
TEST(Spawn, DescriptorsThatOtherThreadsOpenDoNotLeak) {
  std::atomic<bool> stop{false};
  std::thread opener([&] {
    while (!stop.load()) {
      const UniqueFd one(::open("/dev/zero", O_RDONLY));
      const UniqueFd two(::open("/dev/full", O_RDONLY));
    }
  });
  for (int i = 0; i < 20; ++i) {
    for (const auto& [fd, target] : descriptors_of_child({{0, 0}, {2, 2}}))
      EXPECT_THAT(target, testing::Not(testing::AnyOf("/dev/zero", "/dev/full")));
  }
  stop = true;
  opener.join();
}

TEST(Spawn, WrongDescriptorsAreRefusedBeforeAnythingStarts) {
  SpawnOptions options = child_options({"exit", "0"});
  options.descriptors = {{0, 3}, {1, 3}};
  EXPECT_THROW((void)spawn(options), InvalidArgument);
  options.descriptors = {{-1, 3}};
  EXPECT_THROW((void)spawn(options), InvalidArgument);
  options.descriptors = {{0, -3}};
  EXPECT_THROW((void)spawn(options), InvalidArgument);
  EXPECT_THROW((void)spawn(SpawnOptions{}), InvalidArgument);
}

// Invariant (3)
TEST(Spawn, ClosedDescriptorFailsAndSaysWhichStep) {
  const strata::test::LeakCheck leaks;
  SpawnOptions options = child_options({"exit", "0"});
  options.descriptors = {{1000, 3}};
  EXPECT_THAT(message_of(options, EBADF), HasSubstr("can't move a descriptor to its place"));
}

// Invariant (3)
TEST(Spawn, ProgramThatCannotBeRunFailsWithItsNameAndTheReason) {
  const strata::test::LeakCheck leaks;
  const strata::test::TempDir folder;
  SpawnOptions options;
  options.argv = {"x"};
  options.path = (folder.path() / "missing").string();
  EXPECT_EQ(message_of(options, ENOENT),
            "can't start '" + options.path + "': can't exec: No such file or directory");

  options.path = (folder.path() / "plain").string();
  std::ofstream(options.path) << "neither a program nor a script";
  EXPECT_THAT(message_of(options, EACCES), HasSubstr("Permission denied"));
  ::chmod(options.path.c_str(), 0700);
  EXPECT_THAT(message_of(options, ENOEXEC), HasSubstr("Exec format error"));

  options.path = folder.path().string();
  EXPECT_THAT(message_of(options, EACCES), HasSubstr(options.path));
}

// Invariant (2)
TEST(Spawn, NothingIsBlockedOrIgnoredInTheProgram) {
  const SignalAction pipe(SIGPIPE, SIG_IGN);
  const SignalAction usr(SIGUSR1, SIG_IGN);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto outcome = test::run(child_options({"signals"}));
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, &before, &after);
  EXPECT_EQ(outcome.output, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
  EXPECT_EQ(::sigismember(&after, SIGUSR1), 1) << "the caller's mask must be as it was";
}

TEST(Spawn, EnvironmentIsTheGivenOne) {
  SpawnOptions options = child_options({"environment"});
  options.envp = {"ONE=1", "TWO=two words"};
  EXPECT_EQ(test::run(options).output, "ONE=1\nTWO=two words\n");
}

TEST(Spawn, GroupIsTheChildsOwnIfAskedFor) {
  SpawnOptions options = child_options({"group"});
  EXPECT_EQ(test::run(options).output, "member");
  options.own_process_group = true;
  EXPECT_EQ(test::run(options).output, "leader");
}

TEST(Spawn, ParentDeathSignalIsArmedUnlessDeclined) {
  SpawnOptions options = child_options({"parent-death-signal"});
  EXPECT_EQ(test::run(options).output, std::to_string(SIGKILL));
  options.die_with_parent = false;
  EXPECT_EQ(test::run(options).output, "0");
}

TEST(Spawn, ChildDiesWithAParentThatIsKilled) {
  const strata::test::Guard guard("a child whose parent is killed");
  test::Pipe pipe = test::make_pipe();
  SpawnOptions options = child_options({"parent", "arm"});
  options.descriptors[1].from = pipe.write.get();
  ChildProcess parent = spawn(options);
  pipe.write.reset();
  EXPECT_GT(std::stoi(test::read_line(pipe.read.get())), 0);
  parent.send(SIGKILL);
  EXPECT_EQ(parent.wait(Deadline::never())->value, SIGKILL);
  // The end of the file: nobody is left who holds the other end.
  EXPECT_EQ(test::read_all(pipe.read.get()), "");
}

// The same program with the signal declined shows that the test above tests something.
TEST(Spawn, ChildThatDeclinesOutlivesItsParent) {
  test::Pipe pipe = test::make_pipe();
  SpawnOptions options = child_options({"parent", "orphan"});
  options.descriptors[1].from = pipe.write.get();
  ChildProcess parent = spawn(options);
  pipe.write.reset();
  const pid_t orphan = std::stoi(test::read_line(pipe.read.get()));
  parent.send(SIGKILL);
  (void)parent.wait(Deadline::never());
  EXPECT_EQ(::kill(orphan, SIGKILL), 0);
  EXPECT_EQ(test::read_all(pipe.read.get()), "");
}

TEST(Spawn, HundredsOfChildrenFromSeveralThreads) {
  const strata::test::LeakCheck leaks;
  const strata::test::Guard guard("children from several threads");
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      SpawnOptions options;
      options.path = "/bin/true";
      options.argv = {"true"};
      for (int i = 0; i < 25; ++i) {
        ChildProcess child = spawn(options);
        if (!child.wait(Deadline::never())->clean()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

std::atomic<int> g_handled{0};

// Invariant (4): a signal storm at the moment of every clone and exec.
TEST(Spawn, HandlersOfTheParentNeverRunInTheChild) {
  const SignalAction usr(
      SIGUSR1, [](int) { g_handled.fetch_add(1); }, SA_RESTART);
  g_handled = 0;
  const pthread_t target = ::pthread_self();
  std::atomic<bool> stop{false};
  std::atomic<int> sent{0};
  std::thread sender([&] {
    while (!stop.load()) {
      ::pthread_kill(target, SIGUSR1);
      ++sent;
    }
  });
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(test::run(child_options({"exit", "3"})).status.value, 3);
  stop = true;
  sender.join();
  EXPECT_LE(g_handled.load(), sent.load());
  EXPECT_GT(g_handled.load(), 0);
}

// What the parent has in memory is neither copied nor marked: a page that was written before needs
// no fault when it is written after, which a copy-on-write child would have caused.
TEST(Spawn, ParentsPagesAreNotCopied) {
  constexpr std::size_t kPages = 4096;
  const Mapping memory = Mapping::anonymous(kPages * 4096, Mapping::Populate::yes);
  const auto touch = [&] {
    for (std::size_t page = 0; page < kPages; ++page)
      memory.data()[page * 4096] = std::byte{1};
  };
  touch();
  SpawnOptions options;
  options.path = "/bin/sleep";
  options.argv = {"sleep", "1000"};
  ChildProcess child = spawn(options);
  const auto before = strata::test::page_faults();
  touch();
  const auto faults = strata::test::page_faults() - before;
  child.send(SIGKILL);
  (void)child.wait(Deadline::never());
  EXPECT_LT(faults, kPages / 4);
}

TEST(Spawn, ChildJoinsTheCgroupBeforeItRuns) {
  auto group = Cgroup::create("strata-test");
  if (!group) GTEST_SKIP() << "no cgroup of version 2 can be made here";
  SpawnOptions options = child_options({"cgroup"});
  options.cgroup_fd = group->fd();
  const std::string name = group->path().substr(group->path().rfind('/'));
  EXPECT_THAT(test::run(options).output, HasSubstr(name));
}

// Where clone3 is not there, or not let through.
TEST(Spawn, ChildJoinsTheCgroupByItselfIfItCannotBeBornInIt) {
  if (!base::kFaultPoints) GTEST_SKIP() << "this build has no fault points";
  auto group = Cgroup::create("strata-test");
  if (!group) GTEST_SKIP() << "no cgroup of version 2 can be made here";
  SpawnOptions options = child_options({"cgroup"});
  options.cgroup_fd = group->fd();
  const std::string name = group->path().substr(group->path().rfind('/'));
  for (const char* const refused :
       {"os.clone_into_cgroup=error:38", "os.clone_into_cgroup=error:1"}) {
    base::set_faults(refused);
    EXPECT_THAT(test::run(options).output, HasSubstr(name));
    base::set_faults("");
  }
}

TEST(Spawn, CgroupThatCannotBeJoinedFails) {
  const strata::test::LeakCheck leaks;
  SpawnOptions options = child_options({"exit", "0"});
  options.cgroup_fd = 1000;
  EXPECT_THAT(message_of(options, EBADF), HasSubstr("can't join the cgroup"));
}

TEST(Spawn, InjectedErrorIsReported) {
  if (!base::kFaultPoints) GTEST_SKIP() << "this build has no fault points";
  const strata::test::LeakCheck leaks;
  base::set_faults("os.spawn=error:11");
  EXPECT_THAT(message_of(child_options({"exit", "0"}), EAGAIN), HasSubstr("can't clone"));
  base::set_faults("");
}

}  // namespace
}  // namespace strata::os
