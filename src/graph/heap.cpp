#include "graph/heap.hpp"

#include <array>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "base/planted_fault.hpp"

namespace strata::graph {
namespace {

// Size classes. Sizes are counted in units of kAlignment. Row 0 has the sizes below kColumns, one
// class each; every further row covers one power of two, cut into kColumns equal classes. A class
// is named by row * kColumns + column, and a larger size never has a smaller class.
constexpr int kColumnBits = 5;
constexpr std::uint32_t kColumns = 1u << kColumnBits;
constexpr int kUnitBits = 64 - std::countr_zero(Heap::kAlignment);  // The widest size in units.
constexpr std::uint32_t kRows = static_cast<std::uint32_t>(kUnitBits - kColumnBits + 1);

constexpr std::uint32_t class_of(std::uint64_t bytes) noexcept {
  const std::uint64_t units = bytes / Heap::kAlignment;
  if (units < kColumns) return static_cast<std::uint32_t>(units);
  const int shift = static_cast<int>(std::bit_width(units)) - 1 - kColumnBits;
  // units >> shift is kColumns + column, hence "shift" and not "shift + 1" for the row.
  return static_cast<std::uint32_t>(shift) * kColumns + static_cast<std::uint32_t>(units >> shift);
}

static_assert(class_of(31 * 64) == 31 && class_of(32 * 64) == 32 && class_of(64 * 64) == 64);
static_assert(class_of(100 * 64) == class_of(101 * 64) && class_of(101 * 64) < class_of(102 * 64));
static_assert(class_of(~std::uint64_t{0}) == kRows * kColumns - 1);
static_assert(kRows <= 64, "one bit each in Impl::rows");

}  // namespace

// All blocks, free and live, form one list in address order; the free ones of a class form another.
// Records are named by index and never move while their block lives, which makes the index the
// block's handle. Record 0 is the block at offset 0 always: a split keeps the record for its lower
// part and a merge keeps the record of its lower part.
struct Heap::Impl {
  enum class State : std::uint8_t { unused, free, live };

  struct Record {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    void* owner = nullptr;
    std::uint32_t below = kNone;  // Neighbours in address order.
    std::uint32_t above = kNone;
    std::uint32_t previous = kNone;  // Neighbours in the class list, if free.
    std::uint32_t next = kNone;      // The same, or in the list of unused records.
    State state = State::unused;
  };

  struct SizeClass {
    std::uint32_t head = kNone;
    // No block of the class is larger than this. Raised by every block that comes in and made exact
    // by a look through the whole class; not lowered by a block that leaves, save by the last.
    std::uint64_t at_most = 0;
  };

  std::vector<Record> records;
  std::uint32_t unused = kNone;  // First of the unused records.
  std::uint64_t capacity = 0;
  std::uint64_t used = 0;
  std::uint64_t rows = 0;                      // Bit r: columns[r] is not 0.
  std::array<std::uint32_t, kRows> columns{};  // Bit c: class (r, c) has a block.
  std::array<SizeClass, std::size_t{kRows} * kColumns> classes{};

  std::uint32_t new_record() {
    if (unused != kNone) {
      const std::uint32_t index = unused;
      unused = records[index].next;
      return index;
    }
    if (records.size() == kNone) throw std::bad_alloc();  // No handle is left.
    records.emplace_back();
    return static_cast<std::uint32_t>(records.size() - 1);
  }

  void drop_record(std::uint32_t index) noexcept {
    records[index].state = State::unused;
    records[index].next = unused;
    unused = index;
  }

  void insert_free(std::uint32_t index) noexcept {
    Record& record = records[index];
    const std::uint32_t class_index = class_of(record.bytes);
    SizeClass& size_class = classes[class_index];
    record.state = State::free;
    record.previous = kNone;
    record.next = size_class.head;
    if (size_class.head != kNone) records[size_class.head].previous = index;
    size_class.head = index;
    if (record.bytes > size_class.at_most) size_class.at_most = record.bytes;
    columns[class_index / kColumns] |= 1u << (class_index % kColumns);
    rows |= std::uint64_t{1} << (class_index / kColumns);
  }

  void remove_free(std::uint32_t index) noexcept {
    const Record& record = records[index];
    if (record.next != kNone) records[record.next].previous = record.previous;
    if (record.previous != kNone) {
      records[record.previous].next = record.next;
      return;
    }
    const std::uint32_t class_index = class_of(record.bytes);
    SizeClass& size_class = classes[class_index];
    size_class.head = record.next;
    if (size_class.head != kNone) return;
    size_class.at_most = 0;
    std::uint32_t& row = columns[class_index / kColumns];
    row &= ~(1u << (class_index % kColumns));
    if (row == 0) rows &= ~(std::uint64_t{1} << (class_index / kColumns));
  }

  /// First block of the lowest class above `class_index` that has one, or kNone.
  [[nodiscard]] std::uint32_t first_above(std::uint32_t class_index) const noexcept {
    const std::uint32_t from = class_index + 1;
    std::uint32_t row = from / kColumns;
    if (row >= kRows) return kNone;
    std::uint32_t in_row = columns[row] & (~0u << (from % kColumns));
    if (in_row == 0) {
      // Two shifts, since row + 1 may be the width of the type.
      const std::uint64_t higher = rows & (~std::uint64_t{0} << row << 1);
      if (higher == 0) return kNone;
      row = static_cast<std::uint32_t>(std::countr_zero(higher));
      in_row = columns[row];
    }
    return classes[row * kColumns + static_cast<std::uint32_t>(std::countr_zero(in_row))].head;
  }

  /// Looks through a whole class for a block of `bytes`; learns its largest if there is none.
  [[nodiscard]] std::uint32_t search(SizeClass& size_class, std::uint64_t bytes) noexcept {
    std::uint64_t largest = 0;
    for (std::uint32_t i = size_class.head; i != kNone; i = records[i].next) {
      if (records[i].bytes >= bytes) return i;
      if (records[i].bytes > largest) largest = records[i].bytes;
    }
    size_class.at_most = largest;
    return kNone;
  }

  /// A free block of at least `bytes`, or kNone if there is none.
  [[nodiscard]] std::uint32_t find(std::uint64_t bytes) noexcept {
    const std::uint32_t class_index = class_of(bytes);
    SizeClass& own = classes[class_index];
    if (own.at_most < bytes) return first_above(class_index);  // Nothing in the own class fits.
    // The block freed last is first: a size that comes and goes is served from its own hole, and a
    // request at its class's lower bound never needs a look further.
    if (records[own.head].bytes >= bytes) return own.head;
    const std::uint32_t above = first_above(class_index);
    return above != kNone ? above : search(own, bytes);
  }

  /// Makes two neighbours one; neither is in a class list. `upper` ceases to be.
  void merge(std::uint32_t lower, std::uint32_t upper) noexcept {
    records[lower].bytes += records[upper].bytes;
    records[lower].above = records[upper].above;
    if (records[lower].above != kNone) records[records[lower].above].below = lower;
    drop_record(upper);
  }
};

Heap::Heap(std::uint64_t capacity) : impl_(std::make_unique<Impl>()) {
  impl_->capacity = capacity - capacity % kAlignment;
  if (impl_->capacity == 0) return;
  const std::uint32_t whole = impl_->new_record();
  impl_->records[whole].bytes = impl_->capacity;
  impl_->insert_free(whole);
}

Heap::~Heap() = default;

std::optional<Heap::Block> Heap::allocate(std::uint64_t bytes, void* owner) {
  Impl& heap = *impl_;
  // The comparison also takes the sizes that can't be rounded up.
  if (bytes == 0 || bytes > heap.capacity) return std::nullopt;
  bytes = round_up(bytes);
  const std::uint32_t index = heap.find(bytes);
  if (index == kNone) return std::nullopt;
  if (heap.records[index].bytes > bytes) {
    const std::uint32_t rest = heap.new_record();  // May throw; nothing has changed yet.
    Impl::Record& lower = heap.records[index];
    Impl::Record& upper = heap.records[rest];
    heap.remove_free(index);
    std::uint64_t cut = bytes;
    if (base::planted("heap.overlapping_split") && cut > kAlignment) cut -= kAlignment;
    upper.offset = lower.offset + cut;
    upper.bytes = lower.bytes - cut;
    upper.owner = nullptr;
    upper.below = index;
    upper.above = lower.above;
    if (upper.above != kNone) heap.records[upper.above].below = rest;
    lower.above = rest;
    lower.bytes = bytes;
    heap.insert_free(rest);
  } else {
    heap.remove_free(index);
  }
  Impl::Record& record = heap.records[index];
  record.state = Impl::State::live;
  record.owner = owner;
  heap.used += bytes;
  return Block{record.offset, record.bytes, index};
}

void Heap::free(const Block& block) noexcept {
  Impl& heap = *impl_;
  std::uint32_t index = block.handle;
  if (index >= heap.records.size() || heap.records[index].state != Impl::State::live ||
      heap.records[index].offset != block.offset || heap.records[index].bytes != block.bytes) {
    std::fprintf(stderr,
                 "strata: heap: freed a block that is not live: offset %" PRIu64 ", %" PRIu64
                 " bytes, handle %" PRIu32 "\n",
                 block.offset, block.bytes, block.handle);
    std::abort();
  }
  heap.used -= block.bytes;
  heap.records[index].owner = nullptr;
  if (!base::planted("heap.no_coalesce")) {
    const std::uint32_t above = heap.records[index].above;
    if (above != kNone && heap.records[above].state == Impl::State::free) {
      heap.remove_free(above);
      heap.merge(index, above);
    }
    const std::uint32_t below = heap.records[index].below;
    if (below != kNone && heap.records[below].state == Impl::State::free) {
      heap.remove_free(below);
      heap.merge(below, index);
      index = below;
    }
  }
  heap.insert_free(index);
}

std::uint64_t Heap::capacity() const noexcept { return impl_->capacity; }

std::uint64_t Heap::used() const noexcept { return impl_->used; }

std::uint64_t Heap::largest_free() const noexcept {
  const Impl& heap = *impl_;
  if (heap.rows == 0) return 0;
  const auto row = static_cast<std::uint32_t>(std::bit_width(heap.rows) - 1);
  const auto column = static_cast<std::uint32_t>(std::bit_width(heap.columns[row]) - 1);
  const Impl::SizeClass& highest = heap.classes[row * kColumns + column];
  std::uint64_t largest = 0;
  for (std::uint32_t i = highest.head; i != kNone && largest < highest.at_most;
       i = heap.records[i].next) {
    if (heap.records[i].bytes > largest) largest = heap.records[i].bytes;
  }
  return largest;
}

std::uint64_t Heap::round_up(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kHighest = ~(kAlignment - 1);
  return bytes > kHighest ? kHighest : (bytes + kAlignment - 1) & ~(kAlignment - 1);
}

std::uint32_t Heap::first_block() const noexcept { return impl_->records.empty() ? kNone : 0; }

std::uint32_t Heap::next_block(std::uint32_t handle) const noexcept {
  return impl_->records[handle].above;
}

Heap::Walked Heap::walked(std::uint32_t handle) const noexcept {
  const Impl::Record& record = impl_->records[handle];
  return {record.offset, record.bytes, record.state == Impl::State::free, record.owner};
}

}  // namespace strata::graph
