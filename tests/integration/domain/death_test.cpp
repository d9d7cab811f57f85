// Ranks whose processes die, stop, or do not listen: while they come up, in the middle of a
// collective, and between tasks.

#include <signal.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/domain_test.hpp"
#include "support/random.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::AnyOf;

class DomainDeath : public DomainTest {
 protected:
  [[nodiscard]] int pid_of(std::size_t chip) const { return worker_->processes()[chip].pid; }
  void kill_chip(std::size_t chip) const { ::kill(pid_of(chip), SIGKILL); }
  [[nodiscard]] bool all_count(const Domain& domain) const {
    for (std::uint32_t rank = 0; rank < domain.size(); ++rank) {
      if (out(domain.chip(rank)) == 0) return false;
    }
    return true;
  }
  /// What a use of the domain is refused with.
  std::string refusal(const Domain& domain) {
    const auto error = thrown_by<CommError>([&] {
      worker_->run([&](Orchestration& run) { submit_ranks(run, domain, RankWay::sum_up); });
    });
    if (!error) return "";
    EXPECT_EQ(error->cause(), CommError::Cause::rank_left);
    return error->what();
  }
};

TEST_F(DomainDeath, OfARankInACollectiveEndsAllOthersWithThatCause) {
  start_ranks(chips(4));
  Domain domain = worker_->create_domain(over({3, 0, 1, 2}));
  const Run run =
      worker_->submit([&](Orchestration& o) { submit_ranks(o, domain, RankWay::sum_for_ever); });
  ASSERT_TRUE(within(5s, [&] { return all_count(domain); }));
  const Stopwatch watch;
  kill_chip(0);
  ASSERT_TRUE(run.wait_for(bound(1s)));
  const auto failures = failures_of(run);
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_THAT(failures[0].second, HasSubstr("killed by signal 9"));
  EXPECT_TRUE(domain.broken());
  EXPECT_THAT(refusal(domain), AllOf(HasSubstr("rank 1 is gone"), HasSubstr("killed by signal 9")));
  std::array<std::byte, 8> bytes{};
  EXPECT_THROW(domain.copy_to_host(0, "flags", bytes), CommError);
  // Its ranks' processes are those that there were, but for the one.
  for (const ProcessStatus& each : worker_->processes())
    EXPECT_LE(each.incarnation, each.path == "node/chip[0]" ? 2U : 1U) << each.path;
  expect_works(worker_->create_domain(over({3, 0, 1, 2})));
}

TEST_F(DomainDeath, OfARankIsKnownToRanksThatNobodyCancels) {
  start_ranks(chips(3));
  const Domain domain = worker_->create_domain(over_first(3));
  // Tasks of their own: it is the window that tells them.
  std::vector<Run> runs;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    runs.push_back(worker_->submit([&, rank](Orchestration& o) {
      o.submit(Call(ranks_), in(domain.context(rank)), inout(out_tensor(domain.chip(rank))),
               scalar(RankWay::sum_for_ever), scalar(std::int64_t{0}), on(domain.chip(rank)));
    }));
  }
  ASSERT_TRUE(within(5s, [&] { return all_count(domain); }));
  kill_chip(1);
  for (const std::uint32_t rank : {0U, 2U}) {
    ASSERT_TRUE(runs[rank].wait_for(bound(1s)));
    const auto failures = failures_of(runs[rank]);
    ASSERT_EQ(failures.size(), 1U);
    EXPECT_THAT(failures[0].second, HasSubstr("the process of rank 1 is gone"));
  }
  ASSERT_TRUE(runs[1].wait_for(bound(1s)));
}

TEST_F(DomainDeath, OfARankEndsOthersThatWaitForSignals) {
  start_ranks(chips(3));
  const Domain domain = worker_->create_domain(over_first(3));
  const Run run =
      worker_->submit([&](Orchestration& o) { submit_ranks(o, domain, RankWay::wait_for_signal); });
  ASSERT_TRUE(within(5s, [&] { return all_count(domain); }));
  kill_chip(2);
  ASSERT_TRUE(run.wait_for(bound(1s)));
  EXPECT_TRUE(domain.broken());
}

TEST_F(DomainDeath, BreaksTheDomainsOfThatChipAndNoOthers) {
  start_ranks(chips(4));
  const Domain left = worker_->create_domain(over({0, 1}, "left"));
  const Domain middle = worker_->create_domain(over({1, 2}, "middle"));
  const Domain right = worker_->create_domain(over({2, 3}, "right"));
  kill_chip(1);
  ASSERT_TRUE(within(1s, [&] { return left.broken() && middle.broken(); }));
  EXPECT_FALSE(right.broken());
  expect_works(right);
  EXPECT_THAT(refusal(left), HasSubstr("'left' is broken: the process of rank 1"));
  EXPECT_THAT(refusal(middle), HasSubstr("'middle' is broken: the process of rank 0"));
}

TEST_F(DomainDeath, ReleasingABrokenDomainGivesItsMemoryBack) {
  start_ranks(chips(2));
  Domain domain = worker_->create_domain(over({0, 1}));
  kill_chip(1);
  ASSERT_TRUE(within(1s, [&] { return domain.broken(); }));
  domain.release();
  EXPECT_EQ(worker_->chip_memory(worker_->chip(0)).used, 0U);
  EXPECT_EQ(worker_->chip_memory(worker_->chip(1)).used, 0U);
}

TEST_F(DomainDeath, AProcessThatIsStoppedIsTheOneThatIsNamed) {
  WorkerOptions options = chips(3);
  options.cancel_grace = 60s;  // That is not waited for.
  start_ranks(std::move(options));
  DomainOptions wanted = over_first(3);
  wanted.time_limit = bound(100ms);
  // At first while the ranks come up, then while a domain is attached.
  for (const auto step : {BringUpFailed::Step::load_library, BringUpFailed::Step::attach}) {
    const std::size_t chip = step == BringUpFailed::Step::attach ? 2 : 1;
    ::kill(pid_of(chip), SIGSTOP);
    const Stopwatch watch;
    const auto error = thrown_by<BringUpFailed>([&] { (void)worker_->create_domain(wanted); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->rank(), chip) << error->what();
    EXPECT_EQ(error->step(), step);
    EXPECT_THAT(error->what(), HasSubstr("did not come through within"));
    EXPECT_LT(watch.elapsed(), 30s);
    wanted.time_limit = 60s;
    expect_works(worker_->create_domain(wanted));
    wanted.time_limit = bound(100ms);
  }
}

TEST_F(DomainDeath, JustBeforeADomainIsMadeIsMadeUpFor) {
  start_ranks(chips(3));
  Random random(11);
  for (int round = 0; round < (kSanitized ? 4 : 20) && !HasFailure(); ++round) {
    const std::size_t chip = random.below(3);
    const int pid = pid_of(chip);
    const Domain before = worker_->create_domain(over_first(3));
    kill_chip(chip);
    // At any point between the death and when all have heard of it.
    for (std::uint64_t turns = random.below(2'000'000); turns > 0; --turns)
      asm volatile("");
    const Domain domain = worker_->create_domain(over_first(3));
    EXPECT_NE(pid_of(chip), pid);
    expect_works(domain);
    EXPECT_TRUE(before.broken());
  }
}

TEST_F(DomainDeath, ClosingEndsABringUpThatWaits) {
  start_ranks(chips(2));
  // Chip 0 is busy, so the ranks can't come up.
  const Run held = worker_->submit([&](Orchestration& run) {
    run.submit(Call(ways_), inout(x()), scalar(Way::hold), scalar(std::int64_t{0}),
               on(worker_->chip(0)));
  });
  ASSERT_TRUE(within(5s, [&] { return at(0) == 1; }));
  std::string thrown;
  std::thread waits([&] {
    try {
      (void)worker_->create_domain(over({0, 1}));
    } catch (const Cancelled& error) {
      thrown = "cancelled";
    } catch (const std::exception& error) {
      thrown = error.what();
    }
  });
  worker_->close();
  waits.join();
  EXPECT_THAT(thrown, AnyOf("cancelled", HasSubstr("no worker processes")));
}

TEST_F(DomainDeath, ATaskWithAGraceOfItsOwnIsEndedByThat) {
  WorkerOptions options = chips(1);
  options.cancel_grace = 600s;
  start_ranks(std::move(options));
  const CallableId stuck = worker_->add(task_in_library("sleep_for_ever"));
  TaskFlag begun(*worker_);
  const Run run = worker_->submit([&](Orchestration& o) {
    o.submit(Call(stuck).stopping_within(50ms), inout(begun.tensor()), on(worker_->chip(0)));
  });
  ASSERT_TRUE(begun.begun_within(5s));
  run.cancel();
  EXPECT_TRUE(run.wait_for(30s));
  expect_process(2);
}

}  // namespace
}  // namespace strata::test
