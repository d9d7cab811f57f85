// What happens when ranks disagree, give up, are cancelled or die.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/channel.hpp"
#include "elements.hpp"
#include "rank_threads.hpp"
#include "strata/comm_error.hpp"
#include "support/time_bounds.hpp"

namespace strata::comm {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

DomainSpec spec(std::uint32_t ranks) {
  return {.name = "tp",
          .size = ranks,
          .slices = {{"data", DType::float32, 4096}, {"flags", DType::uint64, 4}},
          .channels = 2,
          .small_bytes = 256,
          .message_bytes = 256,
          .staging_bytes = 16384};
}

bool is_mismatch(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const CommError& e) {
    return e.cause() == CommError::Cause::mismatch;
  } catch (...) {
  }
  return false;
}

/// A call of rank 1 that does not fit what the others do.
struct Odd {
  const char* name;
  RankThreads::Body call;
  const char* text;
};

void usual(const Communicator& ranks) {
  std::vector<float> data(1000);
  ranks.all_reduce<float>(data, std::span<float>(data), ReduceOp::sum);
}

TEST(CommErrors, EveryRankLearnsWhoCalledWhatAndTheDomainCanBeUsedFurther) {
  std::vector<float> data(2000);
  std::vector<std::int32_t> ints(1000);
  const std::vector<Odd> odd = {
      {"count",
       [&](const Communicator& r) {
         r.all_reduce<float>(std::span(data).first(999), std::span(data).first(999), ReduceOp::sum);
       },
       "rank 1: all_reduce of 999 x float32, sum"},
      {"op",
       [&](const Communicator& r) {
         r.all_reduce<float>(std::span(data).first(1000), std::span(data).first(1000),
                             ReduceOp::max);
       },
       "rank 1: all_reduce of 1000 x float32, max"},
      {"dtype",
       [&](const Communicator& r) {
         r.all_reduce<std::int32_t>(ints, std::span<std::int32_t>(ints), ReduceOp::sum);
       },
       "rank 1: all_reduce of 1000 x int32, sum"},
      {"algorithm",
       [&](const Communicator& r) {
         r.all_reduce<float>(std::span(data).first(1000), std::span(data).first(1000),
                             ReduceOp::sum, {0, CollectiveAlgorithm::ring});
       },
       "rank 1: all_reduce of 1000 x float32, sum, by ring"},
      {"kind", [&](const Communicator& r) { r.broadcast(data.data(), 1000, DType::float32, 2); },
       "rank 1: broadcast of 1000 x float32, root 2"},
      {"barrier", [&](const Communicator& r) { r.barrier(); }, "rank 1: barrier"},
      {"refused",
       [&](const Communicator& r) {
         try {
           r.all_reduce(nullptr, nullptr, 1000, DType::float32, ReduceOp::sum);
         } catch (const InvalidArgument& e) {
           EXPECT_THAT(e.what(), HasSubstr("the input is null"));
           throw CommError(CommError::Cause::mismatch,
                           "all_reduce of 1000 x float32, sum; rank 1: "
                           "a call that is refused there");
         }
       },
       "rank 1: a call that is refused there"},
  };
  RankThreads domain(spec(3));
  for (const Odd& one : odd) {
    const auto errors = domain.try_all(
        [&](const Communicator& ranks) { ranks.rank() == 1 ? one.call(ranks) : usual(ranks); });
    for (const std::exception_ptr& error : errors) {
      EXPECT_TRUE(is_mismatch(error)) << one.name << ": " << RankThreads::text_of(error);
      EXPECT_THAT(RankThreads::text_of(error), HasSubstr(one.text)) << one.name;
      EXPECT_THAT(RankThreads::text_of(error), HasSubstr("all_reduce of 1000 x float32, sum"));
    }
    domain.all(usual);
  }
}

TEST(CommErrors, RootsThatDifferAreAMismatch) {
  RankThreads domain(spec(2));
  std::vector<std::exception_ptr> errors = domain.try_all([](const Communicator& ranks) {
    float x = 1;
    ranks.broadcast(&x, 1, DType::float32, ranks.rank());
  });
  EXPECT_THAT(RankThreads::text_of(errors[0]),
              HasSubstr("rank 0: broadcast of 1 x float32, root 0;"
                        " rank 1: broadcast of 1 x float32, root 1"));
  EXPECT_TRUE(is_mismatch(errors[1]));
}

TEST(CommErrors, WrongArgumentsAreRefusedOnAllRanksAndTheDomainCanBeUsedFurther) {
  RankThreads domain(spec(2));
  domain.all([](const Communicator& ranks) {
    std::vector<float> data(100);
    float* const d = data.data();
    std::byte* const internals = ranks.domain().window();
    const auto sum = ReduceOp::sum;
    const auto f32 = DType::float32;
    EXPECT_THROW(ranks.all_reduce(d, d + 1, 10, f32, sum), InvalidArgument);
    EXPECT_THROW(ranks.all_reduce(d, internals + 64, 10, f32, sum), InvalidArgument);
    EXPECT_THROW(ranks.all_reduce(d, d, 10, DType::float64, sum), InvalidArgument);
    EXPECT_THROW(ranks.broadcast(d, 10, f32, 2), InvalidArgument);
    EXPECT_THROW(ranks.all_gather(d, d + 1, 10, f32), InvalidArgument);
    EXPECT_THROW(ranks.all_reduce(d, nullptr, 10, f32, sum), InvalidArgument);
    EXPECT_THROW(ranks.all_reduce(d, d, ~std::uint64_t{0}, f32, sum), InvalidArgument);
    EXPECT_THROW(ranks.broadcast(d, 1, f32, 0, {0, CollectiveAlgorithm::ring}), InvalidArgument);
    EXPECT_THROW(ranks.barrier(2), CommError);
    usual(ranks);
  });
}

TEST(CommErrors, ARankThatIsCancelledEndsTheWaitsOfAllOthers) {
  RankThreads domain(spec(3));
  std::atomic<bool> cancelled{false};
  const PlainWaits::Options cancellable = {
      .is_cancelled =
          [](const void* token) { return static_cast<const std::atomic<bool>*>(token)->load(); },
      .token = &cancelled};
  std::vector<std::exception_ptr> errors(3);
  {
    std::vector<std::jthread> threads;
    for (const std::uint32_t rank : {0U, 2U}) {
      threads.emplace_back([&, rank] {
        const DomainContext context = domain.context(rank);
        const PlainWaits waits(rank == 2 ? cancellable : PlainWaits::Options{});
        try {
          usual(Communicator(waits, context));
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
    }
    EXPECT_TRUE(test::within(10s, [&] { return describe_waits(domain.context(1)).size() == 2; }));
    EXPECT_THAT(describe_waits(domain.context(1)),
                testing::UnorderedElementsAre(
                    "rank 0 of domain 'tp' waits in all_reduce #1 on channel 0 for rank 1 (it has "
                    "called nothing there)",
                    "rank 2 of domain 'tp' waits in all_reduce #1 on channel 0 for rank 1 (it has "
                    "called nothing there)"));
    cancelled = true;
    EXPECT_TRUE(test::within(1s, [&] { return describe_waits(domain.context(1)).size() == 1; }));
    // Rank 0 waits for rank 1, which comes now and finds that rank 2 has given up.
    const DomainContext context = domain.context(1);
    const PlainWaits waits;
    try {
      usual(Communicator(waits, context));
    } catch (...) {
      errors[1] = std::current_exception();
    }
  }
  EXPECT_THROW(std::rethrow_exception(errors[2]), Cancelled);
  EXPECT_THAT(RankThreads::text_of(errors[2]),
              HasSubstr("rank 2 of domain 'tp' waits in all_reduce #1 on channel 0 for rank 1 (it "
                        "has called nothing there): cancelled"));
  for (const int rank : {0, 1}) {
    EXPECT_THAT(RankThreads::text_of(errors[rank]), HasSubstr("which has given up: ")) << rank;
    EXPECT_THAT(RankThreads::text_of(errors[rank]),
                HasSubstr("rank 2 of domain 'tp' waits in all_reduce #1"))
        << rank;
  }
  // The channel is broken, and says so at once; the other is not.
  const auto again = domain.try_all(usual);
  for (const std::exception_ptr& error : again)
    EXPECT_THAT(RankThreads::text_of(error), HasSubstr("has given up an earlier call"));
  domain.all([](const Communicator& ranks) { ranks.barrier(1); });
}

TEST(CommErrors, CancelledBeforeItBeginsTellsTheOthers) {
  RankThreads domain(spec(2));
  std::vector<std::exception_ptr> errors(2);
  std::vector<std::jthread> threads;
  for (const std::uint32_t rank : {0U, 1U}) {
    threads.emplace_back([&, rank] {
      const DomainContext context = domain.context(rank);
      PlainWaits::Options options;
      if (rank == 1) options.is_cancelled = [](const void*) { return true; };
      const PlainWaits waits(options);
      try {
        usual(Communicator(waits, context));
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  threads.clear();
  EXPECT_THROW(std::rethrow_exception(errors[1]), Cancelled);
  EXPECT_THAT(RankThreads::text_of(errors[0]), HasSubstr("cancelled before it began"));
}

TEST(CommErrors, ADeadlineEndsAWait) {
  RankThreads domain(spec(2));
  const DomainContext context = domain.context(0);
  const PlainWaits waits({.deadline = os::Deadline::after(20ms)});
  try {
    usual(Communicator(waits, context));
    ADD_FAILURE() << "it ended";
  } catch (const DeadlineExceeded& e) {
    EXPECT_THAT(e.what(), HasSubstr("rank 0 of domain 'tp' waits in all_reduce #1 on channel 0 for "
                                    "rank 1 (it has called nothing there): its deadline has "
                                    "passed"));
  }
}

TEST(CommErrors, ATimeOutNamesEachRankThatIsMissingAndEachWhoseCallIsAnother) {
  constexpr std::uint32_t kRanks = 4;
  // Of ranks 1 to 3: bit r is set if rank r is missing; the others call a barrier.
  for (unsigned missing = 2; missing < 1U << kRanks; missing += 2) {
    SCOPED_TRACE(missing);
    const auto is_missing = [&](std::uint32_t rank) { return (missing >> rank & 1U) != 0; };
    RankThreads domain(spec(kRanks));
    domain.all(usual);
    const DomainContext context = domain.context(0);
    std::vector<std::jthread> others;
    std::size_t here = 0;
    for (std::uint32_t rank = 1; rank < kRanks; ++rank) {
      if (is_missing(rank)) continue;
      others.emplace_back([&domain, rank] {
        const DomainContext own = domain.context(rank);
        const PlainWaits waits;
        EXPECT_THROW(Communicator(waits, own).barrier(), CommError);
      });
      ++here;
    }
    EXPECT_TRUE(test::within(10s, [&] { return describe_waits(context).size() == here; }));
    std::string text;
    try {
      const PlainWaits waits({.deadline = os::Deadline::after(20ms)});
      usual(Communicator(waits, context));
    } catch (const DeadlineExceeded& e) {
      text = e.what();
    }
    // Who waits for a missing rank shall end, too.
    for (std::uint32_t rank = 1; rank < kRanks; ++rank) {
      if (is_missing(rank)) mark_gone(context, rank, "the test is over");
    }
    EXPECT_THAT(text, HasSubstr("rank 0 of domain 'tp' waits in all_reduce #2"));
    for (std::uint32_t rank = 1; rank < kRanks; ++rank) {
      const std::string number = std::to_string(rank);
      EXPECT_EQ(text.find(number + " (its last call there is #1)") != std::string::npos,
                is_missing(rank))
          << text;
      EXPECT_EQ(text.find("; rank " + number + " calls barrier as #2") != std::string::npos,
                !is_missing(rank))
          << text;
    }
    EXPECT_EQ(text.find("and this one all_reduce of 1000 x float32, sum") != std::string::npos,
              here != 0)
        << text;
  }
}

TEST(CommErrors, ARankThatDoesNotNotifyIsNamedWhileTheOthersWait) {
  constexpr std::uint32_t kRanks = 4;
  for (std::uint32_t silent = 0; silent < kRanks; ++silent) {
    SCOPED_TRACE(silent);
    const std::uint32_t victim = (silent + 1) % kRanks;
    RankThreads domain(spec(kRanks));
    const DomainContext context = domain.context(0);
    {
      std::vector<std::jthread> ranks;
      for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        ranks.emplace_back([&, rank] {
          const DomainContext own = domain.context(rank);
          const PlainWaits waits;
          const Communicator comm(waits, own);
          Signal& flag = comm.slice<Signal>("flags")[2];
          if (rank != silent) comm.notify((rank + 1) % kRanks, flag, 1);
          comm.wait(flag, Compare::greater_or_equal, 1);
          comm.barrier();
        });
      }
      EXPECT_TRUE(test::within(10s, [&] { return describe_waits(context).size() == kRanks + 1; }));
      const std::string number = std::to_string(victim);
      EXPECT_THAT(
          describe_waits(context),
          testing::IsSupersetOf(
              {"rank " + number +
                   " of domain 'tp' waits for the signal at byte 16 of slice 'flags' to be >= 1, "
                   "and it is 0",
               "rank " + std::to_string(silent) +
                   " of domain 'tp' has sent 0 notifications, and each other rank 1",
               "rank " + std::to_string((victim + 1) % kRanks) +
                   " of domain 'tp' waits in barrier #1 on channel 0 for rank " + number +
                   " (it has called nothing there)"}));
      const DomainContext own = domain.context(silent);
      const PlainWaits waits;
      const Communicator comm(waits, own);
      comm.notify(victim, comm.slice<Signal>("flags")[2], 1);
    }
    EXPECT_THAT(describe_waits(context), testing::IsEmpty());
  }
}

TEST(CommErrors, ADeadlineEndsAWaitForASignal) {
  RankThreads domain(spec(2));
  const DomainContext context = domain.context(0);
  const PlainWaits waits({.deadline = os::Deadline::after(20ms)});
  const Communicator ranks(waits, context);
  try {
    ranks.wait(ranks.slice<Signal>("flags")[1], Compare::equal, 3);
    ADD_FAILURE() << "it ended";
  } catch (const DeadlineExceeded& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("waits for the signal at byte 8 of slice 'flags' to be == 3, and it "
                          "is 0: its deadline has passed"));
  }
}

TEST(CommErrors, ARankThatDiedEndsTheWaitsOfAllOthersWithItsCause) {
  RankThreads domain(spec(3));
  std::vector<std::exception_ptr> errors(3);
  {
    std::vector<std::jthread> threads;
    for (const std::uint32_t rank : {0U, 2U}) {
      threads.emplace_back([&, rank] {
        const DomainContext context = domain.context(rank);
        const PlainWaits waits;
        try {
          usual(Communicator(waits, context));
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
    }
    EXPECT_TRUE(test::within(10s, [&] { return describe_waits(domain.context(1)).size() == 2; }));
    mark_gone(domain.context(0), 1, "chip[1] (pid 123) was killed by signal 9");
  }
  for (const int rank : {0, 2}) {
    EXPECT_THAT(RankThreads::text_of(errors[rank]),
                HasSubstr("for rank 1, which has given up: chip[1] (pid 123) was killed"));
  }
}

TEST(CommErrors, TwoCallsOnOneChannelAtOnceAreRefused) {
  RankThreads domain(spec(2));
  const DomainContext context = domain.context(0);
  const PlainWaits waits({.deadline = os::Deadline::after(10s)});
  std::jthread first([&] {
    const DomainContext same = domain.context(0);
    usual(Communicator(waits, same));
  });
  EXPECT_TRUE(test::within(5s, [&] { return describe_waits(context).size() == 1; }));
  EXPECT_THROW(usual(Communicator(waits, context)), CommError);
  const DomainContext other = domain.context(1);
  usual(Communicator(waits, other));
}

/// Numbers in the windows as they are after 2^31 steps, less a few.
TEST(CommErrors, CountsMayWrapRound) {
  DomainSpec wide = spec(3);
  RankThreads domain(wide);
  domain.all([](const Communicator& ranks) {
    ChannelControl& control = Channel(ranks.domain(), 0).control(ranks.rank());
    const std::uint32_t start = kCountMask - 5;
    control.own.sequence = start;
    control.own.steps = start;
    control.posts[0].sequence.value = start - 1;
    control.posts[1].sequence.value = start;
    control.progress.count.value = start;
    for (std::uint32_t r = 0; r < ranks.size(); ++r) {
      Channel(ranks.domain(), 0).lines(ranks.rank(), r).sent.count.value = start - 1;
      Channel(ranks.domain(), 0).lines(ranks.rank(), r).taken.count.value = start - 1;
    }
    ranks.barrier(1);
    for (int i = 0; i < 20; ++i) {
      const std::vector<std::byte> in = input(DType::float32, ReduceOp::sum, ranks.rank(), 3001);
      std::vector<std::byte> out(in.size());
      for (const auto algorithm : {CollectiveAlgorithm::two_phase, CollectiveAlgorithm::ring})
        ranks.all_reduce(in.data(), out.data(), 3001, DType::float32, ReduceOp::sum,
                         {0, algorithm});
      ASSERT_EQ(out, expected(DType::float32, ReduceOp::sum, 3, 3001));
      const std::uint32_t next = (ranks.rank() + 1) % 3;
      const std::uint32_t previous = (ranks.rank() + 2) % 3;
      ranks.send_recv(in.data(), 3001, next, out.data(), 3001, previous, DType::float32);
      ASSERT_EQ(out, input(DType::float32, ReduceOp::sum, previous, 3001));
    }
  });
}

}  // namespace
}  // namespace strata::comm
