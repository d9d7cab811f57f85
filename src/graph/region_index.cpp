// The tree: leaves are regions (a leaf's node index is its handle), each inner node has two
// children and the bounding box of both.
//
// An insertion walks down to the sibling that makes the sum of box sizes grow least, measured in
// units of the new box, so that rows and bytes can be compared (the surface-area heuristic of ray
// tracing and collision libraries, with the sum of the sides as the measure). On the way back up,
// each node whose children's heights differ by two gives its taller child's shorter child to the
// lower side, as an AVL rotation does; where both would do, the one that leaves the smaller box. A
// tree of boxes has no order to keep, so no double rotation is needed and the AVL bound holds:
// height <= 1.44 log2(n).
#include "graph/region_index.hpp"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "graph/region_layout.hpp"

namespace strata::graph {
namespace {

using Handle = RegionIndex::Handle;
constexpr Handle kNone = ~Handle{0};

struct Node {
  LayoutBox box;
  Handle parent = kNone;  ///< In a list: this leaf's place in it. Unused: the next unused node.
  Handle left = kNone;    ///< kNone: a leaf.
  Handle right = kNone;
  std::int32_t height = 0;
  void* payload = nullptr;
  [[nodiscard]] bool leaf() const { return left == kNone; }
};

/// A unit for each coordinate.
struct Scale {
  std::array<double, LayoutBox::kLevels> per_unit;
  std::size_t levels;  ///< Coordinates in use.
};

/// Sides of the box in units of `scale`, summed.
double size_of_box(const LayoutBox& box, const Scale& scale) {
  double sum = 0;
  for (std::size_t i = 0; i < scale.levels; ++i) {
    sum += static_cast<double>(box.high[i] - box.low[i]) * scale.per_unit[i];
  }
  return sum;
}

/// The size of both boxes' bounding box.
double size_of_both(const LayoutBox& a, const LayoutBox& b, const Scale& scale) {
  double sum = 0;
  for (std::size_t i = 0; i < scale.levels; ++i) {
    const std::int64_t side = std::max(a.high[i], b.high[i]) - std::min(a.low[i], b.low[i]);
    sum += static_cast<double>(side) * scale.per_unit[i];
  }
  return sum;
}

LayoutBox united(const LayoutBox& a, const LayoutBox& b) {
  LayoutBox box = a;
  box.include(b);
  return box;
}

/// The sides of this box are the units.
Scale scale_of(const LayoutBox& box, std::size_t levels) {
  Scale scale;
  scale.levels = levels;
  for (std::size_t i = 0; i < levels; ++i) {
    scale.per_unit[i] = 1.0 / static_cast<double>(box.high[i] - box.low[i] + 1);
  }
  return scale;
}

/// Enough for a depth-first walk over 2^32 nodes at AVL height.
constexpr std::size_t kMaxDepth = 64;

}  // namespace

struct RegionIndex::Impl {
  RegionLayout layout;
  std::vector<Node> nodes;
  std::vector<Region> regions;  ///< Of the leaf with the same index.
  std::vector<Handle> list;     ///< All leaves, while there are few.
  Handle unused = kNone;
  Handle root = kNone;
  bool linear = true;
  std::size_t leaves = 0;
  std::size_t misfits =
      0;  ///< Regions inserted since the last re-build that do not fit the layout.

  Handle make_node();
  void free_node(Handle node);
  void add(Handle leaf);
  void remove(Handle leaf);
  void hang(Handle leaf);
  void unhang(Handle leaf);
  [[nodiscard]] Handle best_sibling(const LayoutBox& box, const Scale& scale) const;
  void refit_upwards(Handle node, const Scale& scale);
  Handle balance(Handle node, const Scale& scale);
  void improve(Handle node, const Scale& scale);
  void exchange(Handle a, Handle b);
  void replace_child(Handle parent, Handle before, Handle after);
  void refit(Handle node);
  [[nodiscard]] std::vector<Handle> all_leaves() const;
  void free_inner_nodes();
  void rebuild();
  [[nodiscard]] std::int64_t best_origin(const Region& newest) const;
  template <class Leaf>
  std::size_t walk(const LayoutBox& box, Leaf&& at_leaf) const;
};

Handle RegionIndex::Impl::make_node() {
  if (unused == kNone) {
    nodes.emplace_back();
    return static_cast<Handle>(nodes.size() - 1);
  }
  const Handle node = unused;
  unused = nodes[node].parent;
  nodes[node] = Node{};
  return node;
}

void RegionIndex::Impl::free_node(Handle node) {
  nodes[node].parent = unused;
  nodes[node].payload = nullptr;
  nodes[node].height = -1;
  unused = node;
}

/// Puts a leaf, its box known, where leaves are now.
void RegionIndex::Impl::add(Handle leaf) {
  if (linear) {
    nodes[leaf].parent = static_cast<Handle>(list.size());
    list.push_back(leaf);
  } else {
    hang(leaf);
  }
}

void RegionIndex::Impl::remove(Handle leaf) {
  if (linear) {
    const Handle place = nodes[leaf].parent;
    list[place] = list.back();
    nodes[list[place]].parent = place;
    list.pop_back();
  } else {
    unhang(leaf);
  }
}

Handle RegionIndex::Impl::best_sibling(const LayoutBox& box, const Scale& scale) const {
  Handle at = root;
  double own = size_of_box(nodes[at].box, scale);
  while (!nodes[at].leaf()) {
    // To be a sibling of `at` costs a new node of the grown box. To go down lets this node grow,
    // and costs the same again for a leaf, or the growth of an inner node, below.
    const Node& left = nodes[nodes[at].left];
    const Node& right = nodes[nodes[at].right];
    const double left_own = left.leaf() ? 0 : size_of_box(left.box, scale);
    const double right_own = right.leaf() ? 0 : size_of_box(right.box, scale);
    const double left_grown = size_of_both(left.box, box, scale);
    const double right_grown = size_of_both(right.box, box, scale);
    const double left_cost = left_grown - left_own;
    const double right_cost = right_grown - right_own;
    if (own < std::min(left_cost, right_cost)) break;
    const bool go_left = left_cost < right_cost;
    at = go_left ? nodes[at].left : nodes[at].right;
    own = go_left ? left_own : right_own;
  }
  return at;
}

void RegionIndex::Impl::replace_child(Handle parent, Handle before, Handle after) {
  nodes[after].parent = parent;
  if (parent == kNone) {
    root = after;
  } else if (nodes[parent].left == before) {
    nodes[parent].left = after;
  } else {
    nodes[parent].right = after;
  }
}

void RegionIndex::Impl::refit(Handle node) {
  Node& n = nodes[node];
  const Node& left = nodes[n.left];
  const Node& right = nodes[n.right];
  n.box = united(left.box, right.box);
  n.height = 1 + std::max(left.height, right.height);
}

void RegionIndex::Impl::hang(Handle leaf) {
  if (root == kNone) {
    root = leaf;
    nodes[leaf].parent = kNone;
    return;
  }
  const Scale scale = scale_of(nodes[leaf].box, layout.levels());
  const Handle sibling = best_sibling(nodes[leaf].box, scale);
  const Handle parent = make_node();
  replace_child(nodes[sibling].parent, sibling, parent);
  nodes[parent].left = sibling;
  nodes[parent].right = leaf;
  nodes[sibling].parent = parent;
  nodes[leaf].parent = parent;
  refit_upwards(parent, scale);
}

void RegionIndex::Impl::unhang(Handle leaf) {
  if (leaf == root) {
    root = kNone;
    return;
  }
  const Handle parent = nodes[leaf].parent;
  const Handle sibling = nodes[parent].left == leaf ? nodes[parent].right : nodes[parent].left;
  const Handle above = nodes[parent].parent;
  replace_child(above, parent, sibling);
  free_node(parent);
  refit_upwards(above, scale_of(nodes[leaf].box, layout.levels()));
}

/// Until a node is found whose box and height are as they were: above it nothing changes either.
void RegionIndex::Impl::refit_upwards(Handle node, const Scale& scale) {
  while (node != kNone) {
    const LayoutBox box = nodes[node].box;
    const std::int32_t height = nodes[node].height;
    const Handle now = balance(node, scale);
    if (now == node && nodes[now].height == height && nodes[now].box.same_bounds(box)) return;
    node = nodes[now].parent;
  }
}

/// Makes the heights of the node's children differ by one at most, and its box right. Returns the
/// node that now stands in its place.
Handle RegionIndex::Impl::balance(Handle node, const Scale& scale) {
  refit(node);
  if (nodes[node].height < 2) return node;
  const Handle left = nodes[node].left;
  const Handle right = nodes[node].right;
  const int lean = nodes[left].height - nodes[right].height;
  if (lean >= -1 && lean <= 1) {
    improve(node, scale);
    return node;
  }
  const Handle tall = lean > 0 ? left : right;
  const Handle low = lean > 0 ? right : left;

  // `tall` takes the node's place and keeps one of its children; the node takes the other.
  Handle kept = nodes[tall].left;
  Handle given = nodes[tall].right;
  const int difference = nodes[kept].height - nodes[given].height;
  if (difference < 0 ||
      (difference == 0 && size_of_both(nodes[low].box, nodes[kept].box, scale) <
                              size_of_both(nodes[low].box, nodes[given].box, scale))) {
    std::swap(kept, given);
  }
  replace_child(nodes[node].parent, node, tall);
  nodes[tall].left = node;
  nodes[tall].right = kept;
  nodes[node].parent = tall;
  nodes[node].left = low;
  nodes[node].right = given;
  nodes[given].parent = node;
  refit(node);
  refit(tall);
  return tall;
}

/// Exchanges two nodes, neither above the other; boxes above them are not refitted.
void RegionIndex::Impl::exchange(Handle a, Handle b) {
  const Handle above_a = nodes[a].parent;
  const Handle above_b = nodes[b].parent;
  (nodes[above_a].left == a ? nodes[above_a].left : nodes[above_a].right) = b;
  (nodes[above_b].left == b ? nodes[above_b].left : nodes[above_b].right) = a;
  nodes[a].parent = above_b;
  nodes[b].parent = above_a;
}

/// Exchanges a child and a grandchild if that makes the other child's box smaller and keeps the
/// heights balanced: what the order of insertions spoiled is mended on the way (tree rotations,
/// after Kensler, "Tree Rotations for Improving Bounding Volume Hierarchies", 2008).
void RegionIndex::Impl::improve(Handle node, const Scale& scale) {
  double best = 0;
  Handle up = kNone;    // The grandchild that rises, and ...
  Handle down = kNone;  // ... the child that sinks to its place.
  for (const bool side : {false, true}) {
    const Handle child = side ? nodes[node].right : nodes[node].left;
    const Handle split = side ? nodes[node].left : nodes[node].right;
    if (nodes[split].leaf()) continue;
    const double own = size_of_box(nodes[split].box, scale);
    for (const bool which : {false, true}) {
      const Handle rises = which ? nodes[split].right : nodes[split].left;
      const Handle stays = which ? nodes[split].left : nodes[split].right;
      const int apart = nodes[child].height - nodes[stays].height;
      const int height = 1 + std::max(nodes[child].height, nodes[stays].height);
      const int lean = height - nodes[rises].height;
      if (apart < -1 || apart > 1 || lean < -1 || lean > 1) continue;
      const double gain = own - size_of_both(nodes[child].box, nodes[stays].box, scale);
      if (gain > best) {
        best = gain;
        up = rises;
        down = child;
      }
    }
  }
  if (up == kNone) return;
  const Handle split = nodes[up].parent;
  exchange(up, down);
  refit(split);
  refit(node);
}

std::vector<Handle> RegionIndex::Impl::all_leaves() const {
  if (linear) return list;
  std::vector<Handle> found;
  found.reserve(leaves);
  std::vector<Handle> open;
  if (root != kNone) open.push_back(root);
  while (!open.empty()) {
    const Node& node = nodes[open.back()];
    if (node.leaf()) {
      found.push_back(open.back());
      open.pop_back();
    } else {
      open.back() = node.left;
      open.push_back(node.right);
    }
  }
  return found;
}

void RegionIndex::Impl::free_inner_nodes() {
  std::vector<Handle> open;
  if (root != kNone) open.push_back(root);
  while (!open.empty()) {
    const Handle node = open.back();
    open.pop_back();
    if (nodes[node].leaf()) continue;
    open.push_back(nodes[node].left);
    open.push_back(nodes[node].right);
    free_node(node);
  }
  root = kNone;
}

/// All boxes anew, in the present layout, as a list or a tree as their number demands.
void RegionIndex::Impl::rebuild() {
  std::vector<Handle> all = all_leaves();
  if (!linear) free_inner_nodes();
  list.clear();
  linear = all.size() <= kLinearLimit;
  misfits = 0;
  if (base::planted("index.rebuild_loses_region") && !linear) all.pop_back();
  for (const Handle leaf : all) {
    nodes[leaf].box = layout.box_of(regions[leaf]);
    add(leaf);
  }
}

/// Where rows begin, so that few regions run over the end of one. Most buffers hold one tensor, so
/// byte 0 comes first; then where the lowest region begins; then where the newest one does.
std::int64_t RegionIndex::Impl::best_origin(const Region& newest) const {
  const std::vector<Handle> all = all_leaves();
  std::int64_t lowest = newest.begin;
  for (const Handle leaf : all)
    lowest = std::min(lowest, regions[leaf].begin);
  std::int64_t best = 0;
  std::size_t best_wraps = all.size() + 2;
  for (const std::int64_t origin : {std::int64_t{0}, lowest, newest.begin}) {
    RegionLayout shifted = layout;
    shifted.set_origin(origin);
    std::size_t wraps = shifted.box_of(newest).wraps ? 1 : 0;
    for (const Handle leaf : all)
      wraps += shifted.box_of(regions[leaf]).wraps ? 1 : 0;
    if (wraps < best_wraps) {
      best = origin;
      best_wraps = wraps;
    }
  }
  return best;
}

/// Calls at_leaf(handle) for each leaf whose box meets `box`; returns how many boxes were compared.
template <class Leaf>
std::size_t RegionIndex::Impl::walk(const LayoutBox& box, Leaf&& at_leaf) const {
  std::size_t compared = 0;
  if (linear) {
    for (const Handle leaf : list) {
      ++compared;
      if (nodes[leaf].box.meets(box)) at_leaf(leaf);
    }
    return compared;
  }
  std::array<Handle, kMaxDepth> open;
  std::size_t depth = 0;
  if (root != kNone) open[depth++] = root;
  while (depth > 0) {
    const Handle at = open[--depth];
    const Node& node = nodes[at];
    ++compared;
    if (!node.box.meets(box)) continue;
    if (node.leaf()) {
      at_leaf(at);
    } else {
      assert(depth + 2 <= kMaxDepth);
      open[depth++] = node.right;
      open[depth++] = node.left;
    }
  }
  return compared;
}

RegionIndex::RegionIndex() : impl_(std::make_unique<Impl>()) {}
RegionIndex::~RegionIndex() = default;
RegionIndex::RegionIndex(RegionIndex&&) noexcept = default;
RegionIndex& RegionIndex::operator=(RegionIndex&&) noexcept = default;

RegionIndex::Handle RegionIndex::insert(const Region& region, void* payload) {
  Impl& index = *impl_;
  const Handle leaf = index.make_node();
  if (index.regions.size() <= leaf) index.regions.resize(leaf + 1);
  index.regions[leaf] = region;
  index.nodes[leaf].payload = payload;
  ++index.leaves;

  bool changed = index.layout.extend(region);
  if (!changed && !index.layout.fits(region) && ++index.misfits > index.leaves / 2 + kLinearLimit) {
    index.layout = RegionLayout{};
    changed = index.layout.extend(region);
  }
  const bool grown = index.linear && index.leaves > kLinearLimit;
  LayoutBox box = index.layout.box_of(region);
  if (changed || grown || (box.wraps && index.layout.may_shift())) {
    changed |= index.layout.shift(index.best_origin(region));
    box = index.layout.box_of(region);
  }
  index.nodes[leaf].box = box;
  index.add(leaf);
  if (changed || grown) index.rebuild();
  return leaf;
}

void RegionIndex::erase(Handle handle) {
  Impl& index = *impl_;
  if (base::planted("index.rebuild_loses_region")) {
    const std::vector<Handle> all = index.all_leaves();
    if (std::find(all.begin(), all.end(), handle) == all.end()) {
      --index.leaves;
      return;  // Lost before; its node stays lost.
    }
  }
  index.remove(handle);
  index.free_node(handle);
  --index.leaves;
  if (!index.linear && index.leaves <= kLinearLimit / 2) index.rebuild();
}

std::size_t RegionIndex::size() const noexcept { return impl_->leaves; }

int RegionIndex::height() const noexcept {
  return impl_->root == kNone ? 0 : impl_->nodes[impl_->root].height;
}

std::size_t RegionIndex::boxes_compared(const Region& region) const {
  if (region.empty()) return 0;
  return impl_->walk(impl_->layout.box_of(region), [](Handle) {});
}

void RegionIndex::query_erased(const Region& region, void (*visit)(void* closure, void* payload),
                               void* closure) const {
  if (region.empty()) return;
  const Impl& index = *impl_;
  index.walk(index.layout.box_of(region),
             [&](Handle leaf) { visit(closure, index.nodes[leaf].payload); });
}

}  // namespace strata::graph
