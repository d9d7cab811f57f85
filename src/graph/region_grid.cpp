#include "graph/region_grid.hpp"

#include <bit>

namespace strata::graph {

std::uint32_t RegionGrid::key_of(const LayoutBox& box, std::size_t levels) noexcept {
  std::uint32_t key = 0;
  for (std::size_t i = 0; i < levels; ++i) {
    // The last coordinate of each side less the first: 0, 1, 2-3, 4-7, ...
    key = key << 8 | static_cast<std::uint32_t>(
                         std::bit_width(static_cast<std::uint64_t>(box.high[i] - box.low[i])));
  }
  return key;
}

/// The box's class, made if there is none and room for one; or kNoClass.
std::uint32_t RegionGrid::class_of(const LayoutBox& box) {
  const std::uint32_t key = key_of(box, levels_);
  const auto used = static_cast<std::uint32_t>(classes_.size());
  std::uint32_t empty = used;
  for (std::uint32_t c = 0; c < used; ++c) {
    if (classes_[c].key == key) return c;
    if (classes_[c].count == 0) empty = c;
  }
  if (empty == kMaxClasses) return kNoClass;
  if (empty == used) classes_.emplace_back();
  classes_[empty].key = key;
  return empty;
}

/// Cells like `box`, for a class that holds none.
void RegionGrid::set_grid(Class& cls, const LayoutBox& box) const {
  for (std::size_t i = 0; i < levels_; ++i) {
    const std::int64_t side = box.high[i] - box.low[i] + 1;
    cls.side[i] = Divisor(side);
    cls.phase[i] = box.low[i] - cls.side[i].floor(box.low[i]) * side;
    cls.lowest[i] = cls.highest[i] = cls.cell(i, box.low[i]);
    cls.span[i] = 0;
  }
}

/// Puts the item, whose box is known, in its cell and sees to invariant (3).
void RegionGrid::enter(Item item, Class& cls) {
  const LayoutBox& box = boxes_[item];
  Cell cell;
  for (std::size_t i = 0; i < levels_; ++i) {
    cell[i] = cls.cell(i, box.low[i]);
    cls.lowest[i] = std::min(cls.lowest[i], cell[i]);
    cls.highest[i] = std::max(cls.highest[i], cell[i]);
    cls.span[i] = std::max(cls.span[i], cls.cell(i, box.high[i]) - cell[i]);
  }
  Link& link = links_[item];
  link.hash = hash_of(outer_hash(link.in_class, cell), cell[levels_ - 1]);
  Item& bucket = buckets_[link.hash & (buckets_.size() - 1)];
  link.next = std::exchange(bucket, item);
  link.previous = kNone;
  if (link.next != kNone) links_[link.next].previous = item;
}

bool RegionGrid::insert(Item item, const LayoutBox& box) {
  if (boxes_.size() <= item) {
    boxes_.resize(item + std::size_t{1});
    links_.resize(item + std::size_t{1});
  }
  boxes_[item] = box;
  const std::uint32_t in_class = class_of(box);
  links_[item].in_class = in_class;
  if (in_class == kNoClass) return false;
  Class& cls = classes_[in_class];
  ++cls.count;
  if (cls.given_up) return false;
  if (cls.first == kNone) {
    set_grid(cls, box);
    cls.wasted = 0;
  }
  cls.wasted -= std::min(cls.wasted, kWastePerInsertion);
  if (2 * ++held_ > buckets_.size()) grow();
  enter(item, cls);
  links_[item].class_previous = kNone;
  links_[item].class_next = std::exchange(cls.first, item);
  if (links_[item].class_next != kNone) links_[links_[item].class_next].class_previous = item;
  return true;
}

bool RegionGrid::erase(Item item) {
  const Link& link = links_[item];
  if (link.in_class == kNoClass) return false;
  Class& cls = classes_[link.in_class];
  --cls.count;
  if (cls.given_up) {
    cls.given_up = cls.count != 0;
    return false;
  }
  (link.previous == kNone ? buckets_[link.hash & (buckets_.size() - 1)]
                          : links_[link.previous].next) = link.next;
  if (link.next != kNone) links_[link.next].previous = link.previous;
  (link.class_previous == kNone ? cls.first : links_[link.class_previous].class_next) =
      link.class_next;
  if (link.class_next != kNone) links_[link.class_next].class_previous = link.class_previous;
  --held_;
  return true;
}

/// More buckets; each class's grid after its newest box, which may be more like the others than the
/// first one was.
void RegionGrid::grow() {
  buckets_.assign(4 * buckets_.size(), kNone);
  for (Class& cls : classes_) {
    if (cls.first != kNone) set_grid(cls, boxes_[cls.first]);
    for (Item item = cls.first; item != kNone; item = links_[item].class_next)
      enter(item, cls);
  }
}

/// Looks that a query wasted, most of them in this class.
void RegionGrid::charge(std::uint32_t in_class, std::size_t looks) const {
  const Class& cls = classes_[in_class];
  cls.wasted += looks;
  if (cls.wasted > kWastePerBox * cls.count) wasteful_ = in_class;
}

std::vector<RegionGrid::Item> RegionGrid::give_up() {
  Class& cls = classes_[std::exchange(wasteful_, kNoClass)];
  std::vector<Item> given_up;
  for (Item item = cls.first; item != kNone; item = links_[item].class_next)
    given_up.push_back(item);
  for (const Item item : given_up)
    erase(item);
  cls.count = static_cast<std::uint32_t>(given_up.size());
  cls.given_up = cls.count != 0;
  return given_up;
}

void RegionGrid::clear(std::size_t levels) {
  buckets_.assign(kFirstBuckets, kNone);
  classes_.clear();
  wasteful_ = kNoClass;
  held_ = 0;
  levels_ = levels;
}

}  // namespace strata::graph
