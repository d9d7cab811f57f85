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
    KernelCollective order{.kind = random.pick(comm::kKinds),
                           .op = random.pick(comm::kOps),
                           .dtype = random.pick(comm::kReducible),
                           .algorithm = CollectiveAlgorithm::automatic,
                           .root = static_cast<std::uint32_t>(random.below(ranks))};
    if (order.kind == Kind::all_reduce) order.algorithm = random.pick(comm::kAlgorithms);
    return order;
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
      if (order.kind == Kind::reduce && rank != order.root) continue;
      const Bytes wanted =
          comm::expected({order.kind, order.dtype, order.op, order.root, count}, size, rank);
      ASSERT_EQ(wanted.size(), bytes * comm::out_parts(order.kind, size));
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
          comm::input(order.dtype, order.op, rank, count * comm::in_parts(order.kind, size));
      Buffer input = worker_->create_buffer(own.size());
      std::ranges::copy(own, input.data());
      outs.push_back(worker_->create_buffer(bytes * comm::out_parts(order.kind, size)));
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
                 kBytes / 8 / comm::in_parts(kind, GetParam()));
}

}  // namespace
}  // namespace strata::test
