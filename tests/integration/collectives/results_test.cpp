// Collectives as tasks give exactly what they should: all of them, with every type, operation,
// size, algorithm and memory, drawn at random from a seed; and many at once.
#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <span>

#include "comm/call.hpp"
#include "ranks.hpp"
#include "support/random.hpp"

namespace strata::test {
namespace {

using Algorithm = CollectiveAlgorithm;
using Kind = detail::CollectiveKind;

constexpr std::array kKinds = {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather,
                               Kind::broadcast,  Kind::all_to_all,     Kind::reduce};
constexpr std::array kAlgorithms = {Algorithm::automatic, Algorithm::one_phase,
                                    Algorithm::two_phase, Algorithm::ring,
                                    Algorithm::bidirectional_ring};

/// All but windows.
constexpr std::array kOwnPlaces = {Place::buffer, Place::heap, Place::chip};

/// One collective, as it was drawn.
struct Draw {
  Kind kind = Kind::all_reduce;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::automatic;
  std::uint64_t count = 1;  ///< As in CollectiveCall.
  std::uint32_t root = 0;
  std::uint32_t channel = 0;
  bool in_place = false;
};

std::uint64_t draw_count(Random& random) {
  switch (random.below(8)) {
    case 0:
      return random.below(3);  // Nothing, one, two.
    case 1:
      return random.below(kWindowElements);
    case 2:
      return 60000 + random.below(70000);
    default:
      return random.below(300);
  }
}

Draw draw(Random& random, const Domain& domain, std::uint32_t channels) {
  Draw d;
  d.kind = random.pick(kKinds);
  d.dtype = random.pick(comm::kReducible);
  d.op = random.pick(comm::kOps);
  if (d.kind == Kind::all_reduce) d.algorithm = random.pick(kAlgorithms);
  d.count = draw_count(random);
  d.root = static_cast<std::uint32_t>(random.below(domain.size()));
  d.channel = static_cast<std::uint32_t>(random.below(channels));
  d.in_place = random.chance(30);
  return d;
}

std::string text_of(const Draw& d, std::uint32_t ranks) {
  return std::string(comm::name_of(d.kind)) + " of " + std::to_string(d.count) + " x " +
         std::string(name_of(d.dtype)) + ", " + std::string(name_of(d.op)) + ", " +
         std::string(name_of(d.algorithm)) + ", root " + std::to_string(d.root) + ", channel " +
         std::to_string(d.channel) + (d.in_place ? ", in place" : "") + ", " +
         std::to_string(ranks) + " ranks";
}

/// A collective that was submitted: its tensors, and what must be in them afterwards.
class Case {
 public:
  /// `places`: where its tensors may be. Cases of one run must not share slices of windows.
  Case(Worker& worker, const Domain& domain, const Draw& d, Random& random, Orchestration& run,
       std::span<const Place> places = kPlaces)
      : domain_(domain), draw_(d), places_(places) {
    const std::uint32_t n = domain.size();
    in_count_ =
        d.kind == Kind::reduce_scatter || d.kind == Kind::all_to_all ? d.count * n : d.count;
    out_count_ = d.kind == Kind::all_gather || d.kind == Kind::all_to_all ? d.count * n : d.count;
    // In place, one tensor is both: the larger.
    const std::uint64_t first = d.in_place ? std::max(in_count_, out_count_) : in_count_;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
      in_.emplace_back(worker, domain, place(random, first), rank, d.dtype, first, "in", run);
      if (separate_output(rank)) {
        out_.emplace_back(worker, domain, place(random, out_count_), rank, d.dtype, out_count_,
                          "out", run);
      }
      fill(rank);
    }
  }

  TaskId submit(Orchestration& run) const {
    const std::vector<Tensor> in = inputs();
    const std::vector<Tensor> out = outputs();
    const CollectiveOptions options{draw_.channel, draw_.algorithm};
    switch (draw_.kind) {
      case Kind::all_reduce:
        return all_reduce(run, domain_, in, out, draw_.op, options);
      case Kind::reduce_scatter:
        return reduce_scatter(run, domain_, in, out, draw_.op, options);
      case Kind::all_gather:
        return all_gather(run, domain_, in, out, options);
      case Kind::broadcast:
        return broadcast(run, domain_, in, draw_.root, options);
      case Kind::all_to_all:
        return all_to_all(run, domain_, in, out, options);
      default:
        return reduce(run, domain_, in, out[draw_.root], draw_.op, draw_.root, options);
    }
  }

  void check() const {
    for (std::uint32_t rank = 0; rank < domain_.size(); ++rank) {
      if (draw_.kind == Kind::reduce && rank != draw_.root) continue;
      const bool separate = separate_output(rank);
      Bytes got = separate ? out_of(rank).read() : in_[rank].read();
      if (!separate && draw_.kind == Kind::reduce_scatter)
        got = {got.begin() + part(rank), got.begin() + part(rank + 1)};
      EXPECT_TRUE(got == expected(rank))
          << "rank " << rank << " of " << text_of(draw_, domain_.size());
      if (separate && draw_.kind != Kind::broadcast) {
        EXPECT_TRUE(in_[rank].read() == input(rank))
            << "the input of rank " << rank << " of " << text_of(draw_, domain_.size());
      }
    }
  }

 private:
  [[nodiscard]] std::ptrdiff_t part(std::uint32_t rank) const {
    return static_cast<std::ptrdiff_t>(rank * draw_.count * size_of(draw_.dtype));
  }
  [[nodiscard]] Place place(Random& random, std::uint64_t count) const {
    const Place drawn = random.pick(places_);
    return drawn == Place::window && count > kWindowElements ? Place::buffer : drawn;
  }
  [[nodiscard]] bool separate_output(std::uint32_t rank) const {
    if (draw_.kind == Kind::broadcast) return false;
    if (draw_.kind == Kind::reduce && rank != draw_.root) return false;
    return !draw_.in_place;
  }
  [[nodiscard]] const Array& out_of(std::uint32_t rank) const {
    return draw_.kind == Kind::reduce ? out_.front() : out_[rank];
  }
  [[nodiscard]] Bytes input(std::uint32_t rank) const {
    const std::uint32_t from = draw_.kind == Kind::broadcast ? draw_.root : rank;
    return comm::input(draw_.dtype, draw_.op, from, in_count_);
  }
  void fill(std::uint32_t rank) {
    if (draw_.kind == Kind::broadcast && rank != draw_.root) return;
    const Bytes own = input(rank);
    if (!draw_.in_place || draw_.kind != Kind::all_gather) {
      in_[rank].write(own);
      return;
    }
    Bytes all(own.size() * domain_.size(), std::byte{0x55});
    std::copy(own.begin(), own.end(), all.begin() + part(rank));
    in_[rank].write(all);
  }
  [[nodiscard]] std::vector<Tensor> inputs() const {
    std::vector<Tensor> tensors;
    for (std::uint32_t rank = 0; rank < domain_.size(); ++rank) {
      const bool of_output = draw_.in_place && draw_.kind == Kind::all_gather;
      tensors.push_back(of_output ? own_part(rank) : in_[rank].tensor());
    }
    return tensors;
  }
  [[nodiscard]] std::vector<Tensor> outputs() const {
    std::vector<Tensor> tensors;
    for (std::uint32_t rank = 0; rank < domain_.size(); ++rank) {
      const bool of_input = draw_.in_place && draw_.kind == Kind::reduce_scatter;
      tensors.push_back(separate_output(rank) ? out_of(rank).tensor()
                        : of_input            ? own_part(rank)
                                              : in_[rank].tensor());
    }
    return tensors;
  }
  [[nodiscard]] Tensor own_part(std::uint32_t rank) const {
    const auto count = static_cast<std::int64_t>(draw_.count);
    return in_[rank].tensor().slice(0, rank * count, (rank + 1) * count);
  }
  [[nodiscard]] Bytes expected(std::uint32_t rank) const {
    const auto [kind, dtype, op, algorithm, count, root, channel, in_place] = draw_;
    const std::uint32_t n = domain_.size();
    Bytes all;
    switch (kind) {
      case Kind::all_gather:
      case Kind::all_to_all:
        for (std::uint32_t from = 0; from < n; ++from) {
          const std::uint64_t begin = kind == Kind::all_gather ? 0 : rank * count;
          const Bytes one = comm::input(dtype, op, from, count, begin);
          all.insert(all.end(), one.begin(), one.end());
        }
        return all;
      case Kind::broadcast:
        return comm::input(dtype, op, root, count);
      case Kind::reduce_scatter:
        return comm::expected(dtype, op, n, count, rank * count);
      default:
        return comm::expected(dtype, op, n, count);
    }
  }

  const Domain& domain_;
  const Draw draw_;
  const std::span<const Place> places_;
  std::uint64_t in_count_ = 0;
  std::uint64_t out_count_ = 0;
  std::deque<Array> in_;
  std::deque<Array> out_;
};

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
      for (int i = 0; i < 25; ++i) {
        if (random.chance(25)) {
          run.submit(Call(nap), no_dep(inout(flag.tensor())),
                     scalar(static_cast<std::int64_t>(random.below(4))),
                     on(worker.chip(random.below(kChips))));
        }
        LiveDomain& live = random.pick(domains);
        Draw d = draw(random, live.domain, 1);
        d.count = std::min<std::uint64_t>(d.count, 2000);
        all.emplace_back(worker, live.domain, d, random, run, kOwnPlaces);
        all.back().submit(run);
      }
    });
    for (const Case& each : all)
      each.check();
  }
}

}  // namespace
}  // namespace strata::test
