// Domains as users have them: what they are made of, what is refused, and what kernels do with
// them.

#include <cstring>
#include <numeric>
#include <vector>

#include "support/domain_test.hpp"

namespace strata::test {
namespace {

class Domains : public DomainTest {
 protected:
  /// What create_domain refuses these options with.
  std::string refusal(const DomainOptions& options) {
    const auto error = thrown_by<InvalidArgument>([&] { (void)worker_->create_domain(options); });
    return error ? error->what() : "";
  }
};

TEST_F(Domains, RanksAreInTheOrderGiven) {
  start_ranks(chips(3));
  const Domain domain = worker_->create_domain(over({2, 0, 1}, "tp"));
  EXPECT_EQ(domain.name(), "tp");
  ASSERT_EQ(domain.size(), 3U);
  EXPECT_EQ(domain.chip(0), worker_->chip(2));
  EXPECT_EQ(domain.chip(2), worker_->chip(1));
  EXPECT_EQ(domain.rank_of(worker_->chip(0)), 1U);
  EXPECT_FALSE(domain.broken());
  EXPECT_THROW((void)domain.chip(3), InvalidArgument);
  EXPECT_THROW((void)domain.context(3), InvalidArgument);
  EXPECT_THROW((void)domain.rank_of(LaneId{99}), InvalidArgument);
  EXPECT_THROW((void)domain.slice(0, "nothing"), InvalidArgument);
  expect_works(domain);
}

TEST_F(Domains, ImpossibleRequestsAreRefusedBeforeAnythingIsAllocated) {
  WorkerOptions options = chips(2);
  options.subs = {{.count = 1}};
  start_ranks(std::move(options));
  const std::size_t used = worker_->chip_memory(worker_->chip(0)).used;
  EXPECT_THAT(refusal(over({0, 0})), HasSubstr("ranks 0 and 1 are the same chip"));
  DomainOptions sub = over({0});
  sub.chips.push_back(worker_->sub(0));
  EXPECT_THAT(refusal(sub), HasSubstr("is no chip of this Worker"));
  sub.chips.back() = LaneId{77};
  EXPECT_THAT(refusal(sub), HasSubstr("lane 77"));
  EXPECT_THAT(refusal({.name = "none"}), HasSubstr("no chips"));
  DomainOptions large = over({0, 1});
  large.slices = {{"x", DType::float32, std::uint64_t{1} << 60}};
  EXPECT_THAT(refusal(large), HasSubstr("'x'"));
  large.slices = {{"x", DType::uint8, 1}, {"x", DType::uint8, 1}};
  EXPECT_THAT(refusal(large), HasSubstr("two slices"));
  large = over({0, 1}, std::string(32, 'n'));
  EXPECT_THAT(refusal(large), HasSubstr("32 bytes"));
  large = over({0, 1});
  large.channels = 0;
  EXPECT_THAT(refusal(large), HasSubstr("channels"));
  large.channels = 1;
  large.time_limit = 0ms;
  EXPECT_THAT(refusal(large), HasSubstr("time_limit"));
  EXPECT_EQ(worker_->chip_memory(worker_->chip(0)).used, used);
}

TEST_F(Domains, ChipsThatHaveNoRoomAreSaidToHaveNone) {
  start_ranks(chips(2, "a2a3sim:clusters=1,memory=8M"));
  DomainOptions options = over({0, 1});
  options.slices.push_back({"large", DType::uint8, 8 << 20});
  EXPECT_THROW((void)worker_->create_domain(options), ChipError);
  EXPECT_EQ(worker_->chip_memory(worker_->chip(0)).used, 0U);
  options.slices.pop_back();
  const Domain domain = worker_->create_domain(options);
  EXPECT_GT(worker_->chip_memory(worker_->chip(1)).used, 0U);
  expect_works(domain);
}

TEST_F(Domains, NeedAWorkerThatIsInitialised) {
  Worker worker(chips(1));
  DomainOptions options{.chips = {worker.chip(0)}};
  EXPECT_THROW((void)worker.create_domain(options), InvalidState);
}

TEST_F(Domains, WindowsAreZeroAndAreCopiedToAndFrom) {
  start_ranks(chips(2));
  Domain domain = worker_->create_domain(over({0, 1}));
  std::vector<std::int64_t> values(64, -1);
  domain.copy_to_host(1, "numbers", std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values, std::vector<std::int64_t>(64, 0));
  std::iota(values.begin(), values.end(), 5);
  domain.copy_from_host(1, "numbers", std::as_bytes(std::span(values)));
  std::array<std::int64_t, 2> two{};
  domain.copy_to_host(1, "numbers", std::as_writable_bytes(std::span(two)), 8);
  EXPECT_EQ(two, (std::array<std::int64_t, 2>{6, 7}));
  domain.copy_to_host(0, "numbers", std::as_writable_bytes(std::span(two)), 8);
  EXPECT_EQ(two, (std::array<std::int64_t, 2>{0, 0})) << "the windows are not one";
  EXPECT_THROW(domain.copy_to_host(0, "numbers", std::as_writable_bytes(std::span(values)), 8),
               InvalidArgument);
  EXPECT_THROW(domain.copy_to_host(2, "numbers", {}), InvalidArgument);
}

TEST_F(Domains, ASliceIsATensorOfTheTasksOnItsChip) {
  start_ranks(chips(2));
  Domain domain = worker_->create_domain(over({0, 1}));
  const Tensor numbers = domain.slice(1, "numbers");
  EXPECT_EQ(numbers.extent(0), 64);
  worker_->run([&](Orchestration& run) {
    run.submit(Call(ways_), inout(numbers), scalar(Way::add), scalar(std::int64_t{7}),
               on(worker_->chip(1)));
  });
  std::vector<std::int64_t> values(64);
  domain.copy_to_host(1, "numbers", std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values, std::vector<std::int64_t>(64, 7));
  const auto refused = [&](Target target) {
    return thrown_by<ChipError>([&] {
      worker_->run([&](Orchestration& run) {
        run.submit(Call(ways_), inout(numbers), scalar(Way::add), scalar(std::int64_t{7}), target);
      });
    });
  };
  EXPECT_EQ(refused(on(worker_->chip(0)))->code(), ErrorCode::foreign_memory);
  EXPECT_THAT(refused(on(worker_->any_chip()))->what(), HasSubstr("rank 1 of domain 'test'"));
}

TEST_F(Domains, AreMadeInAnOrchestrationAndKeptOverRuns) {
  start_ranks(chips(2));
  Domain kept;
  worker_->run([&](Orchestration& run) {
    {
      const Domain local = worker_->create_domain(over({1, 0}, "local"));
      submit_ranks(run, local, RankWay::sum_up, 10);
      kept = worker_->create_domain(over({0, 1}, "kept"));
    }  // Released, and used until its task has ended.
  });
  EXPECT_EQ(out(worker_->chip(0)), 21);
  for (int i = 0; i < 3; ++i)
    expect_works(kept, i);
}

TEST_F(Domains, WhatIsReleasedIsRefusedAndItsMemoryComesBack) {
  start_ranks(chips(2));
  Domain domain = worker_->create_domain(over({0, 1}));
  const Tensor context = domain.context(0);
  domain.release();
  domain.release();
  EXPECT_EQ(domain.size(), 0U);
  EXPECT_THROW((void)domain.context(0), InvalidState);
  EXPECT_THROW(worker_->run([&](Orchestration& run) {
    run.submit(Call(ranks_), in(context), inout(out_tensor(worker_->chip(0))),
               scalar(RankWay::sum_up), scalar(std::int64_t{1}), on(worker_->chip(0)));
  }),
               InvalidArgument);
  EXPECT_EQ(worker_->chip_memory(worker_->chip(0)).used, 0U);
}

TEST_F(Domains, OutliveTheirWorkerHarmlessly) {
  Domain domain;
  start_ranks(chips(2));
  domain = worker_->create_domain(over({0, 1}));
  outs_.clear();
  x_ = {};
  worker_.reset();
  EXPECT_TRUE(domain.broken());
  std::array<char, 2> bytes{};
  EXPECT_THROW(domain.copy_to_host(0, "flags", std::as_writable_bytes(std::span(bytes))), Error);
  domain.release();
}

struct Ranks {
  std::size_t count;
  const char* platform;
};
class RanksOnChips : public Domains, public testing::WithParamInterface<Ranks> {};

TEST_P(RanksOnChips, PutGetNotifyWaitBarrierAndAllReduceWork) {
  const auto [count, platform] = GetParam();
  start_ranks(chips(count, platform));
  const Domain domain = worker_->create_domain(over_first(count));
  worker_->run([&](Orchestration& run) { submit_ranks(run, domain, RankWay::pass_on, 100); });
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    EXPECT_EQ(out(domain.chip(rank), 0), 100 + (rank + static_cast<std::int64_t>(count) - 1) %
                                                   static_cast<std::int64_t>(count));
    EXPECT_EQ(out(domain.chip(rank), 1), 100 + (rank + 1) % static_cast<std::int64_t>(count));
  }
  expect_works(domain);
}

INSTANTIATE_TEST_SUITE_P(, RanksOnChips,
                         testing::Values(Ranks{1, "a2a3sim:clusters=1"},
                                         Ranks{2, "a2a3sim:clusters=1"},
                                         Ranks{3, "a2a3sim:clusters=1,staging=1"}, Ranks{4, "cpu"},
                                         Ranks{8, "a2a3sim:clusters=1"},
                                         Ranks{8, "a2a3sim:clusters=1,staging=1"}));

}  // namespace
}  // namespace strata::test
