// Collectives called by the kernels of a chip program, on the cores of simulated chips: the ranks'
// programs run at the same time, as members of a group; each block has a channel of its own.
#include "ranks.hpp"

namespace strata::test {
namespace {

/// The chip program of examples/distributed/allreduce on several chips.
class KernelGroups : public NodeTest {
 protected:
  void start(std::uint32_t ranks, std::uint32_t blocks) {
    worker_ = std::make_unique<Worker>(chips(ranks, "a2a3sim:clusters=4"));
    program_ = worker_->add(
        Callable::chip_program(STRATA_EXAMPLE_PROGRAMS "/allreduce_distributed.strata"));
    worker_->init();
    DomainOptions options{.name = "kernels", .channels = blocks};
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      options.chips.push_back(worker_->chip(rank));
    domain_ = worker_->create_domain(options);
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      times_.push_back(worker_->create_buffer(blocks * 2 * sizeof(std::int64_t)));
    blocks_ = blocks;
  }
  void TearDown() override {
    times_.clear();
    domain_ = {};
    worker_.reset();
    NodeTest::TearDown();
  }
  /// Submits a member for each rank.
  void submit(Orchestration& run, const std::vector<Tensor>& in, const std::vector<Tensor>& out) {
    const std::array scalars = {scalar(ReduceOp::sum), scalar(CollectiveAlgorithm::automatic)};
    std::vector<std::array<Tensor, 2>> more;
    std::vector<std::array<TensorArg, 4>> arguments(in.size());
    std::vector<GroupMember> members(in.size());
    more.reserve(in.size());
    for (std::uint32_t rank = 0; rank < in.size(); ++rank) {
      more.push_back({domain_.context(rank), times_[rank].tensor(DType::int64, {blocks_, 2})});
      arguments[rank] = {strata::in(more[rank][0]), strata::in(in[rank]), strata::out(out[rank]),
                         strata::out(more[rank][1])};
      members[rank].lane = domain_.chip(rank);
      members[rank].body = Call(program_);
      members[rank].tensors = arguments[rank];
      members[rank].scalars = scalars;
    }
    run.submit_group({.members = members, .name = "kernels"});
  }

  std::unique_ptr<Worker> worker_;
  CallableId program_;
  Domain domain_;
  std::vector<Buffer> times_;
  std::int64_t blocks_ = 1;
};

TEST_F(KernelGroups, BlocksOfAllRanksMeetOnChannelsOfTheirOwn) {
  constexpr std::uint32_t kRanks = 3;
  constexpr std::int64_t kCount = 10007;
  start(kRanks, 6);
  std::vector<Buffer> buffers;
  std::vector<Tensor> in, out;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const Bytes own = comm::input(DType::int32, ReduceOp::sum, rank, kCount);
    buffers.push_back(worker_->create_buffer(own.size()));
    std::memcpy(buffers.back().data(), own.data(), own.size());
    in.push_back(buffers.back().tensor(DType::int32, {kCount}));
    buffers.push_back(worker_->create_buffer(own.size()));
    out.push_back(buffers.back().tensor(DType::int32, {kCount}));
  }
  for (int round = 0; round < 5; ++round) {
    worker_->run([&](Orchestration& run) {
      submit(run, in, out);
      submit(run, in, out);  // The same again, behind it.
    });
  }
  const Bytes expected = comm::expected(DType::int32, ReduceOp::sum, kRanks, kCount);
  for (std::uint32_t rank = 0; rank < kRanks; ++rank)
    EXPECT_EQ(std::memcmp(buffers[2 * rank + 1].data(), expected.data(), expected.size()), 0);
}

TEST_F(KernelGroups, RanksThatDoNotAgreeAllSaySoAndCanGoOn) {
  start(2, 1);
  std::vector<Buffer> buffers;
  for (int i = 0; i < 4; ++i)
    buffers.push_back(worker_->create_buffer(64));
  const auto tensor = [&](std::size_t i, std::int64_t count) {
    return buffers[i].tensor(DType::int32, {count});
  };
  const Run failed = worker_->submit([&](Orchestration& run) {
    submit(run, {tensor(0, 4), tensor(1, 5)}, {tensor(2, 4), tensor(3, 5)});
  });
  std::string text;
  with_failure_of(failed, [&](const WorkerError& error) { text = error.what(); });
  EXPECT_THAT(text, HasSubstr("do not call the same"));
  EXPECT_THAT(text, HasSubstr("rank 0: all_reduce of 4 x int32, sum"));
  EXPECT_THAT(text, HasSubstr("rank 1: all_reduce of 5 x int32, sum"));

  buffers[0].as<std::int32_t>()[0] = 20;
  buffers[1].as<std::int32_t>()[0] = 3;
  worker_->run([&](Orchestration& run) {
    submit(run, {tensor(0, 1), tensor(1, 1)}, {tensor(2, 1), tensor(3, 1)});
  });
  EXPECT_EQ(buffers[2].as<std::int32_t>()[0], 23);
  EXPECT_EQ(buffers[3].as<std::int32_t>()[0], 23);
}

}  // namespace
}  // namespace strata::test
