// The schedule alone: random tasks and ends, checked against its numbered invariants.

#include "chip/cores/schedule.hpp"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "support/random.hpp"

namespace strata::chip {
namespace {

using test::Random;

const KernelSet kNoKernels;

/// A schedule with tasks that are given by their lanes.
class Rig {
 public:
  explicit Rig(std::string_view platform)
      : platform_(Platform::parse(platform)), schedule_(platform_, nullptr) {}

  Job& add(LaneMask lanes, std::uint32_t blocks, bool together) {
    Job& job = jobs_.emplace_back(Launch(kNoKernels, {0, 0, 0}));
    job.lanes = lanes;
    job.lane_count = static_cast<std::uint8_t>((lanes & 1) + (lanes >> 1 & 1) + (lanes >> 2 & 1));
    job.blocks = blocks;
    job.together = together && blocks > 1;
    job.shape = job.together         ? Shape::together
                : job.lane_count > 1 ? Shape::mixed
                : (lanes & 1) != 0   ? Shape::aic
                                     : Shape::aiv;
    schedule_.add(job);
    return job;
  }
  /// Takes all that can begin now.
  std::vector<Place*> take_all() {
    std::vector<Place*> taken;
    while (Place* const place = schedule_.take()) {
      taken.push_back(place);
      running_.push_back(place);
    }
    return taken;
  }
  void end(std::size_t index) {
    Place* const place = running_[index];
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
    place->gate.close();
    --place->job->live;
    schedule_.release(*place);
  }

  const Platform platform_;
  Schedule schedule_;
  std::deque<Job> jobs_;
  std::vector<Place*> running_;
};

constexpr LaneMask kAic = 1, kAiv = 2, kPair = 3, kAll = 7, kOuter = 5;

TEST(Schedule, TheOldestWithRoomStartsFirst) {
  Rig rig("a2a3sim:clusters=1");
  Job& first = rig.add(kAiv, 1, false);
  Job& second = rig.add(kAic, 1, false);
  Job& third = rig.add(kAiv, 2, false);
  const std::vector<Place*> taken = rig.take_all();
  ASSERT_EQ(taken.size(), 3U);
  EXPECT_EQ(taken[0]->job, &first);
  EXPECT_EQ(taken[1]->job, &second);
  EXPECT_EQ(taken[2]->job, &third);
  EXPECT_EQ(third.next_block, 1U);
  EXPECT_FALSE(rig.schedule_.may_take());
  rig.end(0);
  EXPECT_TRUE(rig.schedule_.may_take());
}

// Invariant (4).
TEST(Schedule, AMixedTaskGetsItsClusterHoweverManySinglesComeAfterIt) {
  Rig rig("a2a3sim:clusters=2");
  for (int i = 0; i < 4; ++i)
    (void)rig.add(kAiv, 1, false);
  (void)rig.take_all();
  Job& mixed = rig.add(kAll, 1, false);
  // Whatever ends, a younger single task wants its place at once.
  for (int ends = 0; mixed.queued; ++ends) {
    ASSERT_LT(ends, 4) << "the mixed task was passed by";
    (void)rig.add(kAiv, 1, false);
    (void)rig.take_all();
    rig.end(0);
    (void)rig.take_all();
  }
}

TEST(Schedule, ATaskThatStartsTogetherGetsItsCoresHoweverManyComeAfterIt) {
  Rig rig("a2a3sim:clusters=2");
  for (int i = 0; i < 4; ++i)
    (void)rig.add(kAiv, 1, false);
  (void)rig.take_all();
  Job& together = rig.add(kAiv, 3, true);
  for (int ends = 0; together.queued; ++ends) {
    ASSERT_LT(ends, 3);
    (void)rig.add(kAiv, 1, false);
    Job& other = rig.add(kAic, 1, false);  // Not of the sort that is waited for.
    (void)rig.take_all();
    EXPECT_EQ(other.queued, ends >= 2) << "there are two AICs";
    rig.end(0);
    (void)rig.take_all();
  }
  EXPECT_EQ(together.live, 3U);
}

TEST(Schedule, ATaskThatWasDroppedGivesNoMoreBlocksAndKeepsNothingFromOthers) {
  Rig rig("a2a3sim:clusters=1");
  Job& single = rig.add(kAiv, 100, false);
  Job& mixed = rig.add(kAll, 5, false);
  Job& other = rig.add(kAic, 1, false);
  EXPECT_EQ(rig.take_all().size(), 2U);
  EXPECT_TRUE(other.queued) << "the mixed task claims the only cluster";
  rig.schedule_.drop(single);
  rig.schedule_.drop(mixed);
  const std::vector<Place*> taken = rig.take_all();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0]->job, &other);
  EXPECT_EQ(rig.schedule_.waiting(), 0U);
}

TEST(Schedule, WhileItIsHeldOnlyDueLanesBegin) {
  Rig rig("a2a3sim:clusters=2");
  (void)rig.add(kAll, 1, false);
  Place* const first = rig.schedule_.take();
  ASSERT_NE(first, nullptr);
  (void)rig.add(kAiv, 1, false);
  rig.schedule_.set_held(true);
  EXPECT_TRUE(rig.schedule_.may_take());
  EXPECT_NE(rig.schedule_.take(), nullptr);
  EXPECT_NE(rig.schedule_.take(), nullptr);
  EXPECT_EQ(rig.schedule_.take(), nullptr);
  rig.schedule_.set_held(false);
  EXPECT_NE(rig.schedule_.take(), nullptr);
}

/// What the invariants say of places that were taken, in the order in which they were.
class Checks {
 public:
  explicit Checks(const Rig& rig) : rig_(rig) {}

  void taken(const Place& place) {
    // (1)
    ASSERT_TRUE(busy_.insert({place.cluster, place.lane}).second) << "two blocks on one place";
    const BlockId id{place.job, place.block};
    const LaneMask lanes = place.job->lanes;
    if (place.job->lane_count > 1) {
      ASSERT_NE(lanes & mask_of(place.lane), 0);
    } else if ((lanes & 1) != 0) {
      ASSERT_EQ(place.lane, ClusterLane::aic);
    } else {
      ASSERT_NE(place.lane, ClusterLane::aic);
    }
    if (rig_.platform_.single_core_clusters) {
      BlockId& owner = owners_[place.cluster];
      if (lanes_[place.cluster]++ == 0) owner = id;
      ASSERT_EQ(owner, id) << "two tasks in a cluster of one core";
    }
    // (2)
    const auto [cluster, is_new] = clusters_.insert({id, place.cluster});
    ASSERT_EQ(cluster->second, place.cluster) << "a block in two clusters";
    // (3)
    if (is_new) {
      const std::uint32_t expected = place.job->together ? place.block : blocks_[place.job];
      ASSERT_EQ(place.block, expected) << "blocks out of turn";
      ++blocks_[place.job];
    }
    ASSERT_TRUE(begun_.insert({id, place.lane}).second) << "a lane that begins twice";
  }
  void released(const Place& place) {
    busy_.erase({place.cluster, place.lane});
    --lanes_[place.cluster];
  }
  [[nodiscard]] std::size_t begun() const { return begun_.size(); }

 private:
  using BlockId = std::pair<const Job*, std::uint32_t>;
  const Rig& rig_;
  std::set<std::pair<std::uint32_t, ClusterLane>> busy_;
  std::map<std::uint32_t, BlockId> owners_;
  std::map<std::uint32_t, int> lanes_;
  std::map<BlockId, std::uint32_t> clusters_;
  std::map<const Job*, std::uint32_t> blocks_;
  std::set<std::pair<BlockId, ClusterLane>> begun_;
};

TEST(Schedule, RandomTasksAndEndsKeepTheInvariants) {
  for (const char* platform : {"a2a3sim:clusters=1", "a2a3sim:clusters=3", "a5sim:clusters=70",
                               "a2a3sim:clusters=4,aivs=1", "a2a3sim:clusters=4,aivs=0",
                               "cpu:clusters=1", "cpu:clusters=5"}) {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      SCOPED_TRACE(std::string(platform) + " seed " + std::to_string(seed));
      Random random(seed);
      Rig rig(platform);
      Checks checks(rig);
      std::size_t lanes = 0;
      int left = 150;
      const auto take = [&] {
        // Some threads only.
        for (auto times = random.below(8); times > 0; --times) {
          Place* const place = rig.schedule_.take();
          if (place == nullptr) {
            EXPECT_FALSE(rig.schedule_.may_take());
            break;
          }
          rig.running_.push_back(place);
          checks.taken(*place);
        }
      };
      while (left > 0 || rig.schedule_.waiting() != 0 || !rig.running_.empty() ||
             rig.schedule_.first_due() != nullptr) {
        if (left > 0 && random.chance(40)) {
          --left;
          std::array options = {kAic, kAiv, kPair, kAll, kOuter};
          Job probe(Launch(kNoKernels, {0, 0, 0}));
          probe.lanes = random.pick(options);
          probe.lane_count = static_cast<std::uint8_t>((probe.lanes & 1) + (probe.lanes >> 1 & 1) +
                                                       (probe.lanes >> 2 & 1));
          const std::uint32_t room = rig.schedule_.room_for(probe);
          if (room == 0) continue;
          const bool together = random.chance(30);
          const auto blocks = static_cast<std::uint32_t>(
              1 + random.below(together ? room : std::uint64_t{random.chance(20) ? 20U : 1U}));
          (void)rig.add(probe.lanes, blocks, together);
          lanes += std::size_t{blocks} * probe.lane_count;
        }
        take();
        if (HasFatalFailure()) return;
        if (!rig.running_.empty() && random.chance(60)) {
          const std::size_t index = random.below(rig.running_.size());
          checks.released(*rig.running_[index]);
          rig.end(index);
        }
      }
      EXPECT_EQ(checks.begun(), lanes);
      for (const Job& job : rig.jobs_) {
        EXPECT_EQ(job.live, 0U);
        EXPECT_EQ(job.next_block, job.blocks);
      }
    }
  }
}

}  // namespace
}  // namespace strata::chip
