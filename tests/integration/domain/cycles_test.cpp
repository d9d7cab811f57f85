// Many domains and communicators, one after the other and at once: nothing grows, and nobody gets
// in another's way.

#include <dirent.h>

#include <algorithm>
#include <cstdlib>
#include <latch>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "node/worker_state.hpp"
#include "support/domain_test.hpp"
#include "support/process.hpp"
#include "support/random.hpp"

namespace strata::test {
namespace {

std::size_t descriptors_of(int pid) {
  std::size_t count = 0;
  DIR* const folder = ::opendir(("/proc/" + std::to_string(pid) + "/fd").c_str());
  if (folder == nullptr) return 0;
  while (::readdir(folder) != nullptr)
    ++count;
  ::closedir(folder);
  return count;
}

class DomainCycles : public DomainTest {
 protected:
  struct All {
    Holdings holdings;
    std::vector<std::size_t> of_workers = {};
    std::uint64_t buffers = 0;
    std::vector<std::size_t> chip_memory = {};
    friend bool operator==(const All&, const All&) = default;
  };
  [[nodiscard]] All now() const {
    All all{.holdings = holdings(), .buffers = worker_->stats().live_buffers};
    for (const ProcessStatus& each : worker_->processes())
      all.of_workers.push_back(descriptors_of(each.pid));
    for (std::size_t i = 0; i < outs_.size(); ++i)
      all.chip_memory.push_back(worker_->chip_memory(worker_->chip(i)).used);
    return all;
  }
  static std::string text(const All& all) {
    std::string text = to_string(all.holdings) + ", workers' descriptors:";
    for (const std::size_t count : all.of_workers)
      text += " " + std::to_string(count);
    return text + ", buffers: " + std::to_string(all.buffers);
  }
  /// As many threads for orchestrations as there ever are. A run may end before its thread is idle
  /// again, so when the next one is made is a matter of time.
  void make_all_threads() {
    const std::size_t most = WorkerOptions().max_open_runs;
    std::latch all(static_cast<std::ptrdiff_t>(most));
    std::vector<Run> runs;
    for (std::size_t i = 0; i < most; ++i)
      runs.push_back(worker_->submit([&](Orchestration&) { all.arrive_and_wait(); }));
    for (const Run& run : runs)
      run.result();
  }
  /// `cycle` may be run again and again and leaves no more the last time than the first times.
  template <class Cycle>
  void expect_no_growth(int times, const Cycle& cycle) {
    make_all_threads();
    for (int i = 0; i < times / 4; ++i)
      cycle(i);
    const All before = now();
    const std::size_t allocated = allocated_bytes();
    for (int i = times / 4; i < times; ++i)
      cycle(i);
    EXPECT_TRUE(within(1s, [&] { return now() == before; })) << text(before) << "\n" << text(now());
    // Tables have grown to their sizes by then; a leak of 100 bytes a cycle would be seen.
    EXPECT_LT(allocated_bytes(), allocated + 64 * 1024 + static_cast<std::size_t>(times) * 50);
  }
};

TEST_F(DomainCycles, AThousandDomainsLeaveNothing) {
  start_ranks(chips(3));
  std::uint64_t used = 0;
  expect_no_growth(1000, [&](int i) {
    Domain domain = worker_->create_domain(
        over(i % 2 == 0 ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{2, 1, 0}));
    if (i % 10 == 0) expect_works(domain, i);
    domain.release();
    const std::uint64_t now = node::WorkerAccess::state(*worker_).slabs().used();
    if (i == 2) used = now;
    if (i > 2) {
      ASSERT_EQ(now, used) << "cycle " << i;
    }
  });
}

TEST_F(DomainCycles, AThousandCommunicatorsLeaveNothing) {
  start_ranks(chips(5));
  std::vector<std::size_t> order{0, 1, 2, 3, 4};
  expect_no_growth(1000, [&](int i) {
    (void)std::next_permutation(order.begin(), order.end());
    const Domain domain = worker_->create_domain(over(order));
    if (i % 20 == 0) expect_works(domain, i);
  });
}

TEST_F(DomainCycles, CommunicatorsOfAVendorsLibraryLeaveNothing) {
  WorkerOptions options = chips(4);
  options.communication = "vendor:" + test_library("strata_test_vendor_comm");
  start_ranks(std::move(options));
  std::vector<std::size_t> order{0, 1, 2, 3};
  std::vector<std::vector<std::size_t>> lists;
  do {
    lists.push_back(order);
    lists.push_back({order.begin(), order.begin() + 3});
  } while (std::next_permutation(order.begin(), order.end()));
  expect_no_growth(1000, [&](int i) {
    (void)worker_->create_domain(over(lists[static_cast<std::size_t>(i) % lists.size()]));
  });
}

/// Domains over random lists of chips, made, used and released in random order; now and then a chip
/// dies.
class RandomDomains : public DomainCycles, public testing::WithParamInterface<std::uint64_t> {
 protected:
  static constexpr std::size_t kChips = 5;
  struct Live {
    std::unique_ptr<Domain> domain;
    std::vector<std::size_t> chips;
  };
  void make() {
    std::vector<std::size_t> list{0, 1, 2, 3, 4};
    random_.shuffle(list);
    list.resize(1 + random_.below(kChips));
    live_.push_back({std::make_unique<Domain>(worker_->create_domain(over(list))), list});
  }
  void use() {
    const Live& live = random_.pick(live_);
    const auto argument = static_cast<std::int64_t>(random_.below(1000));
    runs_.push_back(worker_->submit([&](Orchestration& run) {
      for (const LaneId chip : lanes_of(live))
        run.overwrite(out_tensor(chip));
      for (int i = 0; i < 3; ++i)
        submit_ranks(run, *live.domain, random_.chance(50) ? RankWay::sum_up : RankWay::pass_on,
                     argument);
    }));
    // The domain must not be released while its orchestration still submits.
    (void)within(5s, [&] { return runs_.back().stats().tasks == 3 || runs_.back().done(); });
  }
  [[nodiscard]] std::vector<LaneId> lanes_of(const Live& live) const {
    std::vector<LaneId> lanes;
    for (const std::size_t chip : live.chips)
      lanes.push_back(worker_->chip(chip));
    return lanes;
  }
  void release() {
    const std::size_t which = random_.below(live_.size());
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void expect_runs_go_well() {
    for (const Run& run : runs_)
      EXPECT_NO_THROW(run.result());
    runs_.clear();
  }
  void lose_a_chip() {
    expect_runs_go_well();
    const std::size_t chip = random_.below(kChips);
    const unsigned before = worker_->processes()[chip].incarnation;
    worker_->replace(worker_->chip(chip));
    ASSERT_TRUE(within(5s, [&] { return worker_->processes()[chip].incarnation > before; }));
    const auto uses_it = [&](const Live& live) {
      return std::find(live.chips.begin(), live.chips.end(), chip) != live.chips.end();
    };
    for (const Live& live : live_) {
      if (!uses_it(live)) continue;
      EXPECT_TRUE(within(1s, [&] { return live.domain->broken(); }));
    }
    std::erase_if(live_, uses_it);
    for (const Live& live : live_)
      EXPECT_FALSE(live.domain->broken());
  }

  Random random_{GetParam()};
  std::vector<Live> live_;
  std::vector<Run> runs_;
};

TEST_P(RandomDomains, WorkInAnyOrder) {
  start_ranks(chips(kChips));
  for (int step = 0; step < 150 && !HasFailure(); ++step) {
    const std::uint64_t what = random_.below(100);
    if (live_.empty() || (what < 30 && live_.size() < 6)) {
      make();
    } else if (what < 75) {
      use();
    } else if (what < 97) {
      release();
    } else {
      lose_a_chip();
    }
    if (runs_.size() > 4) expect_runs_go_well();
  }
  expect_runs_go_well();
  for (const Live& live : live_)
    expect_works(*live.domain);
  live_.clear();
  for (std::size_t i = 0; i < kChips; ++i)
    EXPECT_EQ(worker_->chip_memory(worker_->chip(i)).used, 0U);
}

INSTANTIATE_TEST_SUITE_P(, RandomDomains, testing::Range(std::uint64_t{1}, std::uint64_t{7}));

}  // namespace
}  // namespace strata::test
