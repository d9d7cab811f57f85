// Heap: memory for runtime-allocated tensors. Any-order, constant time, coalescing at once.
//
// A two-level segregated fit allocator (M. Masmano, I. Ripoll, A. Crespo, J. Real, "TLSF: a new
// dynamic memory allocator for real-time systems", ECRTS 2004) over one range of addresses. Its book
// keeping lives outside the range, so it serves memory that this process must not touch (a device's,
// another process's slab) as well.
//
// Thread safety: none; its owner locks.
//
// Invariants
//   (1) Live blocks never overlap, lie inside [0, capacity) and are aligned to kAlignment.
//   (2) No two neighbouring blocks are both free.
//   (3) With no live block, one block of the full capacity can be allocated.
//   (4) used() is the sum of the live blocks' sizes.
//   (5) allocate and free cost O(1), whatever the number of blocks.
//   (6) allocate(n) succeeds whenever a free block of at least round_up(n) exists whose size class
//       guarantees it, and, failing that, after a look at the one class that may hold a fitting
//       block: it fails only if no free block is large enough.
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
    std::uint64_t bytes = 0;       ///< Rounded up to kAlignment.
    std::uint32_t handle = 0;      ///< For free() and owner().
  };

  explicit Heap(std::uint64_t capacity);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// A block of at least `bytes` (> 0), or nothing if no free block is large enough. `owner` is the
  /// caller's tag, handed back by for_each_block.
  [[nodiscard]] std::optional<Block> allocate(std::uint64_t bytes, void* owner);
  void free(const Block& block) noexcept;

  [[nodiscard]] std::uint64_t capacity() const noexcept;
  [[nodiscard]] std::uint64_t used() const noexcept;
  [[nodiscard]] std::uint64_t largest_free() const noexcept;
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
    for (std::uint32_t i = first_block(); i != kNone; i = next_block(i)) visit(walked(i));
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
