// Chips and CPUs: who gets which, and many chips on few.

#include <sys/resource.h>

#include <set>

#include "node/cpu_shares.hpp"
#include "support/chip_test.hpp"
#include "support/on_cpus.hpp"

namespace strata::test {
namespace {

class ChipCpus : public ChipTest {
 protected:
  static WorkerOptions chips(std::size_t count, const std::string& platform) {
    WorkerOptions options;
    options.chips.assign(count, {.platform = platform});
    return options;
  }
};

TEST_F(ChipCpus, ChipsOfPlatformCpuHaveAsManyClustersAsCpusOfTheirOwn) {
  const std::vector<int> allowed = node::allowed_cpu_list();
  if (allowed.size() < 2 || allowed.size() > 16) GTEST_SKIP() << "for 2 to 16 CPUs";
  start(chips(2, "cpu"));
  std::set<std::int64_t> first_cpus;
  std::int64_t clusters = 0;
  for (std::size_t chip = 0; chip < 2; ++chip) {
    submit(Way::geometry, 0, {}, on(worker_->chip(chip))).result();
    const std::int64_t own = at(0);
    clusters += own;
    submit(Way::cpus, 0, {}, on(worker_->chip(chip))).result();
    // Each thread has a CPU to itself.
    for (std::int64_t block = 0; block < own; ++block) {
      EXPECT_EQ(at(static_cast<std::size_t>(block)), 1);
      first_cpus.insert(at(static_cast<std::size_t>(8 + block)));
    }
  }
  EXPECT_EQ(clusters, static_cast<std::int64_t>(allowed.size()));
  EXPECT_LE(first_cpus.size(), allowed.size());
  EXPECT_GE(first_cpus.size(), 2U) << "both chips ran on one CPU";
}

TEST_F(ChipCpus, WhereChipsOutnumberCpusEachHasOneCluster) {
  const OnCpus one({node::allowed_cpu_list().front()});
  start(chips(3, "cpu"));
  for (std::size_t chip = 0; chip < 3; ++chip) {
    submit(Way::geometry, 0, {}, on(worker_->chip(chip))).result();
    EXPECT_EQ(at(0), 1);
  }
}

TEST_F(ChipCpus, EightChipsOf24ClustersOnOneCpuRunToTheEnd) {
  const OnCpus one({node::allowed_cpu_list().front()});
  guard_.restart("eight chips on one CPU");
  start(chips(8, "a2a3sim"));
  std::vector<Buffer> own;
  for (std::size_t i = 0; i < 8; ++i)
    own.push_back(worker_->create_buffer(64));
  worker_->run([&](Orchestration& run) {
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < 8; ++i) {
        run.submit(Call(ways_), inout(own[i].tensor(DType::int64, {8})), scalar(Way::all_cores),
                   scalar(std::int64_t{0}), on(worker_->chip(i)));
      }
    }
  });
  for (const Buffer& each : own)
    EXPECT_EQ(each.as<std::int64_t>()[0], 3 * 24);
}

TEST_F(ChipCpus, EightChipsWhoseCoresHaveAllRunCloseWithoutForce) {
  start(chips(8, "a2a3sim"));
  std::vector<Buffer> own;
  for (std::size_t i = 0; i < 8; ++i)
    own.push_back(worker_->create_buffer(64));
  worker_->run([&](Orchestration& run) {
    for (std::size_t i = 0; i < 8; ++i) {
      run.submit(Call(ways_), inout(own[i].tensor(DType::int64, {8})), scalar(Way::all_cores),
                 scalar(std::int64_t{0}), on(worker_->chip(i)));
    }
  });
  EXPECT_NO_THROW(worker_->close());
  for (const ProcessStatus& process : worker_->processes())
    EXPECT_EQ(process.pid, 0);
}

}  // namespace
}  // namespace strata::test
