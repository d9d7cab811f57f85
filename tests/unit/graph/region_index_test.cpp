// The index against a linear scan, and its cost on ten thousand tiles.
#include "graph/region_index.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph/region_grid.hpp"
#include "graph/region_layout.hpp"

namespace strata::graph {
namespace {

constexpr BufferId kBuffer{1};
using Random = std::mt19937_64;

std::int64_t pick(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

/// An index beside a plain list of what is in it.
class Checked {
 public:
  void insert(const Region& region) {
    const std::size_t id = regions_.size();
    regions_.push_back(region);
    handles_.push_back(index_.insert(region, reinterpret_cast<void*>(id)));
    live_.push_back(id);
  }
  void erase(std::size_t place) {
    index_.erase(handles_[live_[place]]);
    live_[place] = live_.back();
    live_.pop_back();
  }
  /// Everything that shares a byte is visited, nothing twice, nothing that is not there.
  void check(const Region& region) const {
    std::vector<std::size_t> visited;
    index_.query(region,
                 [&](void* payload) { visited.push_back(reinterpret_cast<std::size_t>(payload)); });
    std::sort(visited.begin(), visited.end());
    ASSERT_EQ(std::adjacent_find(visited.begin(), visited.end()), visited.end());
    std::vector<std::size_t> live = live_;
    std::sort(live.begin(), live.end());
    ASSERT_TRUE(std::includes(live.begin(), live.end(), visited.begin(), visited.end()));
    for (const std::size_t id : live_) {
      if (overlap(regions_[id], region).overlap == Overlap::none) continue;
      ASSERT_TRUE(std::binary_search(visited.begin(), visited.end(), id))
          << "region " << id << " [" << regions_[id].begin << ", " << regions_[id].end
          << ") was not visited";
    }
    ASSERT_EQ(index_.size(), live_.size());
  }
  void check_height() const {
    const double bound = 1.45 * std::log2(static_cast<double>(live_.size()) + 2) + 1;
    ASSERT_LE(index_.height(), bound) << live_.size() << " regions";
  }
  [[nodiscard]] std::size_t size() const { return live_.size(); }
  [[nodiscard]] const RegionIndex& index() const { return index_; }

 private:
  RegionIndex index_;
  std::vector<Region> regions_;
  std::vector<RegionIndex::Handle> handles_;
  std::vector<std::size_t> live_;
};

Tensor random_box(Random& random, const Tensor& parent) {
  Tensor box = parent;
  for (int d = 0; d < parent.rank(); ++d) {
    const std::int64_t start = pick(random, 0, parent.extent(d) - 1);
    const std::int64_t stop =
        std::min(parent.extent(d), start + 1 + pick(random, 0, parent.extent(d) / 3));
    box = box.slice(d, start, stop, pick(random, 0, 4) == 0 ? 2 : 1);
  }
  return box;
}

TEST(RegionIndex, VisitsAllThatShareAByteUnderRandomInsertionsAndErasures) {
  const std::vector<std::vector<Tensor>> mixes{
      {Tensor(kBuffer, 0, DType::int8, std::array<std::int64_t, 1>{2000})},
      {Tensor(kBuffer, 24, DType::float32, std::array<std::int64_t, 2>{40, 50})},
      {Tensor(kBuffer, 7, DType::int16, std::array<std::int64_t, 3>{9, 10, 11})},
      {Tensor(kBuffer, 0, DType::int8, std::array<std::int64_t, 4>{6, 7, 8, 9})},
      {Tensor(kBuffer, 0, DType::int8, std::array<std::int64_t, 5>{5, 5, 5, 5, 5})},
      // Layouts that do not fit each other.
      {Tensor(kBuffer, 0, DType::int8, std::array<std::int64_t, 2>{50, 37}),
       Tensor(kBuffer, 5, DType::int16, std::array<std::int64_t, 2>{32, 32}),
       Tensor(kBuffer, 1999, DType::int8, std::array<std::int64_t, 2>{20, 21},
              std::array<std::int64_t, 2>{-91, -3})},
  };
  for (std::size_t m = 0; m < mixes.size(); ++m) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE("mix " + std::to_string(m) + " seed " + std::to_string(seed));
      Random random(seed);
      Checked checked;
      const std::int64_t most = seed % 3 == 0 ? 20 : 300;
      const auto any = [&] {
        const auto which = pick(random, 0, static_cast<std::int64_t>(mixes[m].size()) - 1);
        return region_of(random_box(random, mixes[m][static_cast<std::size_t>(which)]));
      };
      for (int step = 0; step < 1200; ++step) {
        const auto size = static_cast<std::int64_t>(checked.size());
        // Grows and shrinks in turn, through the bounds of the list.
        const bool grow = (step / 400) % 2 == 0;
        if (size == 0 || (size < most && pick(random, 0, 9) < (grow ? 7 : 3))) {
          checked.insert(any());
        } else {
          checked.erase(static_cast<std::size_t>(pick(random, 0, size - 1)));
        }
        if (step % 5 == 0) {
          checked.check(any());
          checked.check_height();
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(RegionIndex, HandlesStayValidAcrossRebuilds) {
  RegionIndex index;
  std::array<int, 400> payloads{};
  std::vector<RegionIndex::Handle> handles;
  std::vector<Tensor> tiles;
  for (std::int64_t i = 0; i < 400; ++i) {
    // Every hundred tiles another layout.
    const std::int64_t width = 32 << (i / 100);
    const Tensor a(kBuffer, 0, DType::int8, std::array<std::int64_t, 2>{200, width});
    tiles.push_back(a.tile({i % 100, 1}, {2, 3}));
    handles.push_back(index.insert(region_of(tiles.back()), &payloads[i]));
  }
  for (std::size_t i = 0; i < 400; ++i) {
    bool found = false;
    index.query(region_of(tiles[i]), [&](void* payload) { found |= payload == &payloads[i]; });
    EXPECT_TRUE(found) << i;
    index.erase(handles[i]);
    found = false;
    index.query(region_of(tiles[i]), [&](void* payload) { found |= payload == &payloads[i]; });
    EXPECT_FALSE(found) << i;
  }
  EXPECT_EQ(index.size(), 0u);
}

TEST(RegionIndex, EmptyQueryVisitsNothing) {
  RegionIndex index;
  const Tensor a(kBuffer, 0, DType::int8, std::array<std::int64_t, 2>{10, 10});
  index.insert(region_of(a), nullptr);
  int visited = 0;
  index.query(region_of(a.slice(0, 5, 5)), [&](void*) { ++visited; });
  EXPECT_EQ(visited, 0);
}

enum class Order { rows, columns, shuffled };

std::vector<Region> tiles_in(Order order, std::int64_t count, const Tensor& matrix) {
  std::vector<Region> tiles;
  const std::int64_t rows = matrix.extent(0) / count;
  const std::int64_t columns = matrix.extent(1) / count;
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t row = order == Order::columns ? j : i;
      const std::int64_t column = order == Order::columns ? i : j;
      tiles.push_back(region_of(matrix.tile({row * rows, column * columns}, {rows, columns})));
    }
  }
  Random random(9);
  if (order == Order::shuffled) std::shuffle(tiles.begin(), tiles.end(), random);
  return tiles;
}

/// Ten thousand tiles of one matrix, live at once.
class TenThousandTiles : public ::testing::TestWithParam<Order> {
 protected:
  struct Cost {
    double mean = 0;
    std::size_t most = 0;
  };
  template <class Queries>
  static Cost cost_of(const RegionIndex& index, const Queries& queries) {
    Cost cost;
    for (const Region& query : queries) {
      const std::size_t looks = index.looks(query);
      cost.mean += static_cast<double>(looks) / static_cast<double>(queries.size());
      cost.most = std::max(cost.most, looks);
    }
    return cost;
  }
};

TEST_P(TenThousandTiles, AreFoundAloneByFewLooks) {
  const Tensor matrix(kBuffer, 0, DType::float32, std::array<std::int64_t, 2>{6400, 6400});
  const std::vector<Region> tiles = tiles_in(GetParam(), 100, matrix);
  RegionIndex index;
  std::vector<RegionIndex::Handle> handles;
  for (const Region& tile : tiles)
    handles.push_back(index.insert(tile, nullptr));
  for (const Region& tile : tiles) {
    int visited = 0;
    index.query(tile, [&](void*) { ++visited; });
    ASSERT_EQ(visited, 1);
  }
  const Cost cost = cost_of(index, tiles);
  EXPECT_LT(cost.mean, 4);
  EXPECT_LT(cost.most, 16u);

  // A row of tiles and a column of tiles find theirs and no others.
  for (const Region& query :
       {region_of(matrix.slice(0, 640, 704)), region_of(matrix.slice(1, 640, 704)),
        region_of(matrix.transpose(0, 1).slice(0, 640, 704))}) {
    int visited = 0;
    index.query(query, [&](void*) { ++visited; });
    EXPECT_EQ(visited, 100);
  }

  // Sliding through: the same number lives, the oldest is erased, a new one comes.
  for (std::size_t round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      index.erase(handles[i]);
      handles[i] = index.insert(tiles[i], nullptr);
    }
  }
  const Cost later = cost_of(index, tiles);
  EXPECT_LT(later.mean, 4);
  EXPECT_LT(later.most, 16u);
}

std::string name_of_order(const ::testing::TestParamInfo<Order>& order) {
  constexpr std::array kNames{"Rows", "Columns", "RandomOrder"};
  return kNames[static_cast<std::size_t>(order.param)];
}

INSTANTIATE_TEST_SUITE_P(InsertedIn, TenThousandTiles,
                         ::testing::Values(Order::rows, Order::columns, Order::shuffled),
                         name_of_order);

TEST(RegionIndex, TilesOfFourDimensionsAreFoundAlone) {
  const Tensor a(kBuffer, 0, DType::float32, std::array<std::int64_t, 4>{40, 40, 40, 40});
  RegionIndex index;
  std::vector<Region> tiles;
  for (std::int64_t i = 0; i < 10; ++i) {
    for (std::int64_t j = 0; j < 10; ++j) {
      for (std::int64_t k = 0; k < 10; ++k) {
        for (std::int64_t l = 0; l < 10; ++l) {
          tiles.push_back(region_of(a.tile({4 * i, 4 * j, 4 * k, 4 * l}, {4, 4, 4, 4})));
          index.insert(tiles.back(), nullptr);
        }
      }
    }
  }
  double mean = 0;
  for (const Region& tile : tiles) {
    int visited = 0;
    index.query(tile, [&](void*) { ++visited; });
    ASSERT_EQ(visited, 1);
    mean += static_cast<double>(index.looks(tile)) / static_cast<double>(tiles.size());
  }
  EXPECT_LT(mean, 4);
}

TEST(RegionIndex, TilesOfAMatrixThatBeginsAnywhereAreFoundAlone) {
  for (const std::int64_t offset : {4, 4096, 25600 - 4, 1234567}) {
    for (const Order order : {Order::rows, Order::columns, Order::shuffled}) {
      const Tensor matrix(kBuffer, offset, DType::float32, std::array<std::int64_t, 2>{6400, 6400});
      RegionIndex index;
      const std::vector<Region> tiles = tiles_in(order, 40, matrix);
      for (const Region& tile : tiles)
        index.insert(tile, nullptr);
      double mean = 0;
      std::size_t visited = 0;
      for (const Region& tile : tiles) {
        index.query(tile, [&](void*) { ++visited; });
        mean += static_cast<double>(index.looks(tile)) / static_cast<double>(tiles.size());
      }
      EXPECT_EQ(visited, tiles.size()) << "offset " << offset;
      EXPECT_LT(mean, 12) << "offset " << offset;
    }
  }
}

TEST(RegionIndex, ALayoutThatCameFirstDoesNotSpoilTheOneThatStays) {
  RegionIndex index;
  const Tensor odd(kBuffer, 0, DType::int8, std::array<std::int64_t, 2>{100, 13});
  index.insert(region_of(odd.slice(1, 0, 2)), nullptr);
  const Tensor matrix(kBuffer, 0, DType::float32, std::array<std::int64_t, 2>{6400, 6400});
  const std::vector<Region> tiles = tiles_in(Order::rows, 100, matrix);
  for (const Region& tile : tiles)
    index.insert(tile, nullptr);
  double mean = 0;
  for (const Region& tile : tiles) {
    mean += static_cast<double>(index.looks(tile)) / static_cast<double>(tiles.size());
  }
  EXPECT_LT(mean, 12);
}

Region bytes(std::int64_t begin, std::int64_t length) {
  Region region;
  region.begin = begin;
  region.end = begin + length;
  region.dim_count = 1;
  region.dims[0] = {length, 1};
  return region;
}

Region rows_of_bytes(std::int64_t begin, RegionDim rows, std::int64_t length) {
  Region region;
  region.begin = begin;
  region.end = begin + (rows.extent - 1) * rows.stride + length;
  region.dim_count = 2;
  region.dims[0] = rows;
  region.dims[1] = {length, 1};
  return region;
}

/// A number with any count of digits.
std::int64_t pick_size(Random& random, int bits) {
  return pick(random, 1, std::int64_t{1} << pick(random, 0, bits));
}

TEST(RegionIndex, VisitsAllThatShareAByteWhateverTheirSizes) {
  constexpr std::int64_t kFar = kReachLimit - (std::int64_t{1} << 40);
  for (const std::int64_t origin : {std::int64_t{0}, -kFar, kFar}) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE("origin " + std::to_string(origin) + " seed " + std::to_string(seed));
      Random random(seed);
      Checked checked;
      const auto any = [&] {
        const std::int64_t begin = origin + pick(random, -(1 << 19), 1 << 19);
        if (seed % 2 == 0) return bytes(begin, pick_size(random, 20));
        const std::int64_t rows = pick_size(random, 8) + 1;
        return rows_of_bytes(begin, {rows, 4099}, pick_size(random, 11));
      };
      for (int step = 0; step < 3000; ++step) {
        const auto size = static_cast<std::int64_t>(checked.size());
        const bool grow = (step / 1000) % 2 == 0;
        if (size == 0 || pick(random, 0, 9) < (grow ? 7 : 3)) {
          checked.insert(any());
        } else {
          checked.erase(static_cast<std::size_t>(pick(random, 0, size - 1)));
        }
        if (step % 5 == 0) {
          checked.check(any());
          checked.check_height();
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(RegionIndex, RegionsAtBothEndsOfTheReachAreFound) {
  Checked checked;
  const std::vector<Region> regions{
      bytes(-kReachLimit, 1),
      bytes(kReachLimit - 1, 1),
      bytes(-kReachLimit, 2 * kReachLimit),
      rows_of_bytes(-kReachLimit, {2, 2 * kReachLimit - 3}, 3),
      rows_of_bytes(-kReachLimit, {3, kReachLimit - 1}, 2),
      rows_of_bytes(-1, {2, kReachLimit - 1}, 2),
      bytes(-1, 2),
  };
  for (int round = 0; round < 3; ++round) {
    for (const Region& region : regions) {
      checked.insert(region);
      for (const Region& query : regions)
        checked.check(query);
    }
  }
}

TEST(RegionIndex, LongQueriesAcrossSparseTilesSoonCostLogarithmically) {
  // The diagonal of a matrix, and a row across it: ten thousand cells, one tile.
  constexpr std::int64_t kTiles = 10'000;
  constexpr std::int64_t kSide = 16;
  const Tensor matrix(kBuffer, 0, DType::int8,
                      std::array<std::int64_t, 2>{kTiles * kSide, kTiles * kSide});
  RegionIndex index;
  std::vector<RegionIndex::Handle> handles;
  for (std::int64_t i = 0; i < kTiles; ++i) {
    handles.push_back(
        index.insert(region_of(matrix.tile({i * kSide, i * kSide}, {kSide, kSide})), nullptr));
  }
  std::size_t looks = 0;
  for (std::int64_t i = 0; i < kTiles; ++i) {
    const Region row = region_of(matrix.slice(0, i * kSide, i * kSide + kSide));
    looks += index.looks(row);
    int visited = 0;
    index.query(row, [&](void*) { ++visited; });
    ASSERT_EQ(visited, 1);
    index.erase(index.insert(row, nullptr));
  }
  EXPECT_LT(looks / kTiles, 200u);
  EXPECT_GT(index.height(), 0);

  // What was given up for its waste gets another chance once all of it is gone.
  for (const RegionIndex::Handle handle : handles)
    index.erase(handle);
  EXPECT_EQ(index.size(), 0u);
  for (std::int64_t i = 0; i < 100; ++i)
    index.insert(region_of(matrix.tile({i * kSide, 0}, {kSide, kSide})), nullptr);
  EXPECT_EQ(index.height(), 0);
  EXPECT_LT(index.looks(region_of(matrix.tile({0, 0}, {kSide, kSide}))), 4u);
}

TEST(RegionIndex, RegionsOfMoreSizesThanTheGridHasClassesAreFoundByFewLooks) {
  // Sixty-four kinds of tiles, a hundred and fifty of each, disjoint.
  const Tensor matrix(kBuffer, 0, DType::int8, std::array<std::int64_t, 2>{128 * 100, 128 * 96});
  std::vector<Region> tiles;
  for (std::int64_t i = 0; i < 100; ++i) {
    for (std::int64_t j = 0; j < 96; ++j) {
      tiles.push_back(region_of(matrix.tile(
          {128 * i, 128 * j}, {std::int64_t{1} << (i % 8), std::int64_t{1} << (j % 8)})));
    }
  }
  static_assert(RegionGrid::kMaxClasses < 64);
  RegionIndex index;
  std::vector<RegionIndex::Handle> handles;
  for (const Region& tile : tiles)
    handles.push_back(index.insert(tile, nullptr));
  EXPECT_GT(index.height(), 0);
  std::size_t looks = 0;
  for (int round = 0; round < 3; ++round) {
    looks = 0;
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      int visited = 0;
      index.query(tiles[i], [&](void*) { ++visited; });
      ASSERT_EQ(visited, 1);
      looks += index.looks(tiles[i]);
      index.erase(handles[i]);
      handles[i] = index.insert(tiles[i], nullptr);
    }
  }
  EXPECT_LT(looks / tiles.size(), 200u);
}

TEST(Divisor, DividesExactlyAndNeverFalls) {
  Random random(5);
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  const auto any = [&](int bits) {
    return pick(random, 0, 1) == 0 ? pick_size(random, bits) : -pick_size(random, bits);
  };
  for (int i = 0; i < 200'000; ++i) {
    const std::int64_t by = std::min(std::abs(any(62)), kMost);
    const Divisor divisor(by);
    const std::int64_t multiple = (kMost / by - pick(random, 0, kMost / by)) * by;
    for (const std::int64_t a : {any(62), multiple, multiple - 1, -multiple, -multiple - 1}) {
      if (a > kMost || a < -kMost) continue;
      std::int64_t quotient = a / by;
      if (quotient * by > a) --quotient;
      ASSERT_EQ(divisor.floor(a), quotient) << a << " / " << by;
      ASSERT_LE(divisor.about(a - 1), divisor.about(a)) << a << " / " << by;
    }
  }
}

}  // namespace
}  // namespace strata::graph
