// Regions against the plain truth: a mask of bytes.
#include "graph/region.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <chrono>
#include <cstdio>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

namespace strata::graph {
namespace {

constexpr BufferId kBuffer{1};
constexpr std::size_t kBytes = 768;
using Mask = std::bitset<kBytes>;
using Random = std::mt19937_64;

std::int64_t pick(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

/// The bytes of a tensor, one by one.
Mask mask_of(const Tensor& tensor) {
  Mask mask;
  if (tensor.elements() == 0) return mask;
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype()));
  std::array<std::int64_t, kMaxRank> index{};
  while (true) {
    std::int64_t at = tensor.byte_offset();
    for (int d = 0; d < tensor.rank(); ++d)
      at += index[d] * tensor.stride(d) * size;
    for (std::int64_t byte = 0; byte < size; ++byte)
      mask.set(static_cast<std::size_t>(at + byte));
    int d = tensor.rank() - 1;
    while (d >= 0 && ++index[d] == tensor.extent(d))
      index[d--] = 0;
    if (d < 0) return mask;
  }
}

/// The bytes that a region says it covers.
Mask mask_of(const Region& region) {
  Mask mask;
  const ByteSet set(region);
  for (const ByteRange& range : set.ranges()) {
    for (std::int64_t at = range.begin; at < range.end; ++at)
      mask.set(static_cast<std::size_t>(at));
  }
  return mask;
}

DType random_dtype(Random& random) {
  constexpr std::array kTypes{DType::int8, DType::int16, DType::int32, DType::int64};
  return kTypes[static_cast<std::size_t>(pick(random, 0, 3))];
}

/// Any strides at all, negative and zero too, within kBytes.
Tensor random_strided(Random& random, int max_rank, DType dtype) {
  while (true) {
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;
    const std::int64_t rank = pick(random, 0, max_rank);
    for (std::int64_t d = 0; d < rank; ++d) {
      shape.push_back(pick(random, 0, 40) == 0 ? 0 : pick(random, 1, 6));
      strides.push_back(pick(random, -30, 60));
    }
    const Tensor tensor(kBuffer, pick(random, 0, 500), dtype, shape, strides);
    const Reach reach = reach_of(tensor);
    if (reach.begin >= 0 && reach.end <= static_cast<std::int64_t>(kBytes)) return tensor;
  }
}

Tensor random_strided(Random& random, int max_rank) {
  return random_strided(random, max_rank, random_dtype(random));
}

/// A random box of a tensor, with steps, its dimensions permuted.
Tensor random_box(Random& random, const Tensor& parent) {
  Tensor box = parent;
  for (int d = 0; d < parent.rank(); ++d) {
    const std::int64_t start = pick(random, 0, parent.extent(d) - 1);
    const std::int64_t stop = pick(random, start + 1, parent.extent(d));
    box = box.slice(d, start, stop, pick(random, 0, 2) == 0 ? 2 : 1);
  }
  if (box.rank() >= 2 && pick(random, 0, 1) == 0) box = box.transpose(0, box.rank() - 1);
  return box;
}

Overlap between(const Tensor& a, const Tensor& b) {
  const Overlap there = overlap(region_of(a), region_of(b)).overlap;
  EXPECT_EQ(there, overlap(region_of(b), region_of(a)).overlap) << "overlap is not symmetric";
  return there;
}

TEST(Region, CoversExactlyTheBytesOfItsTensor) {
  Random random(1);
  for (int i = 0; i < 20000; ++i) {
    const Tensor tensor = random_strided(random, 4);
    const Region region = region_of(tensor);
    const Mask expected = mask_of(tensor);
    ASSERT_EQ(mask_of(region), expected) << tensor.to_string();
    ASSERT_EQ(region.empty(), expected.none());
    if (region.empty()) {
      ASSERT_EQ(region.dim_count, 0);
      continue;
    }
    const Reach reach = reach_of(tensor);
    ASSERT_EQ(region.begin, reach.begin);
    ASSERT_EQ(region.end, reach.end);
    ASSERT_TRUE(expected.test(static_cast<std::size_t>(region.begin)));
    ASSERT_TRUE(expected.test(static_cast<std::size_t>(region.end - 1)));
    for (int d = 0; d + 1 < region.dim_count; ++d) {
      ASSERT_GT(region.dims[d].stride, region.dims[d + 1].stride);
      ASSERT_GE(region.dims[d].extent, 2);
    }
    ASSERT_EQ(region.dims[region.dim_count - 1].stride, 1);
  }
}

TEST(Region, AllViewsOfOneBoxAreEqualAndHashAlike) {
  const Tensor a(kBuffer, 0, DType::float32, std::array<std::int64_t, 3>{4, 6, 8});
  const Tensor box = a.tile({1, 2, 3}, {2, 3, 4});
  const Tensor reversed(kBuffer, box.byte_offset() + 4 * (48 + 2 * 8 + 3), DType::float32,
                        std::array<std::int64_t, 3>{2, 3, 4},
                        std::array<std::int64_t, 3>{-48, -8, -1});
  for (const Tensor& view : {box.transpose(0, 2), box.permute({1, 2, 0}), box.as(DType::int32),
                             reversed, reversed.transpose(1, 2)}) {
    EXPECT_EQ(region_of(view), region_of(box)) << view.to_string();
    EXPECT_EQ(region_of(view).hash(), region_of(box).hash()) << view.to_string();
  }
  EXPECT_FALSE(region_of(box) == region_of(a.tile({1, 2, 3}, {2, 3, 5})));
  EXPECT_NE(region_of(box).hash(), region_of(a.tile({0, 2, 3}, {2, 3, 4})).hash());
}

TEST(Region, OtherTypesOverContiguousBytesAreEqual) {
  const Tensor floats(kBuffer, 64, DType::float32, std::array<std::int64_t, 2>{4, 8});
  const Tensor bytes(kBuffer, 64, DType::uint8, std::array<std::int64_t, 1>{128});
  EXPECT_EQ(region_of(floats), region_of(bytes));
  EXPECT_TRUE(region_of(floats).contiguous());
}

TEST(Region, SlidingWindowsMergeIntoOneRun) {
  const Tensor windows(kBuffer, 0, DType::float32, std::array<std::int64_t, 2>{10, 3},
                       std::array<std::int64_t, 2>{1, 1});
  EXPECT_EQ(region_of(windows),
            region_of(Tensor(kBuffer, 0, DType::float32, std::array<std::int64_t, 1>{12})));
}

TEST(Region, BroadcastDimensionsCoverNothingMore) {
  const Tensor row(kBuffer, 8, DType::int64, std::array<std::int64_t, 1>{5});
  const Tensor repeated(kBuffer, 8, DType::int64, std::array<std::int64_t, 2>{1000, 5},
                        std::array<std::int64_t, 2>{0, 1});
  EXPECT_EQ(region_of(row), region_of(repeated));
}

TEST(Region, HashesOfTenThousandTilesDoNotCollide) {
  const Tensor a(kBuffer, 0, DType::float32, std::array<std::int64_t, 2>{6400, 6400});
  std::vector<std::uint64_t> hashes;
  std::vector<bool> low_bits(1 << 16);
  std::size_t taken = 0;
  for (std::int64_t i = 0; i < 100; ++i) {
    for (std::int64_t j = 0; j < 100; ++j) {
      hashes.push_back(region_of(a.tile({64 * i, 64 * j}, {64, 64})).hash());
      auto slot = low_bits[hashes.back() & 0xffff];
      if (!slot) ++taken;
      slot = true;
    }
  }
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());
  EXPECT_GT(taken, 9000u);  // 9276 expected of a random function.
}

TEST(Reach, OverflowIsToldAndZeroExtentsReachNothing) {
  const std::int64_t huge = std::int64_t{1} << 62;
  const auto reach = [](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
    return reach_of(Tensor(kBuffer, 16, DType::float32, shape, strides));
  };
  EXPECT_TRUE(reach({2}, {huge}).overflow);
  EXPECT_TRUE(reach({2, 2}, {huge / 8, huge / 8}).overflow);
  EXPECT_TRUE(reach({3, 3}, {huge, -huge}).overflow);
  EXPECT_TRUE(reach({2}, {std::numeric_limits<std::int64_t>::min()}).overflow);
  EXPECT_FALSE(reach({1}, {huge}).overflow);
  EXPECT_FALSE(reach({3, 0}, {huge, huge}).overflow);
  EXPECT_EQ(reach({3, 0}, {huge, huge}).begin, reach({3, 0}, {huge, huge}).end);
  EXPECT_TRUE(region_of(Tensor(kBuffer, 16, DType::float32, std::array<std::int64_t, 2>{3, 0},
                               std::array<std::int64_t, 2>{huge, huge}))
                  .empty());
  EXPECT_EQ(reach({5}, {-1}).begin, 0);
  EXPECT_EQ(reach({5}, {-1}).end, 20);
}

TEST(Overlap, RandomStridedRegionsAreNeverMissedAndNeverFalselyProven) {
  Random random(2);
  int meet = 0;
  int assumed = 0;
  constexpr int kPairs = 120000;
  for (int i = 0; i < kPairs; ++i) {
    const Tensor a = random_strided(random, 4);
    const Tensor b = random_strided(random, 4);
    const bool truth = (mask_of(a) & mask_of(b)).any();
    const Overlap said = between(a, b);
    if (said == Overlap::assumed) {
      ++assumed;
    } else {
      ASSERT_EQ(said == Overlap::proven, truth) << a.to_string() << " and " << b.to_string();
    }
    meet += truth ? 1 : 0;
  }
  RecordProperty("assumed", assumed);
  std::printf("%d pairs: %d meet, %d assumed\n", kPairs, meet, assumed);
  EXPECT_GT(meet, kPairs / 20);
  EXPECT_LT(meet, kPairs - kPairs / 20);
  EXPECT_LT(assumed, kPairs / 1000);
}

TEST(Overlap, ManyUnrelatedStridesAreNeverMissedWithinBoundedEffort) {
  Random random(8);
  int assumed = 0;
  constexpr int kPairs = 20000;
  for (int i = 0; i < kPairs; ++i) {
    // Sparse: many long strides, single bytes.
    const auto sparse = [&] {
      std::vector<std::int64_t> shape;
      std::vector<std::int64_t> strides;
      for (int d = 0; d < 5; ++d) {
        shape.push_back(pick(random, 1, 3));
        strides.push_back(pick(random, 11, 71));
      }
      return Tensor(kBuffer, pick(random, 0, 50), DType::int8, shape, strides);
    };
    const Tensor a = sparse();
    const Tensor b = sparse();
    const bool truth = (mask_of(a) & mask_of(b)).any();
    const Overlap said = between(a, b);
    if (said == Overlap::assumed) {
      ++assumed;
    } else {
      ASSERT_EQ(said == Overlap::proven, truth) << a.to_string() << " and " << b.to_string();
    }
  }
  std::printf("%d pairs of five unrelated strides: %d assumed\n", kPairs, assumed);
}

TEST(Overlap, BoxesOfOneLayoutAreDecidedExactly) {
  Random random(3);
  const std::vector<Tensor> parents{
      Tensor(kBuffer, 8, DType::int64, std::array<std::int64_t, 1>{80}),
      Tensor(kBuffer, 0, DType::int32, std::array<std::int64_t, 2>{12, 13}),
      Tensor(kBuffer, 3, DType::int16, std::array<std::int64_t, 3>{5, 6, 7}),
      Tensor(kBuffer, 0, DType::int8, std::array<std::int64_t, 4>{3, 4, 5, 6}),
      // Rows of 10 elements, 16 apart.
      Tensor(kBuffer, 5, DType::int32, std::array<std::int64_t, 2>{10, 10},
             std::array<std::int64_t, 2>{16, 1}),
  };
  int meet = 0;
  constexpr int kPairs = 120000;
  for (int i = 0; i < kPairs; ++i) {
    const Tensor& parent = parents[static_cast<std::size_t>(i) % parents.size()];
    const Tensor a = random_box(random, parent);
    const Tensor b = random_box(random, parent);
    const bool truth = (mask_of(a) & mask_of(b)).any();
    const OverlapResult said = overlap(region_of(a), region_of(b));
    ASSERT_EQ(said.overlap, truth ? Overlap::proven : Overlap::none)
        << a.to_string() << " and " << b.to_string();
    meet += truth ? 1 : 0;
  }
  EXPECT_GT(meet, kPairs / 20);
}

TEST(Overlap, ContiguousRunsAgainstBoxesAreDecidedExactly) {
  Random random(4);
  const Tensor parent(kBuffer, 0, DType::int16, std::array<std::int64_t, 2>{16, 20});
  for (int i = 0; i < 40000; ++i) {
    const Tensor box = random_box(random, parent);
    const Tensor run(kBuffer, pick(random, 0, 400), DType::int8,
                     std::array<std::int64_t, 1>{pick(random, 1, 200)});
    const bool truth = (mask_of(box) & mask_of(run)).any();
    ASSERT_EQ(between(box, run), truth ? Overlap::proven : Overlap::none)
        << box.to_string() << " and " << run.to_string();
  }
}

class NamedCases : public ::testing::Test {
 protected:
  Tensor matrix{kBuffer, 0, DType::float32, std::array<std::int64_t, 2>{8, 8}};
};

TEST_F(NamedCases, InterleavedColumnsNeverMeet) {
  EXPECT_EQ(between(matrix.slice(1, 2, 4), matrix.slice(1, 4, 6)), Overlap::none);
  EXPECT_EQ(between(matrix.slice(1, 2, 5), matrix.slice(1, 4, 6)), Overlap::proven);
  EXPECT_EQ(between(matrix.slice(1, 0, 8, 2), matrix.slice(1, 1, 8, 2)), Overlap::none);
}

TEST_F(NamedCases, RowMeetsEveryColumnAndNoOtherRow) {
  for (std::int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(between(matrix.slice(0, 3, 4), matrix.slice(1, i, i + 1)), Overlap::proven);
    EXPECT_EQ(between(matrix.slice(0, 3, 4), matrix.slice(0, i, i + 1)),
              i == 3 ? Overlap::proven : Overlap::none);
  }
}

TEST_F(NamedCases, TransposedTilesMeetWhereTheirBytesMeet) {
  const Tensor t = matrix.transpose(0, 1);
  EXPECT_EQ(between(t.tile({0, 4}, {4, 4}), matrix.tile({4, 0}, {4, 4})), Overlap::proven);
  EXPECT_EQ(between(t.tile({0, 4}, {4, 4}), matrix.tile({0, 4}, {4, 4})), Overlap::none);
  EXPECT_EQ(between(t.tile({0, 2}, {1, 6}), matrix.tile({2, 1}, {6, 7})), Overlap::none);
  EXPECT_EQ(between(t.tile({0, 2}, {2, 6}), matrix.tile({2, 1}, {1, 7})), Overlap::proven);
}

TEST_F(NamedCases, StepsOfTwoAndThreeMeetWhereTheirMultiplesDo) {
  const Tensor line(kBuffer, 0, DType::int8, std::array<std::int64_t, 1>{30});
  EXPECT_EQ(between(line.slice(0, 1, 30, 2), line.slice(0, 0, 3, 3)), Overlap::none);
  EXPECT_EQ(between(line.slice(0, 1, 30, 2), line.slice(0, 0, 4, 3)), Overlap::proven);
  EXPECT_EQ(between(line.slice(0, 1, 30, 4), line.slice(0, 0, 30, 6)), Overlap::none);
}

TEST_F(NamedCases, FourDimensionalTilesMeetOnlyWhereAllDimensionsMeet) {
  const Tensor a(kBuffer, 0, DType::int8, std::array<std::int64_t, 4>{4, 4, 4, 8});
  const Tensor tile = a.tile({1, 1, 1, 2}, {2, 2, 2, 3});
  EXPECT_EQ(between(tile, a.tile({2, 2, 2, 4}, {2, 2, 2, 3})), Overlap::proven);
  EXPECT_EQ(between(tile, a.tile({3, 1, 1, 2}, {1, 2, 2, 3})), Overlap::none);
  EXPECT_EQ(between(tile, a.tile({1, 3, 1, 2}, {2, 1, 2, 3})), Overlap::none);
  EXPECT_EQ(between(tile, a.tile({1, 1, 3, 2}, {2, 2, 1, 3})), Overlap::none);
  EXPECT_EQ(between(tile, a.tile({1, 1, 1, 5}, {2, 2, 2, 3})), Overlap::none);
}

TEST_F(NamedCases, EmptyViewsMeetNothing) {
  EXPECT_EQ(between(matrix, matrix.slice(0, 3, 3)), Overlap::none);
  EXPECT_TRUE(contains(region_of(matrix.slice(0, 1, 1)), region_of(matrix.slice(1, 2, 2))));
}

TEST(Overlap, HugeShapesAreDecidedExactlyAndFast) {
  const std::int64_t big = std::int64_t{1} << 40;
  // 2^20 x 2^40 bytes; rows are 2^40 + 2 apart.
  const Tensor a(kBuffer, 0, DType::int8, std::array<std::int64_t, 2>{1 << 20, big},
                 std::array<std::int64_t, 2>{big + 2, 1});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(between(a.slice(1, 0, big / 2), a.slice(1, big / 2, big)), Overlap::none);
  EXPECT_EQ(between(a.slice(1, 0, big / 2 + 1), a.slice(1, big / 2, big)), Overlap::proven);
  EXPECT_EQ(between(a.slice(1, 0, big, 2), a.slice(1, 1, big, 2)), Overlap::none);
  EXPECT_EQ(between(a.slice(1, 0, big, 2), a.slice(1, 1, big, 6)), Overlap::none);
  // The two bytes between rows.
  const Tensor gap(kBuffer, big, DType::int8, std::array<std::int64_t, 2>{(1 << 20) - 1, 2},
                   std::array<std::int64_t, 2>{big + 2, 1});
  EXPECT_EQ(between(a, gap), Overlap::none);
  EXPECT_TRUE(contains(region_of(a), region_of(a.slice(1, 7, big - 7, 3))));

  // Progressions of two primes p, q: p * i == q * j + 1. The smallest i is the inverse of p mod q.
  const std::int64_t p = 1000000007;
  const std::int64_t q = 998244353;
  std::int64_t first = 0;
  {
    std::int64_t x0 = 1, x1 = 0, r0 = p % q, r1 = q;
    while (r1 != 0) {
      const std::int64_t k = r0 / r1;
      std::tie(r0, r1) = std::pair(r1, r0 - k * r1);
      std::tie(x0, x1) = std::pair(x1, x0 - k * x1);
    }
    first = (x0 % q + q) % q;
  }
  const auto every = [](std::int64_t offset, std::int64_t stride, std::int64_t count) {
    return Tensor(kBuffer, offset, DType::int8, std::array<std::int64_t, 1>{count},
                  std::array<std::int64_t, 1>{stride});
  };
  const std::int64_t many = std::int64_t{1} << 30;
  EXPECT_EQ(between(every(0, p, first + 1), every(1, q, many)), Overlap::proven);
  EXPECT_EQ(between(every(0, p, first), every(1, q, many)), Overlap::none);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(50));
}

TEST(Overlap, ScaledUpToTheReachLimitTheAnswersStayTheSame) {
  Random random(10);
  // Every byte becomes `scale` bytes, or stays one byte at the start of `scale`; all of it shifted.
  const auto scaled = [](const Tensor& tensor, std::int64_t scale, std::int64_t shift, bool fill) {
    std::vector<std::int64_t> shape(tensor.shape().begin(), tensor.shape().end());
    std::vector<std::int64_t> strides(tensor.strides().begin(), tensor.strides().end());
    for (std::int64_t& stride : strides)
      stride *= scale;
    shape.push_back(fill ? scale : 1);
    strides.push_back(1);
    return Tensor(kBuffer, tensor.byte_offset() * scale + shift, DType::int8, shape, strides);
  };
  for (int i = 0; i < 40000; ++i) {
    const Tensor a = random_strided(random, 3, DType::int8);
    const Tensor b = random_strided(random, 3, DType::int8);
    const std::int64_t scale = (std::int64_t{1} << 51) - pick(random, 0, 5);
    const std::int64_t shift = pick(random, 0, 1) == 0 ? 0 : -kReachLimit;
    const bool fill = pick(random, 0, 1) == 0;
    const Region big_a = region_of(scaled(a, scale, shift, fill));
    const Region big_b = region_of(scaled(b, scale, shift, pick(random, 0, 1) == 0));
    ASSERT_FALSE(reach_of(scaled(a, scale, shift, fill)).overflow);
    const bool truth = (mask_of(a) & mask_of(b)).any();
    ASSERT_EQ(overlap(big_a, big_b).overlap, truth ? Overlap::proven : Overlap::none)
        << a.to_string() << " and " << b.to_string() << " times " << scale;
    if (contains(big_a, big_b)) {
      ASSERT_TRUE((mask_of(b) & ~mask_of(a)).none());
    }
  }
}

TEST(Contains, IsTrueOnlyIfEveryByteIsInside) {
  Random random(5);
  int inside = 0;
  int unproven = 0;
  for (int i = 0; i < 60000; ++i) {
    const Tensor outer = random_strided(random, 3);
    const Tensor inner = random_strided(random, 3);
    const Mask rest = mask_of(inner) & ~mask_of(outer);
    const bool said = contains(region_of(outer), region_of(inner));
    ASSERT_TRUE(!said || rest.none()) << outer.to_string() << " and " << inner.to_string();
    if (rest.none()) {
      ++inside;
      unproven += said ? 0 : 1;
    }
  }
  std::printf("%d contained, %d of them not proven\n", inside, unproven);
}

TEST(Contains, IsExactForBoxesOfOneLayout) {
  Random random(6);
  const Tensor parent(kBuffer, 2, DType::int16, std::array<std::int64_t, 3>{5, 6, 10});
  int inside = 0;
  for (int i = 0; i < 60000; ++i) {
    const Tensor outer = random_box(random, parent);
    const Tensor inner = random_box(random, i % 2 == 0 ? parent : outer);
    const bool truth = (mask_of(inner) & ~mask_of(outer)).none();
    ASSERT_EQ(contains(region_of(outer), region_of(inner)), truth)
        << outer.to_string() << " and " << inner.to_string();
    inside += truth ? 1 : 0;
  }
  EXPECT_GT(inside, 1000);
}

TEST(ByteSet, DoesWhatMasksDo) {
  Random random(7);
  const auto mask_of_set = [](const ByteSet& set) {
    Mask mask;
    std::int64_t end = -1;
    for (const ByteRange& range : set.ranges()) {
      EXPECT_GT(range.begin, end) << "ranges touch or are out of order";
      EXPECT_LT(range.begin, range.end);
      end = range.end;
      for (std::int64_t at = range.begin; at < range.end; ++at)
        mask.set(at);
    }
    return mask;
  };
  for (int i = 0; i < 20000; ++i) {
    const Tensor a = random_strided(random, 3);
    const Tensor b = random_strided(random, 3);
    ByteSet set{region_of(a)};
    const ByteSet other{region_of(b)};
    ASSERT_TRUE(set.exact());
    ASSERT_EQ(mask_of_set(set), mask_of(a));
    ASSERT_EQ(set.intersects(other), (mask_of(a) & mask_of(b)).any());
    ByteSet united = set;
    united.unite(other);
    ASSERT_EQ(mask_of_set(united), mask_of(a) | mask_of(b));
    set.subtract(other);
    ASSERT_EQ(mask_of_set(set), mask_of(a) & ~mask_of(b));
    ASSERT_EQ(set.empty(), (mask_of(a) & ~mask_of(b)).none());
  }
}

TEST(ByteSet, OfTooManyRunsIsWidenedAndNeverTakesBytesAway) {
  const Tensor columns(kBuffer, 0, DType::int8, std::array<std::int64_t, 2>{100, 2},
                       std::array<std::int64_t, 2>{4, 1});
  const ByteSet wide(region_of(columns), 99);
  EXPECT_FALSE(wide.exact());
  ASSERT_EQ(wide.ranges().size(), 1u);
  ByteSet all(region_of(Tensor(kBuffer, 0, DType::int8, std::array<std::int64_t, 1>{400})));
  all.subtract(wide);
  EXPECT_EQ(all.ranges().front(), (ByteRange{0, 400}));
  EXPECT_FALSE(all.exact());
  EXPECT_TRUE(ByteSet(region_of(columns), 100).exact());
}

}  // namespace
}  // namespace strata::graph
