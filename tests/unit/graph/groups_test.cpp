// Groups: tasks that start together or not at all. Numbers in comments are invariants of
// src/graph/scheduler.hpp.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "engine_support.hpp"
#include "support/random.hpp"

namespace strata::test {
namespace {

/// Members on the given lanes that all run `body`.
template <class F>
std::vector<GroupMember> members_on(const std::vector<std::uint32_t>& lanes, const F& body) {
  std::vector<GroupMember> members;
  for (const std::uint32_t lane : lanes) {
    members.push_back({.lane = LaneId{lane}, .body = Body(body)});
  }
  return members;
}

template <class F>
TaskId submit_group(Orchestration& o, const std::vector<std::uint32_t>& lanes, const F& body) {
  std::vector<GroupMember> members = members_on(lanes, body);
  return o.submit_group({.members = members});
}

TEST(Groups, MembersRunAtTheSameTimeEachOnItsLane) {
  Engine engine(thread_lanes(4));
  std::atomic<int> met{0};
  std::atomic<int> wrong{0};
  std::vector<std::unique_ptr<Meeting>> meetings;
  for (int round = 0; round < 50; ++round)
    meetings.push_back(std::make_unique<Meeting>(3));
  const std::vector<std::uint32_t> lanes{3, 0, 2};
  engine.run([&](Orchestration& o) {
    for (auto& meeting : meetings) {
      submit_group(o, lanes, [&, m = meeting.get()](TaskContext& c) {
        met += m->arrive() ? 1 : 0;
        wrong += c.lane() == LaneId{lanes[c.member()]} && c.members() == 3 ? 0 : 1;
      });
      o.submit(nothing);
    }
  });
  EXPECT_EQ(met, 150);
  EXPECT_EQ(wrong, 0);
}

TEST(Groups, GroupIsOneTaskForThoseThatFollow) {
  Engine engine(thread_lanes(3));
  Floats a(engine, {4});
  Floats b(engine, {4});
  std::atomic<int> ended{0};
  std::atomic<int> seen_by_reader{-1};
  std::atomic<int> seen_after{-1};
  engine.run([&](Orchestration& o) {
    const TensorArg writes_a[] = {out(a.tensor)};
    const TensorArg writes_b[] = {out(b.tensor)};
    GroupMember members[] = {
        {.lane = LaneId{0}, .body = [&](TaskContext&) { ++ended; }, .tensors = writes_a},
        {.lane = LaneId{1},
         .body =
             [&](TaskContext&) {
               for (int i = 0; i < 50; ++i)
                 std::this_thread::yield();
               ++ended;
             },
         .tensors = writes_b}};
    const TaskId group = o.submit_group({.members = members});
    o.submit([&](TaskContext&) { seen_by_reader = ended.load(); }, in(a.tensor));
    o.submit([&](TaskContext&) { seen_after = ended.load(); }, after(group));
  });
  EXPECT_EQ(seen_by_reader, 2);
  EXPECT_EQ(seen_after, 2);
}

TEST(Groups, MembersOfOneGroupDoNotWaitForEachOther) {
  Engine engine(thread_lanes(2));
  Floats a(engine, {4});
  Meeting meeting(2);
  std::atomic<int> met{0};
  engine.run([&](Orchestration& o) {
    const TensorArg args[] = {inout(a.tensor)};
    std::vector<GroupMember> members =
        members_on({0, 1}, [&](TaskContext&) { met += meeting.arrive() ? 1 : 0; });
    for (GroupMember& member : members)
      member.tensors = args;
    o.submit_group({.members = members});
  });
  EXPECT_EQ(met, 2);
}

TEST(Groups, NothingIsSentAheadAcrossAGroup) {
  // (2): an exact task submitted behind the group stays behind it, on every lane of the group.
  Engine engine(thread_lanes(2));
  std::atomic<int> overtook{0};
  engine.run([&](Orchestration& o) {
    for (int round = 0; round < 50; ++round) {
      Gate start;
      std::atomic<bool> member_ended[2] = {false, false};
      const TaskId busy = o.submit([&](TaskContext&) { start.wait(); }, on(LaneId{0}));
      submit_group(o, {0, 1}, [&](TaskContext& c) { member_ended[c.member()] = true; });
      TaskId behind[2];
      for (std::uint32_t lane = 0; lane < 2; ++lane) {
        behind[lane] = o.submit([&, lane](TaskContext&) { overtook += member_ended[lane] ? 0 : 1; },
                                on(LaneId{lane}));
      }
      start.open();
      for (const TaskId task : {busy, behind[0], behind[1]})
        o.wait(task);
    }
  });
  EXPECT_EQ(overtook, 0);
}

TEST(Groups, GroupWaitsForExactTasksBeforeItOnAllItsLanes) {
  Engine engine(thread_lanes(3));
  std::atomic<int> before{0};
  std::atomic<int> wrong{0};
  engine.run([&](Orchestration& o) {
    for (int round = 1; round <= 50; ++round) {
      for (std::uint32_t lane = 0; lane < 3; ++lane) {
        o.submit(
            [&](TaskContext&) {
              std::this_thread::yield();
              ++before;
            },
            on(LaneId{lane}));
      }
      submit_group(o, {0, 1, 2},
                   [&, round](TaskContext&) { wrong += before >= 3 * round ? 0 : 1; });
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Groups, GroupStartsThoughTasksOfTheKindNeverRunOut) {
  // Each task of the kind submits its follower by way of the orchestration, until the group has
  // run: a group that waited for a moment without any would never start.
  Engine engine(thread_lanes(2));
  std::atomic<bool> group_ran{false};
  const strata::Run run = engine.submit([&](Orchestration& o) {
    for (int i = 0; i < 50; ++i)
      o.submit(nothing);
    submit_group(o, {0, 1}, [&](TaskContext&) { group_ran = true; });
    while (!group_ran && !o.cancelled())
      o.submit([](TaskContext&) { std::this_thread::yield(); });
  });
  EXPECT_TRUE(ends(run));
  EXPECT_TRUE(group_ran);
}

TEST(Groups, ManyRandomGroupsOfManyRunsNeverDeadlock) {
  constexpr unsigned kLanes = 5;
  Engine engine(thread_lanes(kLanes));
  std::atomic<std::uint64_t> members_run{0};
  std::atomic<std::uint64_t> members_submitted{0};
  std::vector<strata::Run> runs;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    runs.push_back(engine.submit([&, seed](Orchestration& o) {
      Random random(seed);
      Floats a(engine, {8});
      for (int i = 0; i < 150; ++i) {
        std::vector<std::uint32_t> lanes;
        for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
          if (random.chance(50)) lanes.push_back(lane);
        }
        random.shuffle(lanes);
        if (lanes.empty()) continue;
        members_submitted += lanes.size();
        auto together = std::make_shared<Meeting>(static_cast<int>(lanes.size()));
        std::vector<GroupMember> members = members_on(lanes, [&, together](TaskContext&) {
          if (together->arrive()) ++members_run;
        });
        const Tensor part = a.tensor.slice(0, random.between(0, 3), random.between(4, 8));
        const TensorArg args[] = {random.chance(50) ? inout(part) : in(part)};
        members[0].tensors = args;
        o.submit_group({.members = members});
        if (random.chance(30)) o.submit(nothing, inout(part));
        if (random.chance(30)) {
          o.submit(nothing, on(LaneId{static_cast<std::uint32_t>(random.below(kLanes))}));
        }
      }
      o.wait(a.tensor);
      engine.remove_buffer(a.tensor.buffer());
    }));
  }
  for (const strata::Run& run : runs) {
    ASSERT_TRUE(ends(run));
    run.result();
  }
  EXPECT_EQ(members_run, members_submitted);
}

TEST(Groups, GroupsThatMeetKeepSubmissionOrderOverRuns) {
  // Two groups of two runs meet on lane 1; whichever was submitted first must run first, though the
  // other one's remaining lane is free all the time.
  Engine engine(thread_lanes(3));
  for (int round = 0; round < 50; ++round) {
    Gate start;
    Gate first_submitted;
    Gate second_submitted;
    std::atomic<bool> first_ran_on_lane_1{false};
    std::atomic<int> overtook{0};
    const strata::Run first = engine.submit([&](Orchestration& o) {
      const TaskId late = o.submit([&](TaskContext&) { start.wait(); }, on(LaneId{0}));
      std::vector<GroupMember> members = members_on({0, 1}, [&](TaskContext& c) {
        if (c.lane() == LaneId{1}) first_ran_on_lane_1 = true;
      });
      o.submit_group({.members = members, .after = {&late, 1}});
      first_submitted.open();
    });
    ASSERT_TRUE(first_submitted.wait());
    const strata::Run second = engine.submit([&](Orchestration& o) {
      submit_group(o, {1, 2}, [&](TaskContext&) { overtook += first_ran_on_lane_1 ? 0 : 1; });
      second_submitted.open();
    });
    ASSERT_TRUE(second_submitted.wait());
    start.open();
    ASSERT_TRUE(ends(second));
    ASSERT_TRUE(ends(first));
    EXPECT_EQ(overtook, 0);
  }
}

TEST(Groups, GroupOverKindsAndTheCallerLaneStarts) {
  Engine engine(
      {.kinds = {{.name = "a", .threads = 1, .callers = 1}, {.name = "b", .threads = 1}}});
  std::atomic<int> met{0};
  std::vector<std::unique_ptr<Meeting>> meetings;
  for (int round = 0; round < 20; ++round)
    meetings.push_back(std::make_unique<Meeting>(3));
  engine.run([&](Orchestration& o) {
    for (auto& meeting : meetings) {
      submit_group(o, {0, 1, 2},
                   [&, m = meeting.get()](TaskContext&) { met += m->arrive() ? 1 : 0; });
      o.submit(nothing);
    }
  });
  EXPECT_EQ(met, 60);
}

TEST(Groups, SkippedGroupGivesItsPlacesUp) {
  Engine engine(thread_lanes(2));
  Floats a(engine, {4});
  std::atomic<int> members_run{0};
  std::atomic<int> later{0};
  const strata::Run run = engine.submit([&](Orchestration& o) {
    o.submit([](TaskContext&) { throw std::runtime_error("no"); }, out(a.tensor));
    std::vector<GroupMember> members = members_on({0, 1}, [&](TaskContext&) { ++members_run; });
    const TensorArg args[] = {in(a.tensor)};
    members[1].tensors = args;
    o.submit_group({.members = members, .name = "pair"});
    for (std::uint32_t lane = 0; lane < 2; ++lane) {
      o.submit([&](TaskContext&) { ++later; }, on(LaneId{lane}));
    }
    submit_group(o, {0, 1}, [&](TaskContext&) { ++later; });
  });
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(members_run, 0);
  EXPECT_EQ(later, 4);
  try {
    run.result();
    ADD_FAILURE() << "the run did not fail";
  } catch (const RunFailed& failed) {
    ASSERT_EQ(failed.skipped().size(), 1U);
    EXPECT_EQ(failed.skipped()[0].name, "pair");
  }
}

TEST(Groups, CancelledGroupThatHasNotStartedIsDropped) {
  Engine engine(thread_lanes(2));
  Gate started;
  Gate proceed;
  Gate submitted;
  std::atomic<int> members_run{0};
  const strata::Run run = engine.submit([&](Orchestration& o) {
    o.submit(
        [&](TaskContext&) {
          started.open();
          proceed.wait();
        },
        on(LaneId{0}));
    submit_group(o, {0, 1}, [&](TaskContext&) { ++members_run; });
    submitted.open();
  });
  ASSERT_TRUE(started.wait());
  ASSERT_TRUE(submitted.wait());
  run.cancel();
  proceed.open();
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(members_run, 0);
  EXPECT_THROW(run.result(), Cancelled);
}

TEST(Groups, DuplicateAndUnknownLanesAreRefused) {
  Engine engine(thread_lanes(2));
  std::atomic<int> ran{0};
  engine.run([&](Orchestration& o) {
    std::vector<GroupMember> twice = members_on({1, 0, 1}, [&](TaskContext&) { ++ran; });
    const std::string duplicate =
        message_of<InvalidArgument>([&] { o.submit_group({.members = twice, .name = "halo"}); });
    EXPECT_NE(duplicate.find("'halo'"), std::string::npos) << duplicate;
    EXPECT_NE(duplicate.find("member 2"), std::string::npos) << duplicate;
    EXPECT_NE(duplicate.find("lane 1"), std::string::npos) << duplicate;

    std::vector<GroupMember> far = members_on({0, 2}, [&](TaskContext&) { ++ran; });
    const std::string unknown =
        message_of<InvalidArgument>([&] { o.submit_group({.members = far}); });
    EXPECT_NE(unknown.find("member 1"), std::string::npos) << unknown;
    EXPECT_NE(unknown.find("lane 2"), std::string::npos) << unknown;

    EXPECT_THROW(o.submit_group({}), InvalidArgument);
    std::vector<GroupMember> idle(1);
    EXPECT_THROW(o.submit_group({.members = idle}), InvalidArgument);

    // No lane was taken by any of these.
    submit_group(o, {0, 1}, [&](TaskContext&) { ran += 10; });
  });
  EXPECT_EQ(ran, 20);
}

}  // namespace
}  // namespace strata::test
