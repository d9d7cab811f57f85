// Who gets which CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "node/child_specs.hpp"
#include "node/cpu_shares.hpp"
#include "node/protocol.hpp"

namespace strata::node {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using Cpus = std::vector<int>;

WorkerOptions tree(const std::vector<std::string>& platforms,
                   std::vector<WorkerOptions> next_level = {}) {
  WorkerOptions options;
  for (const std::string& platform : platforms)
    options.chips.push_back({.platform = platform});
  options.next_level = std::move(next_level);
  return options;
}

Cpus first_cpus(std::size_t count) {
  Cpus cpus(count);
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

/// What each chip of platform cpu in the tree is told, found as the processes find it: by what the
/// levels above hand down.
std::vector<Cpus> told(const WorkerOptions& options, const Cpus& cpus) {
  std::vector<Cpus> all;
  for (const ChildSpec& spec : child_specs(options, {.cpus = cpus})) {
    const auto share = spec.configure.at("cpus").get<Cpus>();
    if (spec.kind == "next") {
      const auto below = told(options_from(spec.configure.at("options")), share);
      all.insert(all.end(), below.begin(), below.end());
    } else if (spec.configure.at("platform") == "cpu") {
      all.push_back(share);
    }
  }
  return all;
}

TEST(CpuShares, ChipsOfPlatformCpuShareTheCpusWithoutOverlap) {
  EXPECT_THAT(cpu_shares(tree({"cpu"}), {0, 2, 5}).chips, ElementsAre(ElementsAre(0, 2, 5)));
  EXPECT_THAT(cpu_shares(tree({"cpu", "cpu"}), {0, 1, 2, 3, 4}).chips,
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3, 4)));
  EXPECT_THAT(cpu_shares(tree({"cpu", "cpu", "cpu"}), {7, 8, 9}).chips,
              ElementsAre(ElementsAre(7), ElementsAre(8), ElementsAre(9)));
}

TEST(CpuShares, WhereThereAreTooFewEachChipHasOneInTurn) {
  EXPECT_THAT(cpu_shares(tree({"cpu", "cpu", "cpu"}), {4, 6}).chips,
              ElementsAre(ElementsAre(4), ElementsAre(6), ElementsAre(4)));
  EXPECT_THAT(cpu_shares(tree({"cpu", "cpu"}), {3}).chips,
              ElementsAre(ElementsAre(3), ElementsAre(3)));
}

TEST(CpuShares, SimulatedChipsTakeNoShare) {
  const CpuShares shares =
      cpu_shares(tree({"a2a3sim", "cpu", "a5sim", "cpu"}, {tree({"a2a3sim"})}), {0, 1});
  EXPECT_THAT(shares.chips, ElementsAre(IsEmpty(), ElementsAre(0), IsEmpty(), ElementsAre(1)));
  EXPECT_THAT(shares.next_level, ElementsAre(IsEmpty()));
}

TEST(CpuShares, NextLevelWorkersTakeAsManySharesAsChipsAreBelow) {
  const WorkerOptions options =
      tree({"cpu"}, {tree({"cpu", "cpu", "a2a3sim"}), tree({}, {tree({"cpu"})})});
  const CpuShares shares = cpu_shares(options, first_cpus(8));
  EXPECT_THAT(shares.chips, ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(shares.next_level, ElementsAre(ElementsAre(2, 3, 4, 5), ElementsAre(6, 7)));
  EXPECT_THAT(told(options, first_cpus(8)), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3),
                                                        ElementsAre(4, 5), ElementsAre(6, 7)));
}

TEST(CpuShares, NoTwoChipsOfATreeHaveACpuInCommonAsLongAsThereIsOneForEach) {
  const WorkerOptions options = tree(
      {"cpu"}, {tree({"cpu", "cpu", "cpu"}), tree({"cpu"}, {tree({"cpu", "cpu"}), tree({"cpu"})})});
  constexpr std::size_t kChips = 8;
  for (std::size_t count = kChips; count < 70; ++count) {
    const std::vector<Cpus> chips = told(options, first_cpus(count));
    ASSERT_EQ(chips.size(), kChips);
    std::set<int> seen;
    std::size_t total = 0;
    for (const Cpus& chip : chips) {
      EXPECT_FALSE(chip.empty());
      seen.insert(chip.begin(), chip.end());
      total += chip.size();
    }
    EXPECT_EQ(total, count) << "some CPU is nobody's, or two chips'";
    EXPECT_EQ(seen.size(), count);
  }
}

TEST(CpuShares, WhereATreeHasMoreChipsThanCpusEachHasOneAndNoneHasTwoMoreThanAnother) {
  const WorkerOptions options = tree(
      {"cpu"}, {tree({"cpu", "cpu", "cpu"}), tree({"cpu"}, {tree({"cpu", "cpu"}), tree({"cpu"})})});
  for (std::size_t count = 1; count < 8; ++count) {
    std::vector<int> users(count);
    for (const Cpus& chip : told(options, first_cpus(count))) {
      ASSERT_EQ(chip.size(), 1U);
      ++users[static_cast<std::size_t>(chip.front())];
    }
    const auto [least, most] = std::minmax_element(users.begin(), users.end());
    EXPECT_LE(*most - *least, 1) << count << " CPUs";
  }
}

TEST(CpuShares, TheCpusOfThisThreadAreListed) { EXPECT_THAT(allowed_cpu_list(), Not(IsEmpty())); }

}  // namespace
}  // namespace strata::node
