#include "graph/region_index.hpp"

#include <algorithm>
#include <vector>

#include "graph/region_grid.hpp"
#include "graph/region_layout.hpp"
#include "graph/region_tree.hpp"

namespace strata::graph {
namespace {

using Handle = RegionIndex::Handle;

/// The layout is replaced when more regions than this, and than half of all, do not fit it.
constexpr std::size_t kMisfits = 16;
/// Room for the first regions.
constexpr std::size_t kFirstRegions = 16;

/// A region's copy of its used dimensions only: they are a third of it or less.
void copy_region(Region& to, const Region& from) noexcept {
  to.begin = from.begin;
  to.end = from.end;
  to.dim_count = from.dim_count;
  std::copy_n(from.dims.begin(), from.dim_count, to.dims.begin());
}

}  // namespace

struct RegionIndex::Impl {
  RegionLayout layout;
  RegionGrid grid;
  RegionTree tree;              ///< What the grid turned down.
  std::vector<Region> regions;  ///< By handle, ...
  std::vector<void*> payloads;  ///< ... and these as well.
  std::vector<Handle> unused;
  std::size_t misfits =
      0;  ///< Regions inserted since the last re-build that do not fit the layout.
  std::vector<Handle> lost;  ///< By a planted fault.

  /// The region asked for last, and its box: a new region is looked up and then inserted.
  mutable Region last;
  mutable RegionBox last_box;

  [[nodiscard]] std::size_t size() const { return regions.size() - unused.size(); }
  [[nodiscard]] const RegionBox& box_of(const Region& region) const;
  Handle make_handle();
  void add(Handle handle, const LayoutBox& box);
  void rebuild();
  [[nodiscard]] std::vector<Handle> live() const;
  [[nodiscard]] std::int64_t best_origin(const Region& newest) const;
  template <class Visit>
  std::size_t walk(const Region& region, Visit&& visit) const;
};

const RegionBox& RegionIndex::Impl::box_of(const Region& region) const {
  if (last == region) return last_box;
  copy_region(last, region);
  layout.find_box(region, last_box);
  return last_box;
}

Handle RegionIndex::Impl::make_handle() {
  if (unused.empty()) {
    regions.emplace_back();
    payloads.emplace_back();
    return static_cast<Handle>(regions.size() - 1);
  }
  const Handle handle = unused.back();
  unused.pop_back();
  return handle;
}

void RegionIndex::Impl::add(Handle handle, const LayoutBox& box) {
  if (!grid.insert(handle, box)) tree.insert(handle, box);
  if (!grid.wasteful()) [[likely]]
    return;
  for (const Handle given_up : grid.give_up())
    tree.insert(given_up, grid.box(given_up));
}

/// All boxes anew, in the present layout.
void RegionIndex::Impl::rebuild() {
  std::vector<Handle> all = live();
  grid.clear(layout.levels());
  tree.clear(layout.levels());
  misfits = 0;
  last.dim_count = 0;
  if (base::planted("index.rebuild_loses_region") && all.size() > 1) {
    lost.push_back(all.back());
    all.pop_back();
  }
  for (const Handle handle : all)
    add(handle, layout.box_of(regions[handle]).bounds);
}

std::vector<Handle> RegionIndex::Impl::live() const {
  std::vector<bool> is_live(regions.size(), true);
  for (const Handle handle : unused)
    is_live[handle] = false;
  for (const Handle handle : lost)
    is_live[handle] = false;
  std::vector<Handle> found;
  for (Handle handle = 0; handle < regions.size(); ++handle) {
    if (is_live[handle]) found.push_back(handle);
  }
  return found;
}

/// Where rows begin, so that few regions run over the end of one. Most buffers hold one tensor, so
/// byte 0 comes first; then where the lowest region begins; then where the newest one does.
std::int64_t RegionIndex::Impl::best_origin(const Region& newest) const {
  const std::vector<Handle> all = live();
  std::int64_t lowest = newest.begin;
  for (const Handle handle : all)
    lowest = std::min(lowest, regions[handle].begin);
  std::int64_t best = 0;
  std::size_t best_wraps = all.size() + 1;
  for (const std::int64_t origin : {std::int64_t{0}, lowest, newest.begin}) {
    RegionLayout shifted = layout;
    shifted.set_origin(origin);
    std::size_t wraps = 0;
    for (const Handle handle : all)
      wraps += shifted.box_of(regions[handle]).wraps ? 1 : 0;
    if (wraps < best_wraps) {
      best = origin;
      best_wraps = wraps;
    }
  }
  return best;
}

/// Calls visit(handle) for each region whose box meets that of `region`; returns how many cells and
/// boxes were looked at.
template <class Visit>
std::size_t RegionIndex::Impl::walk(const Region& region, Visit&& visit) const {
  if (region.empty()) return 0;
  const LayoutBox& box = box_of(region).bounds;
  return grid.query(box, visit) + tree.query(box, visit);
}

RegionIndex::RegionIndex() : impl_(std::make_unique<Impl>()) {
  impl_->regions.reserve(kFirstRegions);
  impl_->payloads.reserve(kFirstRegions);
}
RegionIndex::~RegionIndex() = default;
RegionIndex::RegionIndex(RegionIndex&&) noexcept = default;
RegionIndex& RegionIndex::operator=(RegionIndex&&) noexcept = default;

RegionIndex::Handle RegionIndex::insert(const Region& region, void* payload) {
  Impl& index = *impl_;
  const Handle handle = index.make_handle();
  copy_region(index.regions[handle], region);
  index.payloads[handle] = payload;

  bool changed = index.layout.extend(region);
  if (!changed && !index.layout.fits(region) && ++index.misfits > index.size() / 2 + kMisfits) {
    index.layout = RegionLayout{};
    changed = index.layout.extend(region);
  }
  if (changed) index.last.dim_count = 0;  // No region is equal.
  const RegionBox& box = index.box_of(region);
  if (changed || (box.wraps && index.layout.may_shift())) [[unlikely]] {
    changed |= index.layout.shift(index.best_origin(region));
  }
  if (changed) [[unlikely]] {
    index.rebuild();
  } else {
    index.add(handle, box.bounds);
  }
  return handle;
}

void RegionIndex::erase(Handle handle) {
  Impl& index = *impl_;
  if (std::erase(index.lost, handle) == 0 && !index.grid.erase(handle)) index.tree.erase(handle);
  index.unused.push_back(handle);
}

std::size_t RegionIndex::size() const noexcept { return impl_->size(); }

int RegionIndex::height() const noexcept { return impl_->tree.height(); }

std::size_t RegionIndex::looks(const Region& region) const {
  return impl_->walk(region, [](Handle) {});
}

void RegionIndex::query_erased(const Region& region, void (*visit)(void* closure, void* payload),
                               void* closure) const {
  const Impl& index = *impl_;
  index.walk(region, [&](Handle handle) { visit(closure, index.payloads[handle]); });
}

}  // namespace strata::graph
