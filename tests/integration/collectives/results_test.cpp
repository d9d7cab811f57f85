// Collectives as tasks give exactly what they should: all of them, with every type, operation,
// size, algorithm and memory, drawn at random from a seed; and many at once.
#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <thread>

#include "cases.hpp"

namespace strata::test {
namespace {

class CollectiveTasks : public NodeTest, public testing::WithParamInterface<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveTasks, testing::Values(1, 2, 3, 4, 5, 8),
                         [](const auto& param) { return std::to_string(param.param); });

TEST_P(CollectiveTasks, GiveTheExactResultOfAnyDraw) {
  Ranks ranks(GetParam());
  Random random(GetParam());
  const int draws = kSanitized ? 30 : 400;
  for (int i = 0; i < draws && !HasFailure(); ++i) {
    const Draw d = draw(random, ranks.domain(), 4);
    SCOPED_TRACE("draw " + std::to_string(i) + ": " + text_of(d, ranks.size()));
    std::optional<Case> one;
    ranks.worker().run([&](Orchestration& run) {
      one.emplace(ranks.worker(), ranks.domain(), d, random, run);
      one->submit(run);
    });
    one->check();
  }
}

TEST_P(CollectiveTasks, AreExactForMegabytes) {
  Ranks ranks(GetParam());
  Random random(GetParam() + 100);
  for (const Kind kind : {Kind::all_reduce, Kind::reduce_scatter, Kind::all_to_all}) {
    const std::uint64_t count = ((std::uint64_t{1} << 20) + 3) / GetParam();
    std::optional<Case> one;
    ranks.worker().run([&](Orchestration& run) {
      one.emplace(ranks.worker(), ranks.domain(), Draw{.kind = kind, .count = count}, random, run);
      one->submit(run);
    });
    one->check();
  }
}

TEST_P(CollectiveTasks, ManyOfARunAreAllExact) {
  Ranks ranks(GetParam());
  Random random(GetParam() + 200);
  std::deque<Case> all;
  ranks.worker().run([&](Orchestration& run) {
    for (int i = 0; i < 24; ++i) {
      Draw d = draw(random, ranks.domain(), 4);
      d.count = std::min<std::uint64_t>(d.count, 3000);
      all.emplace_back(ranks.worker(), ranks.domain(), d, random, run, kOwnPlaces);
      all.back().submit(run);
    }
  });
  for (const Case& each : all)
    each.check();
}

using CollectiveChains = NodeTest;

TEST_F(CollectiveChains, SendAndBarrierReachTheRanksThatAreNamed) {
  Ranks ranks(4);
  Worker& worker = ranks.worker();
  const std::uint32_t last = ranks.size() - 1;
  for (const std::int64_t count : {0, 1, 100, 300000}) {
    const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(count, 1)) * 4;
    Buffer from = worker.create_buffer(bytes);
    Buffer to = worker.create_buffer(bytes);
    Buffer back = worker.create_buffer(bytes);
    for (std::int64_t i = 0; i < count; ++i)
      from.as<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 7 + 1);
    worker.run([&](Orchestration& run) {
      const Tensor there = to.tensor(DType::int32, {count});
      send_recv(run, ranks.domain(), 0, from.tensor(DType::int32, {count}), last, there, 1);
      barrier(run, ranks.domain(), 2);
      // After it, since it reads what came.
      send_recv(run, ranks.domain(), last, there, 0, back.tensor(DType::int32, {count}), 1);
    });
    EXPECT_TRUE(std::equal(from.data(), from.data() + count * 4, back.data())) << count;
  }
}

TEST_F(CollectiveChains, EachWaitsForTheOneWhoseResultItReads) {
  constexpr int kLinks = 30;
  Ranks ranks(3);
  Worker& worker = ranks.worker();
  std::vector<Buffer> buffers;
  std::vector<Tensor> data;
  for (int rank = 0; rank < 3; ++rank) {
    buffers.push_back(worker.create_buffer(800));
    data.push_back(buffers.back().tensor(DType::int64, {100}));
    std::fill_n(buffers.back().as<std::int64_t>().begin(), 100, 1);
  }
  worker.run([&](Orchestration& run) {
    for (int i = 0; i < kLinks; ++i) {
      all_reduce(run, ranks.domain(), data, data, ReduceOp::sum,
                 {.channel = static_cast<std::uint32_t>(i % 4)});
    }
  });
  std::int64_t expected = 1;
  for (int i = 0; i < kLinks; ++i)
    expected *= 3;
  for (const Buffer& buffer : buffers)
    EXPECT_THAT(buffer.as<std::int64_t>().first(100), testing::Each(expected));
}

/// A domain of some of the chips, which a test makes and gives up again.
struct LiveDomain {
  Domain domain;
  std::vector<std::size_t> chips;
};

LiveDomain random_domain(Worker& worker, Random& random, std::size_t chips) {
  std::vector<std::size_t> all(chips);
  std::iota(all.begin(), all.end(), 0);
  random.shuffle(all);
  all.resize(1 + static_cast<std::size_t>(random.below(chips)));
  DomainOptions options{.name = "some",
                        .channels = 1 + static_cast<std::uint32_t>(random.below(3))};
  for (const std::size_t chip : all)
    options.chips.push_back(worker.chip(chip));
  return {worker.create_domain(options), all};
}

/// Tasks that make a chip late, for up to so many turns.
struct Naps {
  CallableId nap;
  Tensor flag;
  std::uint64_t turns;
};

/// So many collectives on domains drawn from these, with naps in between.
void submit_with_naps(Orchestration& run, Worker& worker, const Naps& naps, std::size_t chips,
                      std::deque<LiveDomain>& domains, Random& random, int count,
                      std::deque<Case>& all) {
  for (int i = 0; i < count; ++i) {
    if (random.chance(25)) {
      run.submit(Call(naps.nap), no_dep(inout(naps.flag)),
                 scalar(static_cast<std::int64_t>(random.below(naps.turns))),
                 on(worker.chip(random.below(chips))));
    }
    LiveDomain& live = random.pick(domains);
    Draw d = draw(random, live.domain, 1);
    d.count = std::min<std::uint64_t>(d.count, 2000);
    all.emplace_back(worker, live.domain, d, random, run, kOwnPlaces);
    all.back().submit(run);
  }
}

TEST_F(CollectiveChains, OverlappingDomainsWithDelaysNeverBlockEachOther) {
  constexpr std::size_t kChips = 4;
  Worker worker(chips(kChips));
  const CallableId nap = worker.add(task_in_library("nap"));
  TaskFlag flag(worker);
  worker.init();
  Random random(7);
  for (int round = 0; round < (kSanitized ? 3 : 12) && !HasFailure(); ++round) {
    std::deque<LiveDomain> domains;
    for (std::uint64_t i = 0; i < 2 + random.below(4); ++i)
      domains.push_back(random_domain(worker, random, kChips));
    std::deque<Case> all;
    worker.run([&](Orchestration& run) {
      submit_with_naps(run, worker, {nap, flag.tensor(), 4}, kChips, domains, random, 25, all);
    });
    for (const Case& each : all)
      each.check();
  }
}

/// One thread's domains over chips that others use too; some of its runs are cancelled.
class Party {
 public:
  Party(Worker& worker, CallableId nap, const TaskFlag& flag, std::uint64_t seed)
      : worker_(worker), nap_(nap), flag_(flag), random_(seed) {}

  void round() {
    domains_.clear();
    for (std::uint64_t i = 0; i < 1 + random_.below(3); ++i)
      domains_.push_back(random_domain(worker_, random_, kChips));
    if (random_.chance(40)) cancel_some();
    std::deque<Case> all;
    worker_.run([&](Orchestration& run) { submit(run, all); });
    for (const Case& each : all)
      each.check();
  }

  static constexpr std::size_t kChips = 4;

 private:
  void submit(Orchestration& run, std::deque<Case>& all) {
    submit_with_naps(run, worker_, {nap_, flag_.tensor(), 3}, kChips, domains_, random_, 12, all);
  }
  /// At any time, also before it has begun or when it has ended.
  void cancel_some() {
    std::deque<Case> all;
    const std::uint64_t turns = random_.below(3'000'000);
    const Run run = worker_.submit([&](Orchestration& o) { submit(o, all); });
    for (std::uint64_t i = 0; i < turns; ++i)
      asm volatile("");
    run.cancel();
    EXPECT_TRUE(run.wait_for(bound(20s)));
    try {
      run.result();
    } catch (const Cancelled&) {
      return;
    }
    for (const Case& each : all)
      each.check();
  }

  Worker& worker_;
  const CallableId nap_;
  const TaskFlag& flag_;
  Random random_;
  std::deque<LiveDomain> domains_;
};

TEST_F(CollectiveChains, ThreadsWithOverlappingDomainsThatComeGoAndAreCancelledAllGetTheirs) {
  Worker worker(chips(Party::kChips));
  const CallableId nap = worker.add(task_in_library("nap"));
  TaskFlag flag(worker);
  worker.init();
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t seed = 21; seed < 24; ++seed) {
      threads.emplace_back([&, seed] {
        Party party(worker, nap, flag, seed);
        for (int i = 0; i < (kSanitized ? 3 : 15) && !HasFailure(); ++i)
          party.round();
      });
    }
  }
  for (const ProcessStatus& each : worker.processes())
    EXPECT_EQ(each.incarnation, 1U) << "nobody had to be ended";
}

}  // namespace
}  // namespace strata::test
