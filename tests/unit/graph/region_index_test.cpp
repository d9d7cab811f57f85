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
      const std::size_t compared = index.boxes_compared(query);
      cost.mean += static_cast<double>(compared) / static_cast<double>(queries.size());
      cost.most = std::max(cost.most, compared);
    }
    return cost;
  }
};

TEST_P(TenThousandTiles, AreFoundAloneByFewComparisonsInABalancedTree) {
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
  EXPECT_LE(index.height(), 20);
  const Cost cost = cost_of(index, tiles);
  std::printf("height %d, boxes compared: mean %.1f, most %zu\n", index.height(), cost.mean,
              cost.most);
  EXPECT_LT(cost.mean, 60);

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
  std::printf("after 20,000 more: height %d, mean %.1f, most %zu\n", index.height(), later.mean,
              later.most);
  EXPECT_LE(index.height(), 20);
  EXPECT_LT(later.mean, 60);
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
    mean += static_cast<double>(index.boxes_compared(tile)) / static_cast<double>(tiles.size());
  }
  std::printf("4-D: height %d, mean %.1f\n", index.height(), mean);
  EXPECT_LT(mean, 150);
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
        mean += static_cast<double>(index.boxes_compared(tile)) / static_cast<double>(tiles.size());
      }
      EXPECT_EQ(visited, tiles.size()) << "offset " << offset;
      EXPECT_LT(mean, 60) << "offset " << offset;
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
    mean += static_cast<double>(index.boxes_compared(tile)) / static_cast<double>(tiles.size());
  }
  EXPECT_LT(mean, 100);
}

}  // namespace
}  // namespace strata::graph
