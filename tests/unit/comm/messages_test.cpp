// send, recv, send_recv; put, get, notify and wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "elements.hpp"
#include "rank_threads.hpp"
#include "strata/comm_error.hpp"
#include "support/time_bounds.hpp"

namespace strata::comm {
namespace {

DomainSpec spec(std::uint32_t ranks) {
  return {.name = "test",
          .size = ranks,
          .slices = {{"data", DType::int32, 20000}, {"flags", DType::uint64, 16}},
          .channels = 2,
          .small_bytes = 256,
          .message_bytes = 256,
          .staging_bytes = 16384};
}

std::vector<std::int32_t> numbers(std::uint32_t rank, std::size_t count) {
  std::vector<std::int32_t> data(count);
  for (std::size_t i = 0; i < count; ++i)
    data[i] = static_cast<std::int32_t>(rank * 1000000 + i);
  return data;
}

TEST(Messages, ArriveWholeAndInOrder) {
  RankThreads domain(spec(2));
  const std::vector<std::size_t> counts = {0, 1, 63, 64, 65, 256, 257, 1000, 5000};
  domain.all([&](const Communicator& ranks) {
    for (int round = 0; round < 20; ++round) {
      for (const std::size_t count : counts) {
        if (ranks.rank() == 0) {
          const std::vector<std::int32_t> data = numbers(static_cast<std::uint32_t>(round), count);
          ranks.send(data.data(), count, DType::int32, 1);
        } else {
          std::vector<std::int32_t> data(count, -1);
          ranks.recv(data.data(), count, DType::int32, 0);
          ASSERT_EQ(data, numbers(static_cast<std::uint32_t>(round), count));
        }
      }
    }
  });
}

TEST(Messages, FromAWindowAreTakenFromThereAndTheSenderMayReuseItAfterwards) {
  RankThreads domain(spec(2));
  domain.all([&](const Communicator& ranks) {
    for (std::uint32_t round = 0; round < 50; ++round) {
      const auto mine = ranks.slice<std::int32_t>("data");
      if (ranks.rank() == 0) {
        const std::vector<std::int32_t> data = numbers(round, mine.size());
        std::memcpy(mine.data(), data.data(), mine.size_bytes());
        ranks.send(mine.data(), mine.size(), DType::int32, 1);
      } else {
        std::vector<std::int32_t> data(mine.size());
        ranks.recv(data.data(), data.size(), DType::int32, 0);
        ASSERT_EQ(data, numbers(round, mine.size()));
      }
    }
  });
}

TEST(Messages, AllRanksCanSendLargeOnesRoundARingAtOnce) {
  RankThreads domain(spec(4));
  domain.all([&](const Communicator& ranks) {
    const std::uint32_t next = (ranks.rank() + 1) % ranks.size();
    const std::uint32_t previous = (ranks.rank() + ranks.size() - 1) % ranks.size();
    for (const std::size_t count : {std::size_t{10}, std::size_t{20000}}) {
      for (const bool in_window : {false, true}) {
        const std::vector<std::int32_t> data = numbers(ranks.rank(), count);
        const std::int32_t* out = data.data();
        if (in_window) {
          const auto mine = ranks.slice<std::int32_t>("data");
          std::memcpy(mine.data(), data.data(), count * 4);
          out = mine.data();
        }
        std::vector<std::int32_t> got(count);
        ranks.send_recv(out, count, next, got.data(), count, previous, DType::int32);
        ASSERT_EQ(got, numbers(previous, count));
      }
    }
  });
}

TEST(Messages, DoNotDisturbCollectivesOnTheSameChannel) {
  RankThreads domain(spec(3));
  domain.all([&](const Communicator& ranks) {
    for (std::uint32_t round = 0; round < 100; ++round) {
      std::int32_t token = static_cast<std::int32_t>(round);
      if (ranks.rank() == 0) ranks.send(&token, 1, DType::int32, 2);  // Before ...
      std::int32_t sum = 1;
      ranks.all_reduce(&sum, &sum, 1, DType::int32, ReduceOp::sum);
      ASSERT_EQ(sum, 3);
      if (ranks.rank() == 2) {
        token = -1;
        ranks.recv(&token, 1, DType::int32, 0);  // ... and behind it.
        ASSERT_EQ(token, static_cast<std::int32_t>(round));
      }
    }
  });
}

TEST(Messages, OfAnotherSizeThanExpectedEndWithAnErrorOnBothSides) {
  RankThreads domain(spec(2));
  const auto errors = domain.try_all([&](const Communicator& ranks) {
    const std::vector<std::int32_t> data = numbers(0, 5000);
    std::vector<std::int32_t> room(4999);
    if (ranks.rank() == 0) ranks.send(data.data(), 5000, DType::int32, 1);
    if (ranks.rank() == 1) ranks.recv(room.data(), 4999, DType::int32, 0);
  });
  EXPECT_THAT(RankThreads::text_of(errors[1]),
              testing::HasSubstr("receives 4999 x int32 from rank 0, which sends 5000 x int32"));
  EXPECT_THAT(RankThreads::text_of(errors[0]),
              testing::HasSubstr("for rank 1, which has given up"));
  EXPECT_THAT(RankThreads::text_of(errors[0]), testing::HasSubstr("receives 4999 x int32"));
}

TEST(Messages, ToNobodyAreRefused) {
  RankThreads domain(spec(2));
  domain.all([&](const Communicator& ranks) {
    std::int32_t x = 0;
    EXPECT_THROW(ranks.send(&x, 1, DType::int32, ranks.rank()), InvalidArgument);
    EXPECT_THROW(ranks.send(&x, 1, DType::int32, 2), InvalidArgument);
    EXPECT_THROW(ranks.recv(nullptr, 1, DType::int32, 1 - ranks.rank()), InvalidArgument);
    EXPECT_THROW(ranks.send(&x, 1, DType::int32, 1 - ranks.rank(), 7), InvalidArgument);
  });
}

TEST(Primitives, WhatWasPutBeforeANotifyIsSeenByWhoWaits) {
  constexpr std::uint32_t kRounds = 2000;
  RankThreads domain(spec(2));
  domain.all([&](const Communicator& ranks) {
    const auto data = ranks.slice<std::int32_t>("data").first(40);
    const auto flags = ranks.slice<Signal>("flags");
    const std::uint32_t other = 1 - ranks.rank();
    for (std::uint32_t i = 1; i <= kRounds; ++i) {
      ranks.put(other, data.data(), numbers(ranks.rank() * 3 + i, 40));
      ranks.notify(other, flags[0], i);
      ranks.wait(flags[0], Compare::equal, i);
      ASSERT_EQ(std::vector<std::int32_t>(data.begin(), data.end()), numbers(other * 3 + i, 40));
      ranks.notify(other, flags[1], 1, SignalOp::add);  // The other may overwrite it.
      ranks.wait(flags[1], Compare::greater_or_equal, i);
    }
  });
}

TEST(Primitives, GetReadsWhatAnotherRankHas) {
  RankThreads domain(spec(3));
  domain.all([&](const Communicator& ranks) {
    const auto mine = ranks.slice<std::int32_t>("data").first(100);
    const std::vector<std::int32_t> data = numbers(ranks.rank(), 100);
    std::memcpy(mine.data(), data.data(), mine.size_bytes());
    ranks.barrier();
    for (std::uint32_t r = 0; r < ranks.size(); ++r) {
      std::vector<std::int32_t> got(100);
      ranks.get(r, mine.data(), got);
      EXPECT_EQ(got, numbers(r, 100));
      EXPECT_EQ(ranks.at(r, mine.data())[7], numbers(r, 100)[7]);
    }
    ranks.barrier();
  });
}

TEST(Primitives, OutsideTheSlicesAreRefused) {
  RankThreads domain(spec(2));
  domain.all([&](const Communicator& ranks) {
    const auto data = ranks.slice<std::int32_t>("data");
    const std::vector<std::int32_t> two = {1, 2};
    auto* const internals = reinterpret_cast<std::int32_t*>(ranks.domain().window());
    std::int32_t elsewhere[2] = {};
    EXPECT_THROW(ranks.put(1, internals, two), CommError);
    EXPECT_THROW(ranks.put(1, elsewhere, two), CommError);
    EXPECT_THROW(ranks.put(2, data.data(), two), CommError);
    EXPECT_THROW((void)ranks.slice<std::int32_t>("dat"), CommError);
    EXPECT_THROW((void)ranks.slice<std::int16_t>("data"), CommError);
    EXPECT_THROW((void)ranks.slice<std::int32_t>("data", 2), CommError);
  });
}

}  // namespace
}  // namespace strata::comm
