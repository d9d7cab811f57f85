// An insertion walks down to the sibling that makes the sum of box sizes grow least, measured in
// units of the new box, so that rows and bytes can be compared (the surface-area heuristic of ray
// tracing and collision libraries, with the sum of the sides as the measure). On the way back up,
// each node whose children's heights differ by two gives its taller child's shorter child to the
// lower side, as an AVL rotation does; where both would do, the one that leaves the smaller box. A
// tree of boxes has no order to keep, so no double rotation is needed and the AVL bound holds:
// height <= 1.44 log2(n).
#include "graph/region_tree.hpp"

#include <algorithm>
#include <utility>

namespace strata::graph {

/// Sides of the box in units of `scale`, summed.
double RegionTree::size_of_box(const LayoutBox& box, const Scale& scale) {
  double sum = 0;
  for (std::size_t i = 0; i < scale.levels; ++i) {
    sum += static_cast<double>(box.high[i] - box.low[i]) * scale.per_unit[i];
  }
  return sum;
}

/// The size of both boxes' bounding box.
double RegionTree::size_of_both(const LayoutBox& a, const LayoutBox& b, const Scale& scale) {
  double sum = 0;
  for (std::size_t i = 0; i < scale.levels; ++i) {
    const std::int64_t side = std::max(a.high[i], b.high[i]) - std::min(a.low[i], b.low[i]);
    sum += static_cast<double>(side) * scale.per_unit[i];
  }
  return sum;
}

/// The sides of this box are the units.
RegionTree::Scale RegionTree::scale_of(const LayoutBox& box, std::size_t levels) {
  Scale scale;
  scale.levels = levels;
  for (std::size_t i = 0; i < levels; ++i) {
    scale.per_unit[i] = 1.0 / static_cast<double>(box.high[i] - box.low[i] + 1);
  }
  return scale;
}

RegionTree::Link RegionTree::make_node() {
  if (unused_ == kNone) {
    nodes_.emplace_back();
    return static_cast<Link>(nodes_.size() - 1);
  }
  const Link node = unused_;
  unused_ = nodes_[node].parent;
  nodes_[node] = Node{};
  return node;
}

void RegionTree::free_node(Link node) {
  nodes_[node].parent = unused_;
  unused_ = node;
}

RegionTree::Link RegionTree::best_sibling(const LayoutBox& box, const Scale& scale) const {
  Link at = root_;
  double own = size_of_box(nodes_[at].box, scale);
  while (!nodes_[at].leaf()) {
    // To be a sibling of `at` costs a new node of the grown box. To go down lets this node grow,
    // and costs the same again for a leaf, or the growth of an inner node, below.
    const Node& left = nodes_[nodes_[at].left];
    const Node& right = nodes_[nodes_[at].right];
    const double left_own = left.leaf() ? 0 : size_of_box(left.box, scale);
    const double right_own = right.leaf() ? 0 : size_of_box(right.box, scale);
    const double left_grown = size_of_both(left.box, box, scale);
    const double right_grown = size_of_both(right.box, box, scale);
    const double left_cost = left_grown - left_own;
    const double right_cost = right_grown - right_own;
    if (own < std::min(left_cost, right_cost)) break;
    const bool go_left = left_cost < right_cost;
    at = go_left ? nodes_[at].left : nodes_[at].right;
    own = go_left ? left_own : right_own;
  }
  return at;
}

void RegionTree::replace_child(Link parent, Link before, Link after) {
  nodes_[after].parent = parent;
  if (parent == kNone) {
    root_ = after;
  } else if (nodes_[parent].left == before) {
    nodes_[parent].left = after;
  } else {
    nodes_[parent].right = after;
  }
}

void RegionTree::refit(Link node) {
  Node& n = nodes_[node];
  const Node& left = nodes_[n.left];
  const Node& right = nodes_[n.right];
  n.box = left.box;
  n.box.include(right.box);
  n.height = 1 + std::max(left.height, right.height);
}

void RegionTree::insert(Item item, const LayoutBox& box) {
  const Link leaf = make_node();
  nodes_[leaf].box = box;
  nodes_[leaf].item = item;
  if (leaf_of_.size() <= item) leaf_of_.resize(item + 1, kNone);
  leaf_of_[item] = leaf;
  if (root_ == kNone) {
    root_ = leaf;
    return;
  }
  const Scale scale = scale_of(box, levels_);
  const Link sibling = best_sibling(nodes_[leaf].box, scale);
  const Link parent = make_node();
  replace_child(nodes_[sibling].parent, sibling, parent);
  nodes_[parent].left = sibling;
  nodes_[parent].right = leaf;
  nodes_[sibling].parent = parent;
  nodes_[leaf].parent = parent;
  refit_upwards(parent, scale);
}

void RegionTree::erase(Item item) {
  const Link leaf = leaf_of_[item];
  const Link parent = nodes_[leaf].parent;
  if (parent == kNone) {
    root_ = kNone;
  } else {
    const Link sibling = nodes_[parent].left == leaf ? nodes_[parent].right : nodes_[parent].left;
    const Link above = nodes_[parent].parent;
    replace_child(above, parent, sibling);
    free_node(parent);
    refit_upwards(above, scale_of(nodes_[leaf].box, levels_));
  }
  free_node(leaf);
}

void RegionTree::clear(std::size_t levels) {
  levels_ = levels;
  nodes_.clear();
  unused_ = kNone;
  root_ = kNone;
}

/// Until a node is found whose box and height are as they were: above it nothing changes either.
void RegionTree::refit_upwards(Link node, const Scale& scale) {
  while (node != kNone) {
    const LayoutBox box = nodes_[node].box;
    const std::int32_t height = nodes_[node].height;
    const Link now = balance(node, scale);
    if (now == node && nodes_[now].height == height && nodes_[now].box.same_bounds(box)) return;
    node = nodes_[now].parent;
  }
}

/// Makes the heights of the node's children differ by one at most, and its box right. Returns the
/// node that now stands in its place.
RegionTree::Link RegionTree::balance(Link node, const Scale& scale) {
  refit(node);
  if (nodes_[node].height < 2) return node;
  const Link left = nodes_[node].left;
  const Link right = nodes_[node].right;
  const int lean = nodes_[left].height - nodes_[right].height;
  if (lean >= -1 && lean <= 1) {
    improve(node, scale);
    return node;
  }
  const Link tall = lean > 0 ? left : right;
  const Link low = lean > 0 ? right : left;

  // `tall` takes the node's place and keeps one of its children; the node takes the other.
  Link kept = nodes_[tall].left;
  Link given = nodes_[tall].right;
  const int difference = nodes_[kept].height - nodes_[given].height;
  if (difference < 0 ||
      (difference == 0 && size_of_both(nodes_[low].box, nodes_[kept].box, scale) <
                              size_of_both(nodes_[low].box, nodes_[given].box, scale))) {
    std::swap(kept, given);
  }
  replace_child(nodes_[node].parent, node, tall);
  nodes_[tall].left = node;
  nodes_[tall].right = kept;
  nodes_[node].parent = tall;
  nodes_[node].left = low;
  nodes_[node].right = given;
  nodes_[given].parent = node;
  refit(node);
  refit(tall);
  return tall;
}

/// Exchanges two nodes, neither above the other; boxes above them are not refitted.
void RegionTree::exchange(Link a, Link b) {
  const Link above_a = nodes_[a].parent;
  const Link above_b = nodes_[b].parent;
  (nodes_[above_a].left == a ? nodes_[above_a].left : nodes_[above_a].right) = b;
  (nodes_[above_b].left == b ? nodes_[above_b].left : nodes_[above_b].right) = a;
  nodes_[a].parent = above_b;
  nodes_[b].parent = above_a;
}

/// Exchanges a child and a grandchild if that makes the other child's box smaller and keeps the
/// heights balanced: what the order of insertions spoiled is mended on the way (tree rotations,
/// after Kensler, "Tree Rotations for Improving Bounding Volume Hierarchies", 2008).
void RegionTree::improve(Link node, const Scale& scale) {
  double best = 0;
  Link up = kNone;    // The grandchild that rises, and ...
  Link down = kNone;  // ... the child that sinks to its place.
  for (const bool side : {false, true}) {
    const Link child = side ? nodes_[node].right : nodes_[node].left;
    const Link split = side ? nodes_[node].left : nodes_[node].right;
    if (nodes_[split].leaf()) continue;
    const double own = size_of_box(nodes_[split].box, scale);
    for (const bool which : {false, true}) {
      const Link rises = which ? nodes_[split].right : nodes_[split].left;
      const Link stays = which ? nodes_[split].left : nodes_[split].right;
      const int apart = nodes_[child].height - nodes_[stays].height;
      const int height = 1 + std::max(nodes_[child].height, nodes_[stays].height);
      const int lean = height - nodes_[rises].height;
      if (apart < -1 || apart > 1 || lean < -1 || lean > 1) continue;
      const double gain = own - size_of_both(nodes_[child].box, nodes_[stays].box, scale);
      if (gain > best) {
        best = gain;
        up = rises;
        down = child;
      }
    }
  }
  if (up == kNone) return;
  const Link split = nodes_[up].parent;
  exchange(up, down);
  refit(split);
  refit(node);
}

}  // namespace strata::graph
