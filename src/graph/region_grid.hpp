// RegionGrid: boxes in uniform grids, one for each class of sizes (a hierarchical hash grid).
//
// Boxes whose sides are alike, each within a factor of two, are a class. A class has a grid whose
// cells are as large as one of its boxes and begin where that one begins: the tiles of an array
// then fill one cell each. A box is entered in the cell of its low corner; the cells of all classes
// share one hash table. A query looks, per class, at the cells from its low corner (less the number
// of cells that a box of the class was seen to reach beyond its own) to its high corner: one cell
// for a tile among tiles, however many there are. Where that is more cells than the class has
// boxes, it looks at the boxes.
//
// Two kinds of boxes have no place here, and insert() turns them down: those of one class too many,
// and those of a class in which queries looked at far more than they found (long queries across
// sparse boxes). The caller keeps them in a RegionTree.
//
// Thread safety: none, not even for queries alone (they note what they waste).
//
// Invariants
//   (1) query(b) visits exactly those of the boxes held that meet b, each once.
//   (2) A held box is linked in the bucket of its low corner's cell, and in the list of its class.
//   (3) For each box of a class and each coordinate: its low corner's cell lies in
//       [lowest, highest], and its high corner's cell at most `span` further.
//   (4) If the caller gives up wasteful classes, what queries look at beyond a bound per box found
//       is in proportion to the insertions and the queries.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "graph/region_layout.hpp"

namespace strata::graph {

class RegionGrid {
 public:
  /// Named by the caller; small numbers, since there are arrays of them.
  using Item = std::uint32_t;

  static constexpr std::size_t kMaxClasses = 16;

  RegionGrid() : buckets_(kFirstBuckets, kNone) {}

  /// False if the box has no place here; erase() must be called for it all the same. Requires that
  /// `item` is not in use.
  bool insert(Item item, const LayoutBox& box);
  /// What insert() said, or false if the item was given up since.
  bool erase(Item item);
  /// Forgets all. Boxes that come will use the first `levels` coordinates.
  void clear(std::size_t levels);

  /// Calls visit(item) for each held box that meets `box`; returns how many cells and boxes were
  /// looked at.
  template <class Visit>
  std::size_t query(const LayoutBox& box, Visit&& visit) const {
    std::size_t looked = 0;
    std::size_t hits = 0;
    std::size_t most = 0;
    std::uint32_t worst = 0;
    const auto counted = [&](Item item) {
      ++hits;
      visit(item);
    };
    for (std::uint32_t c = 0; c < classes_.size(); ++c) {
      if (classes_[c].first == kNone) continue;
      const std::size_t here = query_class(c, box, counted);
      looked += here;
      if (here > most) {
        most = here;
        worst = c;
      }
    }
    if (looked > kLooksPerQuery + kLooksPerHit * hits) [[unlikely]]
      charge(worst, looked);
    return looked;
  }

  /// Queries wasted so much in a class that its boxes are better kept elsewhere.
  [[nodiscard]] bool wasteful() const noexcept { return wasteful_ != kNoClass; }
  /// Requires wasteful(). That class is held no longer, until it is empty; returns its items.
  [[nodiscard]] std::vector<Item> give_up();

  [[nodiscard]] const LayoutBox& box(Item item) const noexcept { return boxes_[item]; }

 private:
  static constexpr Item kNone = ~Item{0};
  static constexpr std::uint32_t kNoClass = ~std::uint32_t{0};
  static constexpr std::size_t kFirstBuckets = 64;
  static constexpr std::size_t kLevels = LayoutBox::kLevels;
  /// A query that looks at more than this many for each box found, and this many besides, wastes.
  static constexpr std::size_t kLooksPerHit = 8;
  static constexpr std::size_t kLooksPerQuery = 48;
  /// A class is given up when more looks per box were wasted: moving it costs no more then.
  static constexpr std::size_t kWastePerBox = 64;
  /// What an insertion makes good.
  static constexpr std::size_t kWastePerInsertion = 16;

  using Cell = std::array<std::int64_t, kLevels>;

  struct Class {
    std::uint32_t key = 0;    ///< The sides' sizes, as powers of two.
    std::uint32_t count = 0;  ///< Boxes of this class, held or given up.
    Item first = kNone;       ///< The newest box held.
    bool given_up = false;
    mutable std::size_t wasted = 0;
    std::array<Divisor, kLevels> side;
    Cell phase{};
    Cell span{};
    Cell lowest{};
    Cell highest{};

    [[nodiscard]] std::int64_t cell(std::size_t level, std::int64_t at) const noexcept {
      return side[level].about(at - phase[level]);
    }
  };

  /// An item's places in its bucket and in its class.
  struct Link {
    std::uint32_t hash;
    std::uint32_t in_class;
    Item next;
    Item previous;  ///< kNone: the first of its bucket.
    Item class_next;
    Item class_previous;
  };

  static std::uint32_t key_of(const LayoutBox& box, std::size_t levels) noexcept;
  [[nodiscard]] std::uint32_t class_of(const LayoutBox& box);
  void set_grid(Class& cls, const LayoutBox& box) const;
  void enter(Item item, Class& cls);
  void link(Item item);
  void grow();
  void charge(std::uint32_t in_class, std::size_t looks) const;

  /// Cells that follow each other in the last coordinate in use mostly share a cache line of
  /// buckets. `outer`: hash of the class and the other coordinates.
  static constexpr int kTogetherBits = 4;
  static std::uint32_t hash_of(std::uint64_t outer, std::int64_t last) noexcept {
    std::uint64_t mixed = outer + static_cast<std::uint64_t>(last >> kTogetherBits) * kFactors[3];
    mixed = (mixed ^ (mixed >> 32)) * kFactors[4];
    return static_cast<std::uint32_t>(mixed >> 32) ^
           static_cast<std::uint32_t>(last & ((1 << kTogetherBits) - 1));
  }
  [[nodiscard]] std::uint64_t outer_hash(std::uint32_t in_class, const Cell& cell) const noexcept {
    std::uint64_t hash = in_class * kFactors[5];
    for (std::size_t i = 0; i + 1 < levels_; ++i)
      hash += static_cast<std::uint64_t>(cell[i]) * kFactors[i];
    return hash;
  }
  // Odd, without pattern: fractional parts of the square roots of 2, 3, 5, 7, 11 and 13.
  static constexpr std::array<std::uint64_t, 6> kFactors{0x6a09e667f3bcc909, 0xbb67ae8584caa73b,
                                                         0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                                                         0x510e527fade682d1, 0x9b05688c2b3e6c1f};

  template <class Visit>
  std::size_t query_class(std::uint32_t in_class, const LayoutBox& box, const Visit& visit) const;

  std::vector<LayoutBox> boxes_;  ///< By item, ...
  std::vector<Link> links_;       ///< ... and these as well.
  std::vector<Item> buckets_;     ///< The first of each; a power of two.
  std::vector<Class> classes_;    ///< At most kMaxClasses.
  mutable std::uint32_t wasteful_ = kNoClass;
  std::size_t levels_ = 1;
  std::size_t held_ = 0;
};

// ---- Detail -------------------------------------------------------------------------------------

template <class Visit>
std::size_t RegionGrid::query_class(std::uint32_t in_class, const LayoutBox& box,
                                    const Visit& visit) const {
  const Class& cls = classes_[in_class];
  Cell from;
  Cell to;
  std::uint64_t cells = 1;  // Or one more than the class's boxes, if that is less.
  for (std::size_t i = 0; i < levels_; ++i) {
    from[i] = std::max(cls.cell(i, box.low[i]) - cls.span[i], cls.lowest[i]);
    to[i] = std::min(cls.cell(i, box.high[i]), cls.highest[i]);
    if (from[i] > to[i]) return 1;
    const std::uint64_t most = cls.count + std::uint64_t{1};
    const auto width = static_cast<std::uint64_t>(to[i] - from[i]) + 1;
    cells = std::min(cells * std::min(width, most), most);
  }

  std::size_t looked = 0;
  if (cells > cls.count) {
    for (Item item = cls.first; item != kNone; item = links_[item].class_next) {
      ++looked;
      if (boxes_[item].meets(box)) visit(item);
    }
  } else {
    const std::size_t last = levels_ - 1;
    const std::size_t mask = buckets_.size() - 1;
    Cell at = from;
    for (bool more = true; more;) {
      const std::uint64_t outer = outer_hash(in_class, at);
      for (at[last] = from[last]; at[last] <= to[last]; ++at[last]) {
        const std::uint32_t hash = hash_of(outer, at[last]);
        ++looked;
        for (Item item = buckets_[hash & mask]; item != kNone; item = links_[item].next) {
          if (links_[item].hash != hash || links_[item].in_class != in_class) continue;
          ++looked;
          if (!boxes_[item].meets(box)) continue;
          // Another cell of this query may have the same hash, and would visit it again.
          bool here = true;
          for (std::size_t i = 0; cells > 1 && i < levels_; ++i)
            here &= cls.cell(i, boxes_[item].low[i]) == at[i];
          if (here) visit(item);
        }
      }
      more = false;
      for (std::size_t i = last; i-- > 0;) {
        if (at[i]++ < to[i]) {
          more = true;
          break;
        }
        at[i] = from[i];
      }
    }
  }
  return looked;
}

}  // namespace strata::graph
