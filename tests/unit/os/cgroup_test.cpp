#include "os/cgroup.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "child.hpp"
#include "os/procfs.hpp"
#include "support/guard.hpp"

namespace strata::os {
namespace {

constexpr const char* kPrefix = "strata-test";

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Cgroup::parent_directory().empty()) {
      EXPECT_EQ(Cgroup::create(kPrefix).has_value(), false);
      EXPECT_EQ(Cgroup::sweep_stale(kPrefix), 0);
      GTEST_SKIP() << "no cgroup of version 2 is writable here";
    }
  }
};

TEST_F(CgroupTest, IsMadeAndRemoved) {
  std::string path;
  {
    const auto group = Cgroup::create(kPrefix);
    ASSERT_TRUE(group.has_value());
    path = group->path();
    EXPECT_TRUE(exists(path));
    EXPECT_FALSE(group->populated());
  }
  EXPECT_FALSE(exists(path));
}

TEST_F(CgroupTest, MovedFromOwnsNothing) {
  auto a = Cgroup::create(kPrefix);
  ASSERT_TRUE(a.has_value());
  const std::string first = a->path();
  auto b = Cgroup::create(kPrefix);
  const std::string second = b->path();
  EXPECT_NE(first, second);
  *a = std::move(*b);
  EXPECT_FALSE(exists(first));
  EXPECT_TRUE(exists(second));
  b.reset();
  EXPECT_TRUE(exists(second));
  a.reset();
  EXPECT_FALSE(exists(second));
}

// The children of members too, which left the process group.
TEST_F(CgroupTest, KillEndsAllThatIsInIt) {
  const strata::test::Guard guard("the end of a cgroup");
  auto group = Cgroup::create(kPrefix);
  ASSERT_TRUE(group.has_value());
  test::Pipe pipe = test::make_pipe();
  SpawnOptions options = test::child_options({"parent", "orphan"});
  options.descriptors[1].from = pipe.write.get();
  options.cgroup_fd = group->fd();
  options.own_process_group = true;
  ChildProcess child = spawn(options);
  pipe.write.reset();
  EXPECT_GT(std::stoi(test::read_line(pipe.read.get())), 0);
  EXPECT_TRUE(group->populated());
  EXPECT_TRUE(group->kill());
  EXPECT_EQ(child.wait(Deadline::never())->value, SIGKILL);
  EXPECT_EQ(test::read_all(pipe.read.get()), "");  // The grandchild is gone too.
  while (group->populated())
    ::usleep(1000);
  const std::string path = group->path();
  group.reset();
  EXPECT_FALSE(exists(path));
}

// Invariant (1)
TEST_F(CgroupTest, SweepRemovesThoseOfDeadOwnersOnly) {
  const auto self = read_process(::getpid());
  // Of this run of the tests only.
  const std::string prefix = "strata-sweep" + std::to_string(self->pid);
  const auto own = Cgroup::create(prefix);
  ASSERT_TRUE(own.has_value());
  const std::string start = Cgroup::parent_directory() + "/" + prefix;
  // A number that no process has; this process's number with another start time; not our form.
  const std::string dead = start + "-2147483647-1-0";
  const std::string reused =
      start + "-" + std::to_string(self->pid) + "-" + std::to_string(self->start_time + 1) + "-0";
  const std::string other = start + "-something";
  for (const std::string& path : {dead, reused, other})
    ASSERT_EQ(::mkdir(path.c_str(), 0755), 0) << path;
  EXPECT_EQ(Cgroup::sweep_stale(prefix), 2);
  EXPECT_FALSE(exists(dead));
  EXPECT_FALSE(exists(reused));
  EXPECT_TRUE(exists(other));
  EXPECT_TRUE(exists(own->path()));
  EXPECT_EQ(::rmdir(other.c_str()), 0);
}

}  // namespace
}  // namespace strata::os
