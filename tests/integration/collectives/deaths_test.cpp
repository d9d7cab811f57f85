// A rank that dies in a collective, and a run that is cancelled in one: nobody waits for ever, the
// error says who is gone, and a new domain works.
#include <csignal>
#include <numeric>

#include "ranks.hpp"
#include "strata/comm_error.hpp"

namespace strata::test {
namespace {

constexpr std::int64_t kCount = 1 << 20;

class CollectiveDeaths : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    ranks_ = std::make_unique<Ranks>(3);
    for (int rank = 0; rank < 3; ++rank) {
      buffers_.push_back(worker().create_buffer(kCount * sizeof(float)));
      data_.push_back(buffers_.back().tensor(DType::float32, {kCount}));
    }
  }
  void TearDown() override {
    buffers_.clear();
    ranks_.reset();
    NodeTest::TearDown();
  }
  Worker& worker() { return ranks_->worker(); }

  /// So many that something happens in the middle of one.
  Run submit_many() {
    return worker().submit([this](Orchestration& run) {
      for (int i = 0; i < 100'000; ++i)
        all_reduce(run, ranks_->domain(), data_, data_, ReduceOp::max);
    });
  }
  /// A process that has a collective in hand now.
  ProcessStatus one_inside(std::size_t rank) {
    ProcessStatus status;
    EXPECT_TRUE(within(10s, [&] {
      status = worker().processes()[rank];
      return status.task.find("all_reduce") != std::string::npos;
    }));
    return status;
  }
  /// Another domain over the same chips.
  void expect_new_domain_works() {
    const auto ready = [&] {
      const auto processes = worker().processes();
      return std::all_of(processes.begin(), processes.end(),
                         [](const ProcessStatus& each) { return each.state == "ready"; });
    };
    ASSERT_TRUE(within(20s, ready));
    const Domain fresh = worker().create_domain(
        {.name = "fresh", .chips = {worker().chip(0), worker().chip(1), worker().chip(2)}});
    std::vector<Buffer> buffers;
    std::vector<Tensor> data;
    for (int rank = 0; rank < 3; ++rank) {
      buffers.push_back(worker().create_buffer(4));
      buffers.back().as<float>()[0] = static_cast<float>(rank + 1);
      data.push_back(buffers.back().tensor(DType::float32, {1}));
    }
    worker().run([&](Orchestration& run) { all_reduce(run, fresh, data, data, ReduceOp::sum); });
    for (const Buffer& buffer : buffers)
      EXPECT_EQ(buffer.as<float>()[0], 6);
  }

  std::unique_ptr<Ranks> ranks_;
  std::vector<Buffer> buffers_;
  std::vector<Tensor> data_;
};

TEST_F(CollectiveDeaths, ARankThatIsKilledInsideOneEndsItForAll) {
  const Run run = submit_many();
  const ProcessStatus status = one_inside(1);
  ASSERT_EQ(::kill(status.pid, SIGKILL), 0);
  EXPECT_TRUE(run.wait_for(bound(1s)));
  const std::string text = with_failure_of(run, [](const WorkerError&) {});
  EXPECT_THAT(text, HasSubstr("killed by signal 9"));
  EXPECT_TRUE(ranks_->domain().broken());
  expect_new_domain_works();
}

TEST_F(CollectiveDeaths, ARunThatIsCancelledInsideOneEnds) {
  const Run run = submit_many();
  (void)one_inside(2);
  run.cancel();
  EXPECT_TRUE(run.wait_for(bound(1s)));
  EXPECT_THROW(run.result(), Cancelled);
  expect_new_domain_works();
}

}  // namespace
}  // namespace strata::test
