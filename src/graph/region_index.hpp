// RegionIndex: finds, among the live regions of one buffer, those that may overlap a given one.
//
// Regions are boxes in the coordinates of the buffer's layout: a chain of at most three strides,
// each dividing the one before, and single bytes below them; so at most four coordinates, the
// outermost exact, the rest bounded. A region that is no box of that layout is held by its bounding
// box in it. The chain grows with the layouts that come, and is replaced when most regions do not
// fit it.
//
// The boxes are held by a RegionGrid, which finds tiles and blocks of like sizes by a look into a
// hash table; those that it turns down (of one size too many, or too sparse for the queries that
// come) hang in a RegionTree, which finds any in logarithmic time.
//
// Thread safety: none, not even for queries alone (they keep notes); the dependency tracker's lock
// guards it.
//
// Invariants
//   (1) query(r) visits every inserted region that shares a byte with r (it may visit others), and
//       none twice.
//   (2) A handle stays valid until erase(); no other call invalidates it.
//   (3) Whatever the order of insertions, erasures and queries: a query looks at
//       O(log n + regions whose boxes meet) boxes and cells, on average over the calls, where the
//       boxes in the tree do not overlay each other.
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

  /// Adds a region (not empty) with the caller's payload. May re-build the index when the region
  /// brings another layout; that costs O(log n) per insertion on average.
  Handle insert(const Region& region, void* payload);
  /// Requires a handle that insert() returned and that was not erased yet.
  void erase(Handle handle);
  [[nodiscard]] std::size_t size() const noexcept;

  /// Calls visit(payload) for each region whose box meets that of `region`. `visit` must not call
  /// the index.
  template <class Visit>
  void query(const Region& region, Visit&& visit) const {
    using V = std::remove_reference_t<Visit>;
    query_erased(
        region, [](void* closure, void* payload) { (*static_cast<V*>(closure))(payload); },
        const_cast<void*>(static_cast<const void*>(&visit)));
  }

  /// Levels of the tree below its root. For tests.
  [[nodiscard]] int height() const noexcept;
  /// Cells and boxes that query(region) looks at. For tests.
  [[nodiscard]] std::size_t looks(const Region& region) const;

 private:
  void query_erased(const Region& region, void (*visit)(void* closure, void* payload),
                    void* closure) const;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::graph
