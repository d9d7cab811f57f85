// RegionTree: boxes in a balanced binary tree of bounding boxes (a dynamic AABB tree, as used for
// the broad phase of collision tests; heights are kept as in an AVL tree). A query costs O(log n +
// hits) for disjoint boxes of any sizes; an insertion some hundred nanoseconds, so RegionIndex
// keeps here only what its grid can't hold well.
//
// Thread safety: none.
//
// Invariants
//   (1) query(b) visits exactly the boxes that meet b, each once.
//   (2) Height is O(log n) whatever the order of insertions and erasures.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/region_layout.hpp"

namespace strata::graph {

class RegionTree {
 public:
  /// Named by the caller; small numbers, since there is an array of them.
  using Item = std::uint32_t;

  /// Requires that `item` is not in the tree.
  void insert(Item item, const LayoutBox& box);
  /// Requires that `item` is in the tree.
  void erase(Item item);
  /// Forgets all. Boxes that come will use the first `levels` coordinates.
  void clear(std::size_t levels);

  /// Calls visit(item) for each box that meets `box`; returns how many were compared.
  template <class Visit>
  std::size_t query(const LayoutBox& box, Visit&& visit) const {
    std::size_t compared = 0;
    std::array<Link, kMaxDepth> open;
    std::size_t depth = 0;
    if (root_ != kNone) open[depth++] = root_;
    while (depth > 0) {
      const Node& node = nodes_[open[--depth]];
      ++compared;
      if (!node.box.meets(box)) continue;
      if (node.leaf()) {
        visit(node.item);
      } else {
        assert(depth + 2 <= kMaxDepth);
        open[depth++] = node.right;
        open[depth++] = node.left;
      }
    }
    return compared;
  }

  /// Levels below the root.
  [[nodiscard]] int height() const noexcept { return root_ == kNone ? 0 : nodes_[root_].height; }

 private:
  using Link = std::uint32_t;
  static constexpr Link kNone = ~Link{0};
  /// Enough for a depth-first walk over 2^32 nodes at AVL height.
  static constexpr std::size_t kMaxDepth = 64;

  /// A leaf has an item, an inner node two children and the bounding box of both.
  struct Node {
    LayoutBox box;
    Link parent = kNone;  ///< Unused: the next unused node.
    Link left = kNone;    ///< kNone: a leaf.
    Link right = kNone;
    std::int32_t height = 0;
    Item item = 0;
    [[nodiscard]] bool leaf() const { return left == kNone; }
  };

  /// A unit for each coordinate.
  struct Scale {
    std::array<double, LayoutBox::kLevels> per_unit;
    std::size_t levels;  ///< Coordinates in use.
  };
  static Scale scale_of(const LayoutBox& box, std::size_t levels);
  static double size_of_box(const LayoutBox& box, const Scale& scale);
  static double size_of_both(const LayoutBox& a, const LayoutBox& b, const Scale& scale);

  Link make_node();
  void free_node(Link node);
  [[nodiscard]] Link best_sibling(const LayoutBox& box, const Scale& scale) const;
  void refit_upwards(Link node, const Scale& scale);
  Link balance(Link node, const Scale& scale);
  void improve(Link node, const Scale& scale);
  void exchange(Link a, Link b);
  void replace_child(Link parent, Link before, Link after);
  void refit(Link node);

  std::vector<Node> nodes_;
  std::vector<Link> leaf_of_;  ///< By item.
  Link unused_ = kNone;
  Link root_ = kNone;
  std::size_t levels_ = 1;
};

}  // namespace strata::graph
