// SlabStore: the shared memory of one Worker, as ranges of a few large slabs.
//
// A slab is one memfd, so that ten thousand buffers need a handful of descriptors. Memory is named
// by (slab, offset, generation): that means the same in every process that has mapped the slab. At
// the end of each slab lies a table with the generation of every page; a range's pages carry the
// generation that it was given when it was created and 0 once it is released, so that a worker
// refuses a name that has outlived its memory.
//
// Slab numbers are unique in the whole tree of processes: each store takes them from a range of
// numbers that its process was given. A next-level worker's store also knows the slabs of the
// Worker above (attach), which its own workers use as well.
//
// Thread safety: all members from any thread. locate() takes no lock.
//
// Invariants
//   (1) Live ranges never overlap; each begins at a page and has whole pages.
//   (2) All pages of a live range carry its generation, which no other range of the slab ever had;
//       pages of no range carry 0.
//   (3) A new range reads as zeros, and no page of it costs this process a fault (Populate::yes).
//   (4) A released range holds no memory.
//   (5) `added` has returned for a slab before a range of it is handed out; a slab that slabs()
//       does not list yet will be told of by `added`. Both may tell of the same one.
//   (6) A slab is at least half as large as all before it together, so their number stays small.
//       Own slabs stay until the store is gone: an empty one costs a descriptor and addresses.
//
// Who writes, who reads. The list of slabs is copied and published anew at each change, with
// release; locate() reads it with acquire. Old lists live until the store does, by (6) a few.
// The generation table is written by the store that made the slab, with release, and read by
// workers with acquire.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "os/unique_fd.hpp"

namespace strata::node {

inline constexpr std::size_t kSlabPage = 4096;

/// Size of the whole memory of a slab with `bytes` of data: the data, then the generation table
/// (std::uint32_t per page). Nothing if `bytes` is no size of a slab.
[[nodiscard]] std::optional<std::size_t> slab_memory_bytes(std::uint64_t bytes) noexcept;

class SlabStore {
 public:
  enum class Populate : bool { no, yes };

  /// A slab that workers of this Worker must have mapped.
  struct Slab {
    std::uint32_t slab = 0;
    std::uint64_t bytes = 0;  ///< Of data; the memory itself has slab_memory_bytes(bytes).
    int memory = -1;          ///< Owned by the store.
  };

  struct Options {
    std::uint32_t first_number = 1;    ///< Numbers for slabs that this store makes, from here ...
    std::uint32_t numbers = 1u << 24;  ///< ... and as many.
    std::size_t slab_bytes = std::size_t{64} << 20;  ///< The smallest that it makes.
    /// Told of each new slab, and of each that detach() has removed, by the thread that caused it.
    /// Must not
    /// throw. May call slabs() and locate(), not the others.
    std::function<void(const Slab&)> added = {};
    std::function<void(std::uint32_t slab)> dropped = {};
  };

  /// Memory that create() has handed out, until release().
  struct Range {
    std::byte* data = nullptr;
    std::size_t bytes = 0;  ///< As asked for.
    std::uint32_t slab = 0;
    std::uint32_t generation = 0;
    std::uint64_t offset = 0;
    std::uint32_t handle = 0;  ///< Of the allocator.
  };

  /// How any process names an address.
  struct Location {
    std::uint32_t slab = 0;
    std::uint32_t generation = 0;  ///< 0: no live range there.
    std::uint64_t offset = 0;
  };

  explicit SlabStore(Options options);
  ~SlabStore();
  SlabStore(const SlabStore&) = delete;
  SlabStore& operator=(const SlabStore&) = delete;

  /// Zeroed memory of at least one page. With Populate::no pages come at their first use (for
  /// memory of which most may never be used). Throws SystemError if there is not enough, and
  /// InvalidArgument for 0 bytes.
  [[nodiscard]] Range create(std::size_t bytes, Populate populate = Populate::yes);
  /// Gives a range back. The caller knows that nobody uses it any more.
  void release(const Range& range) noexcept;

  /// Nothing if the address is in none of the slabs, attached ones included. Requires that no slab
  /// which has the address is detached meanwhile.
  [[nodiscard]] std::optional<Location> locate(const std::byte* address) const noexcept;

  /// Slabs that a new worker must be sent, attached ones included.
  [[nodiscard]] std::vector<Slab> slabs() const;

  /// Takes in a slab of the Worker above: `data` is where its data (and behind it the table) is
  /// mapped in this process, and stays mapped until detach(). `added` is called as for own ones.
  void attach(std::uint32_t slab, std::uint64_t bytes, os::UniqueFd memory, std::byte* data);
  /// Forgets such a slab; the mapping is the caller's to remove afterwards.
  void detach(std::uint32_t slab);

  /// Bytes in live ranges of own slabs, in whole pages.
  [[nodiscard]] std::uint64_t used() const;

 private:
  struct Owned;
  struct List;
  [[nodiscard]] std::optional<Range> allocate(std::uint64_t bytes);
  void grow(std::uint64_t bytes);
  [[nodiscard]] static std::unique_ptr<Owned> make_slab(std::uint64_t asked, std::uint64_t wanted);
  [[nodiscard]] const Owned& own(std::uint32_t number) const noexcept;
  static void set_generations(const Owned& slab, const Range& range,
                              std::uint32_t generation) noexcept;
  void publish();

  const Options options_;
  std::mutex growth_;         ///< Held while slabs come and go; taken before mutex_.
  mutable std::mutex mutex_;  ///< Guards what follows, but for `list_`.
  std::vector<std::unique_ptr<Owned>> owned_;       ///< Own and attached.
  std::vector<std::unique_ptr<const List>> lists_;  ///< All that were ever published.
  std::atomic<const List*> list_{nullptr};          ///< The last of them.
  std::uint32_t next_number_ = 0;
  std::uint64_t used_ = 0;
  std::uint64_t own_bytes_ = 0;  ///< Of own slabs.
};

}  // namespace strata::node
