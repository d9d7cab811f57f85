// RegionIndex: finds, among the live regions of one buffer, those that may overlap a given one.
//
// Regions are boxes in the coordinates of the buffer's layout: the chain of strides of the deepest
// layout seen so far (each stride divides the one before; the last is one byte). A region that is no
// box of that layout is held by its bounding box in it. The boxes hang in a balanced binary tree of
// bounding boxes (a dynamic AABB tree, after the one used for broad-phase collision tests), so a
// query costs O(log n + hits) for disjoint tiles. Few regions (up to kLinearLimit) are a plain list.
//
// Thread safety: none; the dependency tracker's lock guards it.
//
// Invariants
//   (1) query(r) visits every inserted region that shares a byte with r (it may visit others).
//   (2) A handle stays valid until erase(); no other call invalidates it.
//   (3) Tree height is O(log n) whatever the order of insertions and erasures.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

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

  /// Adds a region (not empty) with the caller's payload. May re-build the index when the region
  /// brings a deeper layout; at most kMaxRegionDims times in a buffer's life.
  Handle insert(const Region& region, void* payload);
  void erase(Handle handle);
  [[nodiscard]] std::size_t size() const noexcept;

  /// Calls visit(payload) for each region whose box meets that of `region`. `visit` must not change
  /// the index.
  template <class Visit>
  void query(const Region& region, Visit&& visit) const {
    using V = std::remove_reference_t<Visit>;
    query_erased(region, [](void* closure, void* payload) { (*static_cast<V*>(closure))(payload); },
                 const_cast<void*>(static_cast<const void*>(&visit)));
  }

 private:
  void query_erased(const Region& region, void (*visit)(void* closure, void* payload),
                    void* closure) const;
  struct Impl;
  Impl* impl_;
};

}  // namespace strata::graph
