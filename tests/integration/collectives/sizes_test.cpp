// Collectives as tasks are exact at every size, from one element to 64 MiB: each at its largest, in
// windows and in memory of its own, and sizes of all magnitudes drawn at random from a seed.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "cases.hpp"

namespace strata::test {
namespace {

/// Of the larger side of each rank.
constexpr std::uint64_t kLargest = std::uint64_t{kSanitized ? 1 : 64} << 20;

/// Elements as in CollectiveCall, where the larger side of a rank has this many bytes at most.
std::uint64_t count_of(Kind kind, DType dtype, std::uint64_t bytes, std::uint32_t ranks) {
  return bytes / size_of(dtype) /
         std::max(comm::in_parts(kind, ranks), comm::out_parts(kind, ranks));
}

void expect_exact(Ranks& ranks, const Draw& d, Random& random, std::span<const Place> places) {
  SCOPED_TRACE(text_of(d, ranks.size()));
  std::optional<Case> one;
  ranks.worker().run([&](Orchestration& run) {
    one.emplace(ranks.worker(), ranks.domain(), d, random, run, places);
    one->submit(run);
  });
  one->check();
}

struct Corner {
  std::uint32_t ranks;
  Kind kind;
  Place place;
};
std::vector<Corner> all_corners() {
  std::vector<Corner> all;
  for (const std::uint32_t ranks : {2U, 4U}) {
    for (const Kind kind : comm::kKinds) {
      for (const Place place : {Place::window, Place::buffer})
        all.push_back({ranks, kind, place});
    }
  }
  all.push_back({8, Kind::all_reduce, Place::window});
  return all;
}
std::string name_of_corner(const testing::TestParamInfo<Corner>& info) {
  return std::string(comm::name_of(info.param.kind)) + "_of_" + std::to_string(info.param.ranks) +
         (info.param.place == Place::window ? "_in_windows" : "_in_own_memory");
}

class LargestCollectives : public NodeTest, public testing::WithParamInterface<Corner> {};
INSTANTIATE_TEST_SUITE_P(, LargestCollectives, testing::ValuesIn(all_corners()), name_of_corner);

TEST_P(LargestCollectives, AreExact) {
  const auto [count, kind, place] = GetParam();
  // Of the types in turn; the largest elements are the fewest to look at.
  const DType dtype = kind == Kind::all_reduce ? DType::float32 : DType::int64;
  Ranks ranks(count, kLargest / size_of(dtype), std::array{dtype});
  Random random(count);
  expect_exact(ranks,
               {.kind = kind,
                .dtype = dtype,
                .count = count_of(kind, dtype, kLargest, count),
                .root = count - 1},
               random, std::array{place});
}

using LargestMessages = NodeTest;

TEST_F(LargestMessages, ArriveWhole) {
  Ranks ranks(2, kLargest / 8, std::array{DType::int64});
  const std::array shape = {static_cast<std::int64_t>(kLargest / 8)};
  const Bytes sent = comm::input(DType::int64, ReduceOp::sum, 0, kLargest / 8);
  Buffer from = ranks.worker().create_buffer(kLargest);
  Buffer to = ranks.worker().create_buffer(kLargest);
  std::ranges::copy(sent, from.data());
  const Tensor window = ranks.domain().slice(1, slice_name(DType::int64, "in"));
  ranks.worker().run([&](Orchestration& run) {
    // Piece by piece into a window, and from there as a whole.
    send_recv(run, ranks.domain(), 0, from.tensor(DType::int64, shape), 1, window);
    send_recv(run, ranks.domain(), 1, window, 0, to.tensor(DType::int64, shape));
  });
  EXPECT_TRUE(std::ranges::equal(sent, std::span(to.data(), kLargest)));
}

class CollectivesOfAnySize : public NodeTest, public testing::WithParamInterface<std::uint32_t> {
 protected:
  /// One element to the largest, each magnitude as often; mostly no multiple of anything.
  static std::uint64_t any_count(Random& random, const Draw& d, std::uint32_t ranks) {
    const std::uint64_t least = std::uint64_t{1} << random.below(26);
    const std::uint64_t bytes = std::min(least + random.below(least), kLargest);
    return std::max<std::uint64_t>(count_of(d.kind, d.dtype, bytes, ranks), 1);
  }
  static std::uint64_t bytes_of(const Draw& d, std::uint32_t ranks) {
    const std::uint64_t parts =
        std::max(comm::in_parts(d.kind, ranks), comm::out_parts(d.kind, ranks));
    return d.count * size_of(d.dtype) * parts * ranks;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesOfAnySize, testing::Range(1U, 9U),
                         [](const auto& param) { return std::to_string(param.param); });

TEST_P(CollectivesOfAnySize, AreExact) {
  Ranks ranks(GetParam());
  Random random(GetParam() + 1000);
  // So much is looked at in all; that is some 40 collectives.
  std::int64_t left = (kSanitized ? 8 : 160) << 20;
  while (left > 0 && !HasFailure()) {
    Draw d = draw(random, ranks.domain(), 4);
    d.count = any_count(random, d, ranks.size());
    left -= static_cast<std::int64_t>(bytes_of(d, ranks.size()) + (1U << 20));
    expect_exact(ranks, d, random, kPlaces);
  }
}

}  // namespace
}  // namespace strata::test
