// A rank that dies in a collective, and a run that is cancelled in one: nobody waits for ever, the
// error says who is gone. After a death a new domain works; after a cancellation the same does.
#include <csignal>
#include <numeric>

#include "ranks.hpp"
#include "strata/comm_error.hpp"
#include "support/random.hpp"

namespace strata::test {
namespace {

constexpr std::int64_t kCount = 1 << 20;
constexpr std::int64_t kSmallMessage = 10;  ///< Buffered: its sender does not wait.

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
  Run submit_many(std::chrono::milliseconds limit = 1h) {
    return worker().submit(
        [this](Orchestration& run) {
          for (const Tensor& each : data_)
            run.overwrite(each);  // What a run before has left invalid.
          for (int i = 0; i < 100'000; ++i)
            all_reduce(run, ranks_->domain(), data_, data_, ReduceOp::max);
        },
        {.deadline = std::chrono::steady_clock::now() + limit});
  }
  /// A process that has a collective in hand now.
  ProcessStatus one_inside(std::size_t rank, const std::string& task = "all_reduce") {
    ProcessStatus status;
    EXPECT_TRUE(within(10s, [&] {
      status = worker().processes()[rank];
      return status.task.find(task) != std::string::npos;
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
    expect_sums(worker().create_domain(
        {.name = "fresh", .chips = {worker().chip(0), worker().chip(1), worker().chip(2)}}));
  }
  /// The sum over three ranks, of a size that goes through all that a channel has.
  void expect_sums(const Domain& domain, std::uint32_t channel = 0) {
    constexpr std::int64_t kSums = 300'007;
    std::vector<Buffer> buffers;
    std::vector<Tensor> data;
    for (int rank = 0; rank < 3; ++rank) {
      buffers.push_back(worker().create_buffer(kSums * 4));
      std::ranges::fill(buffers.back().as<float>(), static_cast<float>(rank + 1));
      data.push_back(buffers.back().tensor(DType::float32, {kSums}));
    }
    worker().run([&](Orchestration& run) {
      all_reduce(run, domain, data, data, ReduceOp::sum, {.channel = channel});
    });
    for (const Buffer& buffer : buffers)
      EXPECT_THAT(buffer.as<float>().first(kSums), testing::Each(6.0F));
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

TEST_F(CollectiveDeaths, AfterACancellationTheSameDomainGoesOn) {
  Random random(5);
  for (int round = 0; round < (kSanitized ? 4 : 12) && !HasFailure(); ++round) {
    const Run run = submit_many();
    (void)one_inside(random.below(3));
    run.cancel();
    ASSERT_TRUE(run.wait_for(bound(10s)));
    EXPECT_THROW(run.result(), Cancelled);
    expect_sums(ranks_->domain());
    expect_sums(ranks_->domain(), 3);
  }
  for (const ProcessStatus& each : worker().processes())
    EXPECT_EQ(each.incarnation, 1U) << "nobody had to be ended";
}

TEST_F(CollectiveDeaths, AfterADeadlineTheSameDomainGoesOn) {
  expect_sums(ranks_->domain());
  const int late = worker().processes()[2].pid;
  ASSERT_EQ(::kill(late, SIGSTOP), 0);
  const Run run = submit_many(bound(300ms));
  (void)one_inside(0);
  // The time is over, and it gives up what rank 2 has yet to begin.
  EXPECT_TRUE(within(10s, [&] { return worker().processes()[0].task.empty(); }));
  ASSERT_EQ(::kill(late, SIGCONT), 0);
  ASSERT_TRUE(run.wait_for(bound(10s)));
  EXPECT_THROW(run.result(), DeadlineExceeded);
  expect_sums(ranks_->domain());
  EXPECT_EQ(worker().processes()[2].pid, late) << "it had to be ended";
}

/// One rank is late: when the run ends, the other is in the message, or has sent it and is gone.
struct LateRank {
  std::uint32_t rank;
  std::int64_t count;
};
class CancelledMessages : public CollectiveDeaths, public testing::WithParamInterface<LateRank> {
 protected:
  void send(Orchestration& run) {
    const std::int64_t count = GetParam().count;
    send_recv(run, ranks_->domain(), 0, buffers_[0].tensor(DType::float32, {count}), 1,
              buffers_[1].tensor(DType::float32, {count}), 2);
  }
};

TEST_P(CancelledMessages, AreNotWhatTheNextMessageBrings) {
  const LateRank& param = GetParam();
  const std::uint32_t late = param.rank;
  const std::int64_t count = param.count;
  std::ranges::fill(buffers_[0].as<float>(), 1.0F);
  (void)value_of(worker(), "return_pid", on(worker().chip(0)));  // All is loaded by now.
  worker().run([&](Orchestration& run) { send(run); });
  const int pid = worker().processes()[late].pid;
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  const Run run = worker().submit([&](Orchestration& o) { send(o); });
  if (late == 1 && count == kSmallMessage) {
    ASSERT_TRUE(within(10s, [&] { return run.stats().tasks == 1; }));
    // Behind the sender's part of the message.
    (void)value_of(worker(), "return_pid", on(worker().chip(0)));
  } else {
    (void)one_inside(1 - late, "send_recv");
  }
  run.cancel();
  ASSERT_EQ(::kill(pid, SIGCONT), 0);
  ASSERT_TRUE(run.wait_for(bound(10s)));
  std::ranges::fill(buffers_[0].as<float>(), 2.0F);
  worker().run([&](Orchestration& o) {
    o.overwrite(buffers_[1].tensor(DType::float32, {count}));
    send(o);
  });
  EXPECT_THAT(buffers_[1].as<float>().first(static_cast<std::size_t>(count)), testing::Each(2.0F));
  expect_sums(ranks_->domain(), 2);
  EXPECT_EQ(worker().processes()[late].pid, pid) << "it had to be ended";
}

INSTANTIATE_TEST_SUITE_P(, CancelledMessages,
                         testing::Values(LateRank{0, kSmallMessage}, LateRank{0, kCount},
                                         LateRank{1, kSmallMessage}, LateRank{1, kCount}),
                         [](const auto& param) {
                           return std::string(param.param.rank == 0 ? "LateSender"
                                                                    : "LateReceiver") +
                                  (param.param.count == kSmallMessage ? "OfFew" : "OfMany");
                         });

}  // namespace
}  // namespace strata::test
