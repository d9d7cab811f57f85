// RegionIndex: finds, among the live regions of one buffer, those that may overlap a given one.
//
// Regions are boxes in the coordinates of the buffer's layout: a chain of at most three strides,
// each dividing the one before, and single bytes below them; so at most four coordinates, the
// outermost exact, the rest bounded. A region that is no box of that layout is held by its bounding
// box in it. The chain grows with the layouts that come, and is replaced when most regions do not
// fit it.
//
// The boxes hang in a balanced binary tree of bounding boxes (a dynamic AABB tree, as used for the
// broad phase of collision tests; heights are kept as in an AVL tree), so a query costs
// O(log n + hits) for disjoint tiles. Few regions (up to kLinearLimit) are a plain list.
//
// Thread safety: none; the dependency tracker's lock guards it.
//
// Invariants
//   (1) query(r) visits every inserted region that shares a byte with r (it may visit others).
//   (2) A handle stays valid until erase(); no other call invalidates it.
//   (3) Tree height is O(log n) whatever the order of insertions and erasures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "graph/region.hpp"

namespace strata::graph {

class RegionIndex {
 public:
  using Handle = std::uint32_t;

  RegionIndex();
  ~RegionIndex();
  RegionIndex(RegionIndex&&) noexcept;
  RegionIndex& operator=(RegionIndex&&) noexcept;
  RegionIndex(const RegionIndex&) = delete;
  RegionIndex& operator=(const RegionIndex&) = delete;

  /// More regions than this hang in the tree; no more than half as many are a list again.
  static constexpr std::size_t kLinearLimit = 16;

  /// Adds a region (not empty) with the caller's payload. May re-build the index when the region
  /// brings another layout; that costs O(log n) per insertion on average.
  Handle insert(const Region& region, void* payload);
  /// Requires a handle that insert() returned and that was not erased yet.
  void erase(Handle handle);
  [[nodiscard]] std::size_t size() const noexcept;

  /// Calls visit(payload) for each region whose box meets that of `region`. `visit` must not change
  /// the index.
  template <class Visit>
  void query(const Region& region, Visit&& visit) const {
    using V = std::remove_reference_t<Visit>;
    query_erased(
        region, [](void* closure, void* payload) { (*static_cast<V*>(closure))(payload); },
        const_cast<void*>(static_cast<const void*>(&visit)));
  }

  /// Levels of the tree below its root; 0 while the regions are a list. For tests.
  [[nodiscard]] int height() const noexcept;
  /// Boxes that query(region) would compare. For tests.
  [[nodiscard]] std::size_t boxes_compared(const Region& region) const;

 private:
  void query_erased(const Region& region, void (*visit)(void* closure, void* payload),
                    void* closure) const;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::graph
