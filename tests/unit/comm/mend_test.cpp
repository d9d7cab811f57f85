// Channels and messages that ranks have given up are as new once they are mended.
#include "comm/mend.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <span>
#include <vector>

#include "comm/channel.hpp"
#include "rank_threads.hpp"

namespace strata::comm {
namespace {

using namespace std::chrono_literals;

class Mending : public testing::Test {
 protected:
  static constexpr std::uint32_t kRanks = 3;
  static void sum_up(const Communicator& ranks) {
    std::vector<float> data(1000, 1.0F);
    ranks.all_reduce<float>(data, std::span<float>(data), ReduceOp::sum);
    EXPECT_EQ(data.back(), kRanks);
  }
  /// All but rank 1 are in a call until they give up, and so are not where rank 1 is.
  void give_up() {
    const auto errors = domain_.try_all(
        [](const Communicator& ranks) {
          if (ranks.rank() != 1) sum_up(ranks);
        },
        {.deadline = os::Deadline::after(20ms)});
    EXPECT_TRUE(errors[0] && errors[2]);
  }
  [[nodiscard]] std::uint32_t calls(std::uint32_t channel, std::uint32_t rank) const {
    return Channel(domain_.context(0), channel).control(rank).own.sequence;
  }

  RankThreads domain_{{.name = "tp",
                       .size = kRanks,
                       .channels = 2,
                       .small_bytes = 256,
                       .message_bytes = 256,
                       .staging_bytes = 16384}};
};

TEST_F(Mending, MakesAChannelNewThatWasGivenUpAndLeavesTheOthers) {
  for (int round = 0; round < 3; ++round) {
    domain_.all(sum_up);
    domain_.all([](const Communicator& ranks) { ranks.barrier(1); });
    give_up();
    mend(domain_.context(0));
    domain_.all(sum_up);
  }
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(calls(0, rank), 1U);
    EXPECT_EQ(calls(1, rank), 3U);
  }
}

TEST_F(Mending, DoesNothingWhereNobodyHasGivenUp) {
  for (int i = 0; i < 5; ++i)
    domain_.all(sum_up);
  mend(domain_.context(0));
  for (std::uint32_t rank = 0; rank < kRanks; ++rank)
    EXPECT_EQ(calls(0, rank), 5U);
}

TEST_F(Mending, ForgetsTheReasonToo) {
  give_up();
  mend(domain_.context(0));
  EXPECT_EQ(header_of(domain_.context(0), 0).fault_state.load(), 0U);
}

class MendedMessages : public Mending, public testing::WithParamInterface<std::uint64_t> {
 protected:
  static void send(const Communicator& ranks, std::int32_t value) {
    const std::vector<std::int32_t> data(GetParam(), value);
    ranks.send(data.data(), data.size(), DType::int32, 1);
  }
  static std::int32_t receive(const Communicator& ranks) {
    std::vector<std::int32_t> data(GetParam());
    ranks.recv(data.data(), data.size(), DType::int32, 0);
    return data.back();
  }
  void expect_next_arrives() {
    mend_messages(domain_.context(0), 0, 0, 1);
    domain_.all([](const Communicator& ranks) {
      if (ranks.rank() == 0) send(ranks, 2);
      if (ranks.rank() == 1) {
        EXPECT_EQ(receive(ranks), 2);
      }
    });
  }
};
// Such as are buffered, and such as wait for their receiver.
INSTANTIATE_TEST_SUITE_P(Elements, MendedMessages, testing::Values(3, 5000));

TEST_P(MendedMessages, WithoutAReceiverAreNotWhatTheNextReceives) {
  (void)domain_.try_all(
      [](const Communicator& ranks) {
        if (ranks.rank() == 0) send(ranks, 1);
      },
      {.deadline = os::Deadline::after(20ms)});
  expect_next_arrives();
}

TEST_P(MendedMessages, WithoutASenderDoNotEndTheNext) {
  const auto errors = domain_.try_all(
      [](const Communicator& ranks) {
        if (ranks.rank() == 1) (void)receive(ranks);
      },
      {.deadline = os::Deadline::after(20ms)});
  EXPECT_TRUE(errors[1]);
  expect_next_arrives();
}

}  // namespace
}  // namespace strata::comm
