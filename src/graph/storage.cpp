#include "graph/storage.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/planted_fault.hpp"
#include "graph/run_state.hpp"

namespace strata::graph {

Storage::Storage(std::size_t capacity, std::byte* memory, std::string setting)
    : heap_(capacity),
      setting_(std::move(setting)),
      callers_memory_(memory != nullptr),
      base_(memory) {}

Storage::~Storage() {
  if (base_ != nullptr && !callers_memory_) ::munmap(base_, heap_.capacity());
}

void Storage::map() {
  // Address space only; pages come when they are touched, since most programs use little of it.
  void* memory = ::mmap(nullptr, heap_.capacity(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error("the engine's heap of " + std::to_string(heap_.capacity()) +
                " bytes can't be mapped: " + std::strerror(errno) + "; set " + setting_ +
                " to less");
  }
  base_ = static_cast<std::byte*>(memory);
}

bool Storage::allocate(BufferRecord& record, std::uint64_t bytes, ScopeState& scope,
                       const std::shared_ptr<RunState>& run) {
  const std::lock_guard lock(mutex_);
  if (base_ == nullptr) map();
  const std::optional<Heap::Block> block = heap_.allocate(bytes, &record);
  if (!block) return false;
  record.block = block;
  record.data = base_ + block->offset;
  record.bytes = static_cast<std::int64_t>(bytes);
  record.scope = &scope;
  record.account = run;
  record.holders.store(1, std::memory_order_relaxed);
  scope.held.push_back(&record);
  scope.bytes += block->bytes;
  const std::uint64_t account =
      run->heap_bytes.fetch_add(block->bytes, std::memory_order_relaxed) + block->bytes;
  run->heap_peak.store(std::max(run->heap_peak.load(std::memory_order_relaxed), account),
                       std::memory_order_relaxed);
  peak_ = std::max(peak_, heap_.used());
  return true;
}

bool Storage::release(BufferRecord& record) noexcept {
  // Acquire and release: all uses of the block happen before it is freed.
  if (record.holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  {
    const std::lock_guard lock(mutex_);
    if (record.scope != nullptr) record.scope->bytes -= record.block->bytes;
    record.account->heap_bytes.fetch_sub(record.block->bytes, std::memory_order_relaxed);
    heap_.free(*record.block);
    record.block.reset();
  }
  BufferRecord* head = dead_.load(std::memory_order_relaxed);
  do {
    record.next_dead = head;
  } while (!dead_.compare_exchange_weak(head, &record, std::memory_order_release,
                                        std::memory_order_relaxed));
  return true;
}

bool Storage::end_scope(ScopeState& scope) noexcept {
  bool freed = false;
  for (BufferRecord* record : scope.held) {
    if (base::planted("scope_end_ignored")) continue;
    {
      const std::lock_guard lock(mutex_);
      scope.bytes -= record->block->bytes;
      record->scope = nullptr;
    }
    freed = release(*record) || freed;
  }
  scope.held.clear();
  return freed;
}

bool Storage::has_room_for(std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  return heap_.largest_free() >= Heap::round_up(bytes);
}

std::uint64_t Storage::used() const {
  const std::lock_guard lock(mutex_);
  return heap_.used();
}

std::uint64_t Storage::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

}  // namespace strata::graph
