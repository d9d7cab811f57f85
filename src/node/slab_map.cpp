#include "node/slab_map.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "node/slab_store.hpp"
#include "os/deadline.hpp"
#include "os/futex.hpp"
#include "os/memfd.hpp"
#include "os/populate.hpp"
#include "strata/error.hpp"

namespace strata::node {
namespace {

using Generation = std::atomic<std::uint32_t>;

/// How often a task that waits for its slab looks whether it was cancelled.
constexpr std::chrono::milliseconds kLook{10};

}  // namespace

struct SlabMap::Slab {
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;
  os::Mapping mapping;
  /// The generation under which this process has made each page present, 0 for none. Memory that
  /// comes into being where it is used. The main thread's.
  os::Mapping present;
  /// Service thread, release; main thread, acquire.
  std::atomic<bool> forgotten{false};

  [[nodiscard]] std::uint32_t generation(std::uint64_t offset) const noexcept {
    // Acquire: pairs with the release in SlabStore, after which the memory is as it should be.
    return reinterpret_cast<const Generation*>(mapping.data() + bytes)[offset / kSlabPage].load(
        std::memory_order_acquire);
  }
  void make_present(std::uint64_t begin, std::uint64_t end, std::uint32_t generation) noexcept;
};

void SlabMap::Slab::make_present(std::uint64_t begin, std::uint64_t end,
                                 std::uint32_t generation) noexcept {
  auto* const pages = reinterpret_cast<std::uint32_t*>(present.data());
  const std::uint64_t last = (end - 1) / kSlabPage + 1;
  std::uint64_t page = begin / kSlabPage;
  while (page < last && pages[page] == generation)
    ++page;
  if (page == last) return;
  // All from the first that is missing: what is present already costs the kernel next to nothing.
  // If it fails the pages come one by one, as they are used.
  (void)os::populate(mapping.data() + page * kSlabPage, (last - page) * kSlabPage);
  for (; page < last; ++page)
    pages[page] = generation;
}

SlabMap::SlabMap() { publish({}); }
SlabMap::~SlabMap() = default;

void SlabMap::publish(List list) {
  lists_.push_back(std::make_unique<const List>(std::move(list)));
  list_.store(lists_.back().get(), std::memory_order_release);
  wake();
}

void SlabMap::wake() noexcept {
  // Release: a resolve() that sees the change sees the list, or the reason to give up.
  changes_.fetch_add(1, std::memory_order_release);
  os::futex_wake_all(changes_);
}

std::byte* SlabMap::add(std::uint32_t number, std::uint64_t bytes, const os::UniqueFd& memory) {
  const auto same = [&](const auto& slab) { return slab->number == number && slab->mapping; };
  if (std::any_of(slabs_.begin(), slabs_.end(), same)) return nullptr;
  const auto memory_bytes = slab_memory_bytes(bytes);
  if (!memory_bytes) {
    throw InvalidArgument("slab " + std::to_string(number) + ": " + std::to_string(bytes) +
                          " bytes is no size of a slab");
  }
  os::require_sealed(memory.get(), *memory_bytes);
  auto slab = std::make_unique<Slab>();
  slab->number = number;
  slab->bytes = bytes;
  slab->mapping = os::Mapping::shared(memory.get(), *memory_bytes);
  slab->present = os::Mapping::anonymous(bytes / kSlabPage * sizeof(std::uint32_t));
  // The table is the parent's to write. Should this fail it is not protected against stray writes.
  (void)mprotect(slab->mapping.data() + bytes, *memory_bytes - bytes, PROT_READ);
  List list = *lists_.back();
  std::erase_if(list, [&](const Slab* old) { return old->number == number; });
  list.push_back(slab.get());
  slabs_.push_back(std::move(slab));
  std::byte* const data = slabs_.back()->mapping.data();
  publish(std::move(list));
  return data;
}

void SlabMap::forget(std::uint32_t number) {
  for (const auto& slab : slabs_) {
    if (slab->number != number || !slab->mapping) continue;
    // The entry stays in the list: a frame that names it all the same is stale, and does not wait.
    slab->forgotten.store(true, std::memory_order_release);
    slab->mapping = {};
    slab->present = {};
  }
  wake();
}

SlabMap::Slab* SlabMap::find(std::uint32_t number) const noexcept {
  for (Slab* const slab : *list_.load(std::memory_order_acquire)) {
    if (slab->number == number) return slab;
  }
  return nullptr;
}

SlabMap::Resolved SlabMap::resolve(const ipc::TensorFrame& tensor,
                                   const std::function<bool()>& give_up) {
  if (tensor.slab == ipc::kNoSlab) {
    return {tensor.reach_begin == tensor.reach_end ? Outcome::found : Outcome::malformed};
  }
  if (last_ == nullptr || last_->number != tensor.slab) {
    Slab* found = nullptr;
    for (;;) {
      const std::uint32_t before = changes_.load(std::memory_order_acquire);
      found = find(tensor.slab);
      if (found != nullptr) break;
      if (give_up()) return {Outcome::gave_up};
      (void)os::futex_wait_until(changes_, before, os::Deadline::after(kLook).time_point());
    }
    last_ = found;
  }
  Slab& slab = *last_;
  if (slab.forgotten.load(std::memory_order_acquire)) {
    last_ = nullptr;  // The number may be used again.
    return {Outcome::stale};
  }
  if (tensor.reach_end > slab.bytes || tensor.reach_begin > tensor.reach_end ||
      tensor.offset > slab.bytes) {
    return {Outcome::malformed};
  }
  if (tensor.reach_begin != tensor.reach_end) {
    if (tensor.generation == 0 || slab.generation(tensor.reach_begin) != tensor.generation ||
        slab.generation(tensor.reach_end - 1) != tensor.generation) {
      return {Outcome::stale};
    }
    slab.make_present(tensor.reach_begin, tensor.reach_end, tensor.generation);
  }
  return {Outcome::found, slab.mapping.data() + tensor.offset};
}

}  // namespace strata::node
