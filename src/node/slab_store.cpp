#include "node/slab_store.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "graph/heap.hpp"
#include "os/mapping.hpp"
#include "os/memfd.hpp"
#include "os/populate.hpp"
#include "os/system_error.hpp"
#include "strata/error.hpp"

namespace strata::node {
namespace {

using Generation = std::atomic<std::uint32_t>;
static_assert(sizeof(Generation) == 4 && Generation::is_always_lock_free);

/// A slab that a worker can be made to map, by what it says in a message, is no larger than this.
constexpr std::uint64_t kMaxSlabBytes = std::uint64_t{1} << 46U;

constexpr std::uint64_t round_up_to_page(std::uint64_t bytes) {
  return (bytes + kSlabPage - 1) / kSlabPage * kSlabPage;
}

}  // namespace

std::optional<std::size_t> slab_memory_bytes(std::uint64_t bytes) noexcept {
  if (bytes == 0 || bytes % kSlabPage != 0 || bytes > kMaxSlabBytes) return std::nullopt;
  return bytes + round_up_to_page(bytes / kSlabPage * sizeof(Generation));
}

/// A slab, own or attached. `ready` and the heap are under the store's mutex; the rest never
/// changes.
struct SlabStore::Owned {
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;
  std::byte* data = nullptr;
  os::UniqueFd memory;
  // Own slabs only.
  os::Mapping mapping;
  std::unique_ptr<graph::Heap> heap;
  std::uint32_t last_generation = 0;
  bool ready = false;  ///< `added` has returned.

  [[nodiscard]] Slab message() const noexcept { return {number, bytes, memory.get()}; }
};

/// What locate() reads: the slabs by address. Never changes once it is published.
struct SlabStore::List {
  struct Entry {
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::uint32_t number = 0;
  };
  std::vector<Entry> entries;
};

namespace {

Generation* generations(std::byte* data, std::uint64_t bytes) noexcept {
  return reinterpret_cast<Generation*>(data + bytes);
}

/// Makes all pages present and this process's, zeroed.
void populate(std::byte* data, std::uint64_t bytes) {
  if (os::populate(data, bytes)) return;
  if (errno == EINVAL) return;  // Pages come at their first use.
  // The kernel says EFAULT where a touch would have been SIGBUS: no memory is left for the file.
  if (errno == EFAULT) errno = ENOMEM;
  os::throw_errno("can't get " + std::to_string(bytes) + " bytes of shared memory");
}

void require_possible(std::uint64_t bytes) {
  struct sysinfo system = {};
  if (sysinfo(&system) != 0) return;
  const std::uint64_t all = (std::uint64_t{system.totalram} + system.totalswap) * system.mem_unit;
  if (bytes > all) {
    throw SystemError("can't get " + std::to_string(bytes) +
                          " bytes of shared memory: the machine"
                          " has " +
                          std::to_string(all),
                      ENOMEM);
  }
}

}  // namespace

SlabStore::SlabStore(Options options)
    : options_(std::move(options)), next_number_(options_.first_number) {
  publish();
}

SlabStore::~SlabStore() = default;

void SlabStore::publish() {
  auto list = std::make_unique<List>();
  list->entries.reserve(owned_.size());
  for (const auto& slab : owned_) {
    list->entries.push_back({slab->data, slab->bytes, slab->number});
  }
  std::sort(list->entries.begin(), list->entries.end(),
            [](const auto& a, const auto& b) { return a.data < b.data; });
  lists_.push_back(std::move(list));
  // Release: whoever finds the list finds what is in it.
  list_.store(lists_.back().get(), std::memory_order_release);
}

std::optional<SlabStore::Range> SlabStore::allocate(std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  for (const auto& slab : owned_) {
    if (!slab->heap || !slab->ready) continue;
    const auto block = slab->heap->allocate(bytes, nullptr);
    if (!block) continue;
    used_ += bytes;
    if (++slab->last_generation == 0) ++slab->last_generation;
    return Range{.data = slab->data + block->offset,
                 .bytes = bytes,
                 .slab = slab->number,
                 .generation = slab->last_generation,
                 .offset = block->offset,
                 .handle = block->handle};
  }
  return std::nullopt;
}

std::unique_ptr<SlabStore::Owned> SlabStore::make_slab(std::uint64_t asked, std::uint64_t wanted) {
  auto slab = std::make_unique<Owned>();
  for (slab->bytes = wanted;; slab->bytes = asked) {
    const auto memory_bytes = slab_memory_bytes(slab->bytes);
    try {
      if (!memory_bytes) throw SystemError("too large for a slab", ENOMEM);
      slab->memory = os::make_memfd("strata-slab", *memory_bytes);
      slab->mapping = os::Mapping::shared(slab->memory.get(), *memory_bytes);
      break;
    } catch (const SystemError&) {
      if (slab->bytes <= asked) throw;  // Otherwise perhaps there are addresses for less.
    }
  }
  slab->data = slab->mapping.data();
  slab->heap = std::make_unique<graph::Heap>(slab->bytes);
  return slab;
}

void SlabStore::grow(std::uint64_t bytes) {
  require_possible(bytes);
  std::uint64_t wanted = std::max<std::uint64_t>(bytes, options_.slab_bytes);
  {
    const std::scoped_lock lock(mutex_);
    if (next_number_ - options_.first_number >= options_.numbers) {
      throw InvalidState("this Worker has used up its " + std::to_string(options_.numbers) +
                         " numbers of slabs; create fewer and larger buffers");
    }
    wanted = round_up_to_page(std::max(wanted, own_bytes_ / 2));
  }
  auto made = make_slab(bytes, wanted);
  Owned* const slab = made.get();
  {
    const std::scoped_lock lock(mutex_);
    slab->number = next_number_++;
    own_bytes_ += slab->bytes;
    owned_.push_back(std::move(made));
    publish();
  }
  if (options_.added) options_.added(slab->message());
  const std::scoped_lock lock(mutex_);
  slab->ready = true;
}

SlabStore::Range SlabStore::create(std::size_t bytes, Populate populated) {
  if (bytes == 0) throw InvalidArgument("shared memory of 0 bytes was asked for");
  if (bytes > kMaxSlabBytes) {
    throw SystemError("can't get " + std::to_string(bytes) + " bytes of shared memory", ENOMEM);
  }
  const std::uint64_t rounded = round_up_to_page(bytes);
  auto range = allocate(rounded);
  if (!range) {
    const std::scoped_lock growing(growth_);
    while (!(range = allocate(rounded)))
      grow(rounded);
  }
  try {
    if (populated == Populate::yes) populate(range->data, rounded);
    set_generations(own(range->slab), *range, range->generation);
  } catch (...) {
    release(*range);
    throw;
  }
  range->bytes = bytes;
  return *range;
}

void SlabStore::set_generations(const Owned& slab, const Range& range,
                                std::uint32_t generation) noexcept {
  Generation* const table = generations(slab.data, slab.bytes);
  const std::uint64_t end = (range.offset + round_up_to_page(range.bytes)) / kSlabPage;
  for (std::uint64_t page = range.offset / kSlabPage; page < end; ++page) {
    // Release: a worker that reads the generation may rely on the memory that it stands for.
    table[page].store(generation, std::memory_order_release);
  }
}

const SlabStore::Owned& SlabStore::own(std::uint32_t number) const noexcept {
  const std::scoped_lock lock(mutex_);
  for (const auto& slab : owned_) {
    if (slab->heap && slab->number == number) return *slab;
  }
  std::fprintf(stderr, "strata: a range of slab %u, which this store has not made, is used\n",
               number);
  std::abort();
}

void SlabStore::release(const Range& range) noexcept {
  const Owned& slab = own(range.slab);
  const std::uint64_t rounded = round_up_to_page(range.bytes);
  set_generations(slab, range, 0);
  if (fallocate(slab.memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(range.offset), static_cast<off_t>(rounded)) != 0) {
    std::memset(range.data, 0, rounded);  // It reads as zeros, if it costs memory.
  }
  const std::scoped_lock lock(mutex_);
  slab.heap->free({.offset = range.offset, .bytes = rounded, .handle = range.handle});
  used_ -= rounded;
}

std::optional<SlabStore::Location> SlabStore::locate(const std::byte* address) const noexcept {
  const auto& entries = list_.load(std::memory_order_acquire)->entries;
  auto found = std::upper_bound(entries.begin(), entries.end(), address,
                                [](const std::byte* a, const auto& e) { return a < e.data; });
  if (found == entries.begin()) return std::nullopt;
  --found;
  const auto offset = static_cast<std::uint64_t>(address - found->data);
  if (offset >= found->bytes) return std::nullopt;
  return Location{.slab = found->number,
                  // Relaxed: the caller has the range already.
                  .generation = generations(found->data, found->bytes)[offset / kSlabPage].load(
                      std::memory_order_relaxed),
                  .offset = offset};
}

std::vector<SlabStore::Slab> SlabStore::slabs() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Slab> slabs;
  slabs.reserve(owned_.size());
  for (const auto& slab : owned_)
    slabs.push_back(slab->message());
  return slabs;
}

void SlabStore::attach(std::uint32_t number, std::uint64_t bytes, os::UniqueFd memory,
                       std::byte* data) {
  const std::scoped_lock growing(growth_);
  auto made = std::make_unique<Owned>();
  made->number = number;
  made->bytes = bytes;
  made->data = data;
  made->memory = std::move(memory);
  const Slab message = made->message();
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& slab : owned_) {
      if (slab->number == number) {
        throw InvalidArgument("slab " + std::to_string(number) + " is known already");
      }
    }
    owned_.push_back(std::move(made));
    publish();
  }
  if (options_.added) options_.added(message);
}

void SlabStore::detach(std::uint32_t number) {
  const std::scoped_lock growing(growth_);
  {
    const std::scoped_lock lock(mutex_);
    const auto gone = std::erase_if(
        owned_, [&](const auto& slab) { return !slab->heap && slab->number == number; });
    if (gone == 0) return;
    publish();
  }
  if (options_.dropped) options_.dropped(number);
}

std::uint64_t SlabStore::used() const {
  const std::scoped_lock lock(mutex_);
  return used_;
}

}  // namespace strata::node
