// Collectives that kernels call, on the cores of simulated chips in processes of their own: all of
// them, with types, operations, sizes, roots and algorithms drawn from a seed, are exact.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "comm/call.hpp"
#include "programs/chip/collectives/collectives.hpp"
#include "support/domain_test.hpp"
#include "support/random.hpp"
#include "unit/comm/elements.hpp"

namespace strata::test {
namespace {

using Kind = detail::CollectiveKind;
using Bytes = std::vector<std::byte>;

constexpr std::array kKinds = {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather,
                               Kind::broadcast,  Kind::all_to_all,     Kind::reduce};
constexpr std::array kAlgorithms = {CollectiveAlgorithm::automatic, CollectiveAlgorithm::one_phase,
                                    CollectiveAlgorithm::two_phase, CollectiveAlgorithm::ring,
                                    CollectiveAlgorithm::bidirectional_ring};

class KernelCollectives : public DomainTest, public testing::WithParamInterface<std::uint32_t> {
 protected:
  void SetUp() override {
    (void)file();  // Not among what a test must leave no trace of.
    DomainTest::SetUp();
  }
  static const std::string& file() {
    static const std::string built = chip_program("collectives");
    return built;
  }
  void start_program(std::uint32_t ranks) {
    start_ranks(chips(ranks));
    program_ = worker_->add(Callable::chip_program(file()));
  }

  static KernelCollective draw(Random& random, std::uint32_t ranks) {
    KernelCollective order{.kind = random.pick(kKinds),
                           .op = random.pick(comm::kOps),
                           .dtype = random.pick(comm::kReducible),
                           .algorithm = CollectiveAlgorithm::automatic,
                           .root = static_cast<std::uint32_t>(random.below(ranks))};
    if (order.kind == Kind::all_reduce) order.algorithm = random.pick(kAlgorithms);
    return order;
  }
  static std::uint64_t in_parts(Kind kind, std::uint32_t ranks) {
    return kind == Kind::reduce_scatter || kind == Kind::all_to_all ? ranks : 1;
  }
  static std::uint64_t out_parts(Kind kind, std::uint32_t ranks) {
    return kind == Kind::all_gather || kind == Kind::all_to_all ? ranks : 1;
  }
  /// What rank `rank` must have; nothing if it gets nothing.
  static Bytes expected(const KernelCollective& order, std::uint64_t count, std::uint32_t rank,
                        std::uint32_t ranks) {
    const auto [kind, op, dtype, algorithm, root] = order;
    Bytes all;
    switch (kind) {
      case Kind::all_gather:
      case Kind::all_to_all:
        for (std::uint32_t from = 0; from < ranks; ++from) {
          const Bytes one =
              comm::input(dtype, op, from, count, kind == Kind::all_gather ? 0 : rank * count);
          all.insert(all.end(), one.begin(), one.end());
        }
        return all;
      case Kind::broadcast:
        return comm::input(dtype, op, root, count);
      case Kind::reduce_scatter:
        return comm::expected(dtype, op, ranks, count, rank * count);
      case Kind::reduce:
        return rank == root ? comm::expected(dtype, op, ranks, count) : all;
      default:
        return comm::expected(dtype, op, ranks, count);
    }
  }

  void expect_exact(const Domain& domain, const KernelCollective& order, std::uint64_t count) {
    SCOPED_TRACE(std::string(comm::name_of(order.kind)) + " of " + std::to_string(count) + " x " +
                 std::string(name_of(order.dtype)) + ", " + std::string(name_of(order.op)) + ", " +
                 std::string(name_of(order.algorithm)) + ", root " + std::to_string(order.root));
    const std::uint32_t size = domain.size();
    const std::uint64_t bytes = count * size_of(order.dtype);
    std::vector<Buffer> outs;
    worker_->run([&](Orchestration& run) { submit(run, domain, order, count, outs); });
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      const Bytes wanted = expected(order, count, rank, size);
      if (wanted.empty()) continue;
      ASSERT_EQ(wanted.size(), bytes * out_parts(order.kind, size));
      EXPECT_EQ(std::memcmp(outs[rank].data(), wanted.data(), wanted.size()), 0) << "rank " << rank;
    }
  }

 private:
  void submit(Orchestration& run, const Domain& domain, const KernelCollective& order,
              std::uint64_t count, std::vector<Buffer>& outs) {
    const std::uint32_t size = domain.size();
    const std::uint64_t bytes = count * size_of(order.dtype);
    const std::array scalars = {scalar(order), scalar(count)};
    std::deque<std::array<Tensor, 3>> tensors;
    std::vector<std::array<TensorArg, 3>> arguments(size);
    std::vector<GroupMember> members(size);
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      const Bytes own =
          comm::input(order.dtype, order.op, rank, count * in_parts(order.kind, size));
      Buffer input = worker_->create_buffer(own.size());
      std::ranges::copy(own, input.data());
      outs.push_back(worker_->create_buffer(bytes * out_parts(order.kind, size)));
      const auto& [context, from, to] = tensors.emplace_back(std::array{
          domain.context(rank), input.tensor(DType::uint8, {static_cast<std::int64_t>(own.size())}),
          outs[rank].tensor(DType::uint8, {static_cast<std::int64_t>(outs[rank].bytes())})});
      arguments[rank] = {in(context), in(from), inout(to)};
      members[rank] = {.lane = domain.chip(rank),
                       .body = Call(program_),
                       .tensors = arguments[rank],
                       .scalars = scalars};
      inputs_.push_back(std::move(input));
    }
    run.submit_group({.members = members, .name = "collective"});
    inputs_.clear();  // They stay as long as tasks use them.
  }

  CallableId program_;
  std::vector<Buffer> inputs_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, KernelCollectives, testing::Values(1, 2, 3, 4, 8),
                         [](const auto& param) { return std::to_string(param.param); });

TEST_P(KernelCollectives, GiveTheExactResultOfAnyDraw) {
  start_program(GetParam());
  const Domain domain = worker_->create_domain(over_first(GetParam()));
  Random random(GetParam());
  for (int i = 0; i < (kSanitized ? 10 : 60) && !HasFailure(); ++i) {
    const std::uint64_t least = std::uint64_t{1} << random.below(17);
    expect_exact(domain, draw(random, GetParam()), least + random.below(least));
  }
}

class LargeKernelCollectives : public KernelCollectives {};
INSTANTIATE_TEST_SUITE_P(Ranks, LargeKernelCollectives, testing::Values(2, 4),
                         [](const auto& param) { return std::to_string(param.param); });

TEST_P(LargeKernelCollectives, AreExact) {
  start_program(GetParam());
  const Domain domain = worker_->create_domain(over_first(GetParam()));
  constexpr std::uint64_t kBytes = std::uint64_t{kSanitized ? 1 : 64} << 20;
  for (const Kind kind : {Kind::all_reduce, Kind::all_to_all})
    expect_exact(domain, {.kind = kind, .dtype = DType::int64},
                 kBytes / 8 / in_parts(kind, GetParam()));
}

}  // namespace
}  // namespace strata::test
