// What can't work is refused when it is submitted, by name, and costs nothing: nothing is submitted
// and the domain can be used further.
#include "ranks.hpp"
#include "strata/chip_error.hpp"
#include "strata/comm_error.hpp"

namespace strata::test {
namespace {

constexpr std::int64_t kCount = 12;

class RefusedCollectives : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    ranks_ = std::make_unique<Ranks>(3);
    for (int i = 0; i < 8; ++i)
      buffers_.push_back(ranks_->worker().create_buffer(1024));
  }
  void TearDown() override {
    buffers_.clear();
    ranks_.reset();
    NodeTest::TearDown();
  }

  [[nodiscard]] Tensor tensor(std::size_t i, DType dtype = DType::float32,
                              std::int64_t count = kCount) const {
    return buffers_[i].tensor(dtype, {count});
  }
  [[nodiscard]] std::vector<Tensor> tensors(std::size_t first, std::int64_t count = kCount) const {
    return {tensor(first, DType::float32, count), tensor(first + 1, DType::float32, count),
            tensor(first + 2, DType::float32, count)};
  }
  Domain& domain() { return ranks_->domain(); }
  Worker& worker() { return ranks_->worker(); }

  /// What a submission is refused with; afterwards a collective works, and is the only task.
  template <class Thrown, class Submit>
  std::string refusal(const Submit& submit) {
    std::string text;
    const Run ended = worker().run([&](Orchestration& run) {
      if (const auto thrown = thrown_by<Thrown>([&] { submit(run); })) text = thrown->what();
      all_reduce(run, domain(), tensors(0), tensors(3), ReduceOp::sum);
    });
    EXPECT_EQ(ended.stats().tasks, 1U) << text;
    return text;
  }
  template <class Submit>
  std::string refused(const Submit& submit) {
    return refusal<InvalidArgument>(submit);
  }

  std::unique_ptr<Ranks> ranks_;
  std::vector<Buffer> buffers_;
};

TEST_F(RefusedCollectives, ATensorForEachRankIsDue) {
  std::vector<Tensor> two = tensors(0);
  two.pop_back();
  const std::string text =
      refused([&](auto& run) { all_reduce(run, domain(), two, tensors(3), ReduceOp::sum); });
  EXPECT_THAT(text, HasSubstr("all_reduce on domain 'test'"));
  EXPECT_THAT(text, HasSubstr("`in` has 2 tensors, but one for each of the 3 ranks is due"));
  EXPECT_THAT(refused([&](auto& run) { all_gather(run, domain(), tensors(0), two); }),
              HasSubstr("`out` has 2 tensors"));
  EXPECT_THAT(refused([&](auto& run) { broadcast(run, domain(), two, 0); }),
              HasSubstr("`data` has 2 tensors"));
}

TEST_F(RefusedCollectives, CountsOfAllRanksAgree) {
  std::vector<Tensor> out = tensors(3);
  out[1] = tensor(4, DType::float32, kCount + 1);
  EXPECT_THAT(
      refused([&](auto& run) { all_reduce(run, domain(), tensors(0), out, ReduceOp::sum); }),
      testing::AllOf(HasSubstr("out[1] (float32[13]"),
                     HasSubstr("has 13 elements, but 12 are due")));
  std::vector<Tensor> in = tensors(0);
  in[2] = tensor(2, DType::float32, 1);
  EXPECT_THAT(refused([&](auto& run) { all_reduce(run, domain(), in, tensors(3), ReduceOp::sum); }),
              HasSubstr("in[2]"));
  EXPECT_THAT(refused([&](auto& run) { all_gather(run, domain(), tensors(0), tensors(3)); }),
              HasSubstr("out[0] (float32[12]"));
  EXPECT_THAT(refused([&](auto& run) {
                reduce_scatter(run, domain(), tensors(0, 13), tensors(3), ReduceOp::sum);
              }),
              HasSubstr("in[0] has 13 elements, which is no multiple of 3"));
  EXPECT_THAT(refused([&](auto& run) { all_to_all(run, domain(), tensors(0), tensors(3, 15)); }),
              HasSubstr("has 15 elements, but 12 are due"));
  EXPECT_THAT(refused([&](auto& run) {
                send_recv(run, domain(), 0, tensor(0), 1, tensor(1, DType::float32, 3));
              }),
              HasSubstr("to[1]"));
}

TEST_F(RefusedCollectives, TypesOfAllRanksAgreeAndCanBeCombined) {
  std::vector<Tensor> in = tensors(0);
  in[1] = tensor(1, DType::int32);
  EXPECT_THAT(refused([&](auto& run) { all_reduce(run, domain(), in, tensors(3), ReduceOp::sum); }),
              testing::AllOf(HasSubstr("in[0] (float32"), HasSubstr("in[1] (int32"),
                             HasSubstr("different types")));
  const std::vector<Tensor> flags(3, tensor(0, DType::boolean));
  const std::vector<Tensor> results = {tensor(3, DType::boolean), tensor(4, DType::boolean),
                                       tensor(5, DType::boolean)};
  EXPECT_THAT(refused([&](auto& run) { all_reduce(run, domain(), flags, results, ReduceOp::max); }),
              HasSubstr("elements of bool can't be combined; float32,"));
}

TEST_F(RefusedCollectives, TensorsAreContiguousAndHaveStorage) {
  std::vector<Tensor> in = tensors(0);
  in[0] = buffers_[0].tensor(DType::float32, {kCount, 2}).select(1, 0);
  EXPECT_THAT(refused([&](auto& run) { all_reduce(run, domain(), in, tensors(3), ReduceOp::sum); }),
              testing::AllOf(HasSubstr("in[0]"), HasSubstr("not contiguous")));
  std::vector<Tensor> out = tensors(3);
  out[2] = Tensor(DType::float32, {kCount});
  EXPECT_THAT(
      refused([&](auto& run) { all_reduce(run, domain(), tensors(0), out, ReduceOp::sum); }),
      testing::AllOf(HasSubstr("out[2]"), HasSubstr("has no storage"), HasSubstr("allocate")));
}

TEST_F(RefusedCollectives, WhatIsWrittenIsNobodyElses) {
  // Another rank's, the same twice, and a part of its own input.
  const std::vector<Tensor> same(3, tensor(3));
  EXPECT_THAT(
      refused([&](auto& run) { all_reduce(run, domain(), tensors(0), same, ReduceOp::sum); }),
      testing::AllOf(HasSubstr("out[0]"), HasSubstr("out[1]"), HasSubstr("overlap")));
  EXPECT_THAT(
      refused([&](auto& run) { all_reduce(run, domain(), tensors(0), tensors(2), ReduceOp::sum); }),
      testing::AllOf(HasSubstr("out[0]"), HasSubstr("in[2]"), HasSubstr("overlap")));
  std::vector<Tensor> shifted = tensors(3);
  shifted[1] = buffers_[1].tensor(DType::float32, {kCount}, 4);
  EXPECT_THAT(
      refused([&](auto& run) { all_reduce(run, domain(), tensors(0), shifted, ReduceOp::sum); }),
      testing::AllOf(HasSubstr("in[1]"), HasSubstr("out[1]"), HasSubstr("overlap")));
  std::vector<Tensor> wrong_part = tensors(3, kCount / 3);
  wrong_part[1] = tensor(1, DType::float32, kCount / 3);  // The first part, and rank 1's is due.
  EXPECT_THAT(refused([&](auto& run) {
                reduce_scatter(run, domain(), tensors(0), wrong_part, ReduceOp::sum);
              }),
              HasSubstr("overlap"));
  // What is only read may be everybody's.
  const std::vector<Tensor> shared(3, tensor(0));
  worker().run(
      [&](Orchestration& run) { all_reduce(run, domain(), shared, tensors(3), ReduceOp::sum); });
}

TEST_F(RefusedCollectives, RootsChannelsAndAlgorithmsAreThere) {
  EXPECT_THAT(refused([&](auto& run) { broadcast(run, domain(), tensors(0), 3); }),
              HasSubstr("the root is 3, but ranks are 0 to 2"));
  EXPECT_THAT(
      refused([&](auto& run) { reduce(run, domain(), tensors(0), tensor(3), ReduceOp::sum, 77); }),
      HasSubstr("the root is 77"));
  EXPECT_THAT(refused([&](auto& run) { barrier(run, domain(), 4); }),
              testing::AllOf(HasSubstr("barrier on domain 'test'"), HasSubstr("no channel 4"),
                             HasSubstr("DomainOptions::channels")));
  EXPECT_THAT(refused([&](auto& run) {
                broadcast(run, domain(), tensors(0), 0, {.algorithm = CollectiveAlgorithm::ring});
              }),
              HasSubstr("only all_reduce has a choice of algorithms"));
  EXPECT_THAT(refused([&](auto& run) { send_recv(run, domain(), 1, tensor(0), 1, tensor(1)); }),
              HasSubstr("rank 1 would send to itself"));
  EXPECT_THAT(refused([&](auto& run) { send_recv(run, domain(), 0, tensor(0), 5, tensor(1)); }),
              HasSubstr("the receiver is 5"));
}

TEST_F(RefusedCollectives, MemoryOfAnotherChipIsForeign) {
  const std::int64_t count = kCount;
  ChipBuffer elsewhere = worker().allocate_on(worker().chip(1), 1024);
  std::vector<Tensor> in = tensors(0);
  in[0] = elsewhere.tensor(DType::float32, {count});
  const auto submit = [&](Orchestration& run) {
    all_reduce(run, domain(), in, tensors(3), ReduceOp::sum);
  };
  EXPECT_THAT(refusal<ChipError>(submit), HasSubstr("is memory of node/chip[1]"));
  in[0] = domain().slice(2, slice_name(DType::float32, "in")).slice(0, 0, count);
  EXPECT_THAT(refusal<ChipError>(submit), HasSubstr("rank 2 of domain 'test'"));
}

TEST_F(RefusedCollectives, ADomainThatIsGoneOrNeverWasHasNoRanks) {
  Domain none;
  EXPECT_THAT(refused([&](auto& run) { barrier(run, none); }), HasSubstr("has no ranks"));
  Domain released = worker().create_domain({.name = "gone", .chips = {worker().chip(0)}});
  released.release();
  EXPECT_THAT(refused([&](auto& run) { barrier(run, released); }), HasSubstr("was released"));
}

TEST_F(RefusedCollectives, ADomainBelongsToItsOwnWorkersRuns) {
  Ranks others(2);
  EXPECT_THAT(refused([&](auto& run) { barrier(run, others.domain()); }),
              HasSubstr("belongs to another Worker"));
}

TEST_F(RefusedCollectives, ABrokenDomainSaysWhoIsGone) {
  worker().replace(worker().chip(1));
  ASSERT_TRUE(within(10s, [&] { return domain().broken(); }));
  worker().run([&](Orchestration& run) {
    const auto thrown = thrown_by<CommError>(
        [&] { all_reduce(run, domain(), tensors(0), tensors(3), ReduceOp::sum); });
    ASSERT_TRUE(thrown);
    EXPECT_EQ(thrown->cause(), CommError::Cause::rank_left);
    EXPECT_THAT(thrown->what(), testing::AllOf(HasSubstr("domain 'test' is broken"),
                                               HasSubstr("rank 1"), HasSubstr("make a new one")));
  });
}

}  // namespace
}  // namespace strata::test
