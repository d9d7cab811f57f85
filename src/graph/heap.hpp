// Heap: memory for runtime-allocated tensors. Any-order, constant time, coalescing at once.
//
// A two-level segregated fit allocator (M. Masmano, I. Ripoll, A. Crespo, J. Real, "TLSF: a new
// dynamic memory allocator for real-time systems", ECRTS 2004) over one range of addresses. Its
// book-keeping lives outside the range, so it serves memory that this process must not touch (a
// device's, another process's slab) as well.
//
// Thread safety: none; its owner locks.
//
// Invariants
//   (1) Live blocks never overlap, lie inside [0, capacity) and are aligned to kAlignment.
//   (2) No two neighbouring blocks are both free.
//   (3) With no live block, one block of the full capacity can be allocated.
//   (4) used() is the sum of the live blocks' sizes.
//   (5) free costs O(1), whatever the number of blocks, and so does an allocate that finds a block
//       in a size class above its own or first in its own. (The growth of the book-keeping to its
//       highest number of blocks is amortised.)
//   (6) allocate(n) fails only if no free block is large enough.
//
// What (6) costs. Blocks of one size class differ in size by up to 1/32 (not at all below 4 KiB),
// so when all larger classes are empty a request may have to look through its own class: linear in
// the free blocks of that one class, up to capacity / n of them. This happens only when the heap is
// about as full as the request can bear. A look that fails is remembered: the same request, made
// again while it must fail, costs O(1), until a free block comes that would have been enough.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace strata::graph {

class Heap {
 public:
  static constexpr std::uint64_t kAlignment = 64;

  /// A block of the heap. Owned by whoever got it until free().
  struct Block {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;   ///< Rounded up to kAlignment.
    std::uint32_t handle = 0;  ///< For free().
  };

  /// Manages [0, capacity), with the capacity rounded down to kAlignment.
  explicit Heap(std::uint64_t capacity);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// A block of at least `bytes`, or nothing if no free block is large enough or `bytes` is 0.
  /// `owner` is the caller's tag, handed back by walk() and holes_if(). If the book-keeping can't
  /// grow it throws std::bad_alloc, and nothing has changed.
  [[nodiscard]] std::optional<Block> allocate(std::uint64_t bytes, void* owner);

  /// Gives back a live block of this heap. Ends the process if it is not one: the blocks of others
  /// would be at risk.
  void free(const Block& block) noexcept;

  [[nodiscard]] std::uint64_t capacity() const noexcept;
  [[nodiscard]] std::uint64_t used() const noexcept;
  /// The largest request that allocate() would serve. Linear in the free blocks of the highest size
  /// class that has any: one block or a few, as a rule.
  [[nodiscard]] std::uint64_t largest_free() const noexcept;
  /// Up to the next multiple of kAlignment, or the highest there is.
  [[nodiscard]] static std::uint64_t round_up(std::uint64_t bytes) noexcept;

  /// Largest hole there would be if every live block for which `releasable(owner)` is true were
  /// free, and the sum of all holes then. Linear in the number of blocks.
  struct Holes {
    std::uint64_t largest = 0;
    std::uint64_t total = 0;
  };
  template <class Releasable>
  [[nodiscard]] Holes holes_if(Releasable&& releasable) const {
    Holes holes;
    std::uint64_t run = 0;
    walk([&](const Walked& b) {
      if (b.free || releasable(b.owner)) {
        run += b.bytes;
        holes.total += b.bytes;
        if (run > holes.largest) holes.largest = run;
      } else {
        run = 0;
      }
    });
    return holes;
  }

  /// One block as seen by a walk in address order.
  struct Walked {
    std::uint64_t offset;
    std::uint64_t bytes;
    bool free;
    void* owner;
  };
  template <class Visit>
  void walk(Visit&& visit) const {
    for (std::uint32_t i = first_block(); i != kNone; i = next_block(i))
      visit(walked(i));
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  [[nodiscard]] std::uint32_t first_block() const noexcept;
  [[nodiscard]] std::uint32_t next_block(std::uint32_t handle) const noexcept;
  [[nodiscard]] Walked walked(std::uint32_t handle) const noexcept;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::graph
