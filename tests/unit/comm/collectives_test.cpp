// All collectives: types, operations, sizes, ranks, algorithms, kinds of memory; each against a
// result computed on the host, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "comm/algorithms.hpp"
#include "elements.hpp"
#include "rank_threads.hpp"
#include "support/random.hpp"
#include "support/time_bounds.hpp"

namespace strata::comm {
namespace {

using Bytes = std::vector<std::byte>;
using Algorithm = CollectiveAlgorithm;

constexpr std::array kAlgorithms = {Algorithm::automatic, Algorithm::one_phase,
                                    Algorithm::two_phase, Algorithm::ring,
                                    Algorithm::bidirectional_ring};

/// Small staging, so that a few kilobytes are many pieces.
DomainSpec spec(std::uint32_t ranks, std::uint64_t slice_bytes) {
  return {.name = "test",
          .size = ranks,
          .slices = {{"in", DType::uint8, slice_bytes}, {"out", DType::uint8, slice_bytes}},
          .channels = 2,
          .small_bytes = 256,
          .message_bytes = 256,
          .staging_bytes = 16384};
}

enum class Memory { window, own, mixed };
std::string_view name_of(Memory memory) {
  return memory == Memory::window ? "window" : memory == Memory::own ? "own memory" : "mixed";
}
enum class Place { apart, same };

/// Input and output of one rank: in its window or in memory of its own, as one array or two.
class Sides {
 public:
  Sides(const Communicator& ranks, Memory memory, std::size_t in_bytes, std::size_t out_bytes)
      : in_window_(memory == Memory::window || (memory == Memory::mixed && ranks.rank() % 2 == 0)),
        own_in_(in_window_ ? 0 : in_bytes + 64, std::byte{0x55}),
        own_out_(in_window_ ? 0 : out_bytes + 64, std::byte{0x55}),
        in_(in_window_ ? ranks.slice<std::byte>("in").data() : own_in_.data()),
        out_(in_window_ ? ranks.slice<std::byte>("out").data() : own_out_.data()) {
    std::memset(out_, 0x55, out_bytes);
  }
  [[nodiscard]] std::byte* in() const noexcept { return in_; }
  [[nodiscard]] std::byte* out() const noexcept { return out_; }

 private:
  bool in_window_;
  Bytes own_in_, own_out_;
  std::byte* in_;
  std::byte* out_;
};

void expect_equal(const std::byte* got, const Bytes& want, const std::string& what) {
  if (want.empty() || std::memcmp(got, want.data(), want.size()) == 0) return;
  std::size_t i = 0;
  while (got[i] == want[i])
    ++i;
  ADD_FAILURE() << what << ": byte " << i << " of " << want.size() << " is "
                << std::to_integer<int>(got[i]) << " and not " << std::to_integer<int>(want[i]);
}

struct Case {
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t count = 1;
  Memory memory = Memory::window;
  Place place = Place::apart;
  [[nodiscard]] std::string text(const Communicator& ranks) const {
    return std::to_string(count) + " x " + std::string(strata::name_of(dtype)) + ", " +
           std::string(strata::name_of(op)) + ", " + std::string(name_of(memory)) +
           (place == Place::same ? ", in place" : "") + ", rank " + std::to_string(ranks.rank()) +
           " of " + std::to_string(ranks.size());
  }
};

void check_all_reduce(const Communicator& ranks, const Case& c, Algorithm algorithm) {
  const Bytes in = input(c.dtype, c.op, ranks.rank(), c.count);
  const Sides sides(ranks, c.memory, in.size(), in.size());
  std::byte* const from = c.place == Place::same ? sides.out() : sides.in();
  std::ranges::copy(in, from);
  ranks.all_reduce(from, sides.out(), c.count, c.dtype, c.op,
                   {.channel = 0, .algorithm = algorithm});
  expect_equal(sides.out(), expected(c.dtype, c.op, ranks.size(), c.count),
               "all_reduce by " + std::string(strata::name_of(algorithm)) + ", " + c.text(ranks));
  if (c.place == Place::apart) expect_equal(from, in, "the input of all_reduce, " + c.text(ranks));
}

void check_reduce(const Communicator& ranks, const Case& c, std::uint32_t root) {
  const Bytes in = input(c.dtype, c.op, ranks.rank(), c.count);
  const Sides sides(ranks, c.memory, in.size(), in.size());
  std::byte* const from = c.place == Place::same ? sides.out() : sides.in();
  std::ranges::copy(in, from);
  ranks.reduce(from, sides.out(), c.count, c.dtype, c.op, root);
  if (ranks.rank() == root) {
    expect_equal(sides.out(), expected(c.dtype, c.op, ranks.size(), c.count),
                 "reduce, " + c.text(ranks));
  } else {
    const Bytes untouched = c.place == Place::same ? in : Bytes(in.size(), std::byte{0x55});
    expect_equal(sides.out(), untouched,
                 "the output of reduce where it is not asked for, " + c.text(ranks));
  }
}

void check_reduce_scatter(const Communicator& ranks, const Case& c) {
  const std::uint64_t all = c.count * ranks.size();
  const Bytes in = input(c.dtype, c.op, ranks.rank(), all);
  const std::size_t part = c.count * size_of(c.dtype);
  const Sides sides(ranks, c.memory, in.size(), in.size());
  std::ranges::copy(in, sides.in());
  std::byte* const out = c.place == Place::same ? sides.in() + ranks.rank() * part : sides.out();
  ranks.reduce_scatter(sides.in(), out, c.count, c.dtype, c.op);
  expect_equal(out, expected(c.dtype, c.op, ranks.size(), c.count, ranks.rank() * c.count),
               "reduce_scatter, " + c.text(ranks));
}

void check_all_gather(const Communicator& ranks, const Case& c) {
  const Bytes in = input(c.dtype, c.op, ranks.rank(), c.count);
  const Sides sides(ranks, c.memory, in.size(), in.size() * ranks.size());
  std::byte* const from =
      c.place == Place::same ? sides.out() + ranks.rank() * in.size() : sides.in();
  std::ranges::copy(in, from);
  ranks.all_gather(from, sides.out(), c.count, c.dtype);
  for (std::uint32_t r = 0; r < ranks.size(); ++r)
    expect_equal(sides.out() + r * in.size(), input(c.dtype, c.op, r, c.count),
                 "all_gather, part " + std::to_string(r) + ", " + c.text(ranks));
}

void check_broadcast(const Communicator& ranks, const Case& c, std::uint32_t root) {
  const Bytes data = input(c.dtype, c.op, root, c.count);
  const Sides sides(ranks, c.memory, data.size(), data.size());
  if (ranks.rank() == root) std::ranges::copy(data, sides.in());
  ranks.broadcast(sides.in(), c.count, c.dtype, root);
  expect_equal(sides.in(), data, "broadcast, " + c.text(ranks));
}

void check_all_to_all(const Communicator& ranks, const Case& c) {
  const std::uint64_t all = c.count * ranks.size();
  const Bytes in = input(c.dtype, c.op, ranks.rank(), all);
  const Sides sides(ranks, c.memory, in.size(), in.size());
  std::byte* const from = c.place == Place::same ? sides.out() : sides.in();
  std::ranges::copy(in, from);
  ranks.all_to_all(from, sides.out(), c.count, c.dtype);
  for (std::uint32_t r = 0; r < ranks.size(); ++r)
    expect_equal(sides.out() + r * c.count * size_of(c.dtype),
                 input(c.dtype, c.op, r, c.count, ranks.rank() * c.count),
                 "all_to_all, part " + std::to_string(r) + ", " + c.text(ranks));
}

void check_everything(const Communicator& ranks, const Case& c) {
  for (const Algorithm algorithm : kAlgorithms)
    check_all_reduce(ranks, c, algorithm);
  const std::uint32_t root = static_cast<std::uint32_t>(c.count % ranks.size());
  check_reduce(ranks, c, root);
  check_reduce_scatter(ranks, c);
  check_all_gather(ranks, c);
  check_broadcast(ranks, c, root);
  check_all_to_all(ranks, c);
  ranks.barrier();
}

class Collectives : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(1, 2, 3, 4, 5, 8),
                         [](const auto& param) { return std::to_string(param.param); });

TEST_P(Collectives, EverySizeInEveryMemoryGivesTheExactResult) {
  // Around what travels with the call (256 bytes), a line, a piece (5 KiB) and several of them.
  const std::vector<std::uint64_t> counts =
      test::kSanitized
          ? std::vector<std::uint64_t>{0, 1, 7, 65, 4099}
          : std::vector<std::uint64_t>{0,  1,   2,    6,    7,    15,   16,   17,    63,   64,
                                       65, 100, 1000, 1361, 4096, 4099, 8192, 12289, 20000};
  RankThreads domain(spec(GetParam(), 20000 * 4 * GetParam() + 4096));
  domain.all([&](const Communicator& ranks) {
    for (const std::uint64_t count : counts) {
      for (const Memory memory : {Memory::window, Memory::own, Memory::mixed}) {
        for (const Place place : {Place::apart, Place::same})
          check_everything(ranks, {DType::float32, ReduceOp::sum, count, memory, place});
      }
    }
  });
}

TEST_P(Collectives, EveryTypeAndOperationGivesTheExactResult) {
  const std::vector<std::uint64_t> counts = test::kSanitized
                                                ? std::vector<std::uint64_t>{3, 1031}
                                                : std::vector<std::uint64_t>{1, 3, 31, 257, 3001};
  RankThreads domain(spec(GetParam(), 3001 * 8 * GetParam() + 4096));
  domain.all([&](const Communicator& ranks) {
    for (const DType dtype : kReducible) {
      for (const ReduceOp op : kOps) {
        for (const std::uint64_t count : counts) {
          for (const Memory memory : {Memory::window, Memory::own})
            check_everything(ranks, {dtype, op, count, memory, Place::apart});
        }
      }
    }
  });
}

TEST(CollectivesTest, LargeTensorsAreExact) {
  const std::uint64_t bytes = test::kSanitized ? std::uint64_t{1} << 20 : std::uint64_t{64} << 20;
  const std::uint64_t count = bytes / 4 - 3;
  DomainSpec large = spec(2, bytes);
  large.staging_bytes = std::uint64_t{768} << 10;
  RankThreads domain(large);
  domain.all([&](const Communicator& ranks) {
    for (const Memory memory : {Memory::window, Memory::own})
      check_all_reduce(ranks, {DType::float32, ReduceOp::sum, count, memory, Place::same},
                       Algorithm::automatic);
    check_all_reduce(ranks, {DType::float32, ReduceOp::max, count, Memory::window, Place::apart},
                     Algorithm::ring);
  });
}

TEST(CollectivesTest, RandomSequencesOnSeveralChannelsWithRandomDelays) {
  const int rounds = test::kSanitized ? 60 : 400;
  for (const std::uint32_t size : {2U, 3U, 4U}) {
    RankThreads domain(spec(size, 3000 * 8 * size));
    std::vector<std::jthread> channels;
    for (std::uint32_t channel = 0; channel < 2; ++channel) {
      channels.emplace_back([&, channel] {
        domain.all([&](const Communicator& ranks) {
          test::Random same(channel + 17);                // The same on all ranks.
          test::Random own(channel * 64 + ranks.rank());  // Not so.
          for (int i = 0; i < rounds; ++i) {
            const std::uint64_t count = same.below(3000);
            const DType dtype = kReducible[same.below(kReducible.size())];
            const ReduceOp op = kOps[same.below(kOps.size())];
            const Algorithm algorithm = kAlgorithms[same.below(kAlgorithms.size())];
            for (std::uint64_t spin = own.below(4) == 0 ? own.below(20000) : 0; spin > 0; --spin)
              asm volatile("");
            if (own.below(50) == 0) std::this_thread::yield();
            Bytes data = input(dtype, op, ranks.rank(), count);
            ranks.all_reduce(data.data(), data.data(), count, dtype, op, {channel, algorithm});
            expect_equal(data.data(), expected(dtype, op, size, count), "a random all_reduce");
          }
        });
      });
    }
  }
}

TEST(CollectivesTest, BarrierSeparatesWhatIsBeforeFromWhatIsAfter) {
  constexpr int kRounds = 2000;
  RankThreads domain(spec(4, 4096));
  std::array<int, 4> counts = {};  // Not atomic: the barriers order all accesses.
  domain.all([&](const Communicator& ranks) {
    for (int i = 1; i <= kRounds; ++i) {
      counts[ranks.rank()] = i;
      ranks.barrier();
      for (const int count : counts)
        ASSERT_EQ(count, i);
      ranks.barrier(1);
    }
  });
}

/// Compared as bytes: the same bits, not just equal numbers.
bool same_bits(std::span<const float> a, std::span<const float> b) {
  const auto x = std::as_bytes(a);
  const auto y = std::as_bytes(b);
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

/// Random floats of mixed magnitude.
std::vector<float> floats(std::uint32_t rank, std::size_t count) {
  test::Random random(rank + 100);
  std::vector<float> data(count);
  for (float& x : data)
    x = static_cast<float>(random.between(-1000000, 1000000)) * 1.0e-3F *
        static_cast<float>(1 + random.below(1000));
  return data;
}

TEST_P(Collectives, SumsAreNearTheSumInFloat64AndTheSameBitsOnAllRanksAndInAllRuns) {
  constexpr std::size_t kCount = 10007;
  const std::uint32_t size = GetParam();
  for (const Algorithm algorithm : kAlgorithms) {
    std::vector<std::vector<float>> results;
    for (int run = 0; run < 3; ++run) {
      RankThreads domain(spec(size, 64));
      std::vector<std::vector<float>> got(size);
      domain.all([&](const Communicator& ranks) {
        std::vector<float> data = floats(ranks.rank(), kCount);
        ranks.all_reduce<float>(data, std::span<float>(data), ReduceOp::sum, {0, algorithm});
        got[ranks.rank()] = data;
      });
      results.insert(results.end(), got.begin(), got.end());
    }
    for (const std::vector<float>& result : results)
      ASSERT_TRUE(same_bits(result, results[0])) << strata::name_of(algorithm);
    std::vector<double> sum(kCount), magnitude(kCount);
    for (std::uint32_t r = 0; r < size; ++r) {
      const std::vector<float> data = floats(r, kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        sum[i] += data[i];
        magnitude[i] += std::abs(data[i]);
      }
    }
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_LE(std::abs(results[0][i] - sum[i]), magnitude[i] * size * 6e-8);
  }
}

TEST(CollectivesTest, WindowTensorsGiveTheBitsThatOwnMemoryGives) {
  constexpr std::size_t kCount = 5003;
  RankThreads domain(spec(3, kCount * 4));
  for (const Algorithm algorithm : {Algorithm::one_phase, Algorithm::two_phase}) {
    domain.all([&](const Communicator& ranks) {
      const std::vector<float> data = floats(ranks.rank(), kCount);
      std::vector<float> own(kCount);
      ranks.all_reduce<float>(data, std::span<float>(own), ReduceOp::sum, {0, algorithm});
      const std::span<float> in(reinterpret_cast<float*>(ranks.slice<std::byte>("in").data()),
                                kCount);
      std::memcpy(in.data(), data.data(), kCount * 4);
      ranks.all_reduce<float>(in, in, ReduceOp::sum, {0, algorithm});
      EXPECT_TRUE(same_bits(own, in));
    });
  }
}

}  // namespace
}  // namespace strata::comm
