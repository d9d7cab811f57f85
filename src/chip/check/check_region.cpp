#include "chip/check/check_region.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>

#include "base/access_name.hpp"

namespace strata::chip {
namespace {

std::string index_text(std::span<const std::int64_t> index) {
  return fmt::format("[{}]", fmt::join(index, ", "));
}

std::string bytes_text(std::uint64_t bytes) {
  return bytes == 1 ? "1 byte" : fmt::format("{} bytes", bytes);
}

std::string behind_text(std::uint64_t bytes) { return bytes == 0 ? "right" : bytes_text(bytes); }

}  // namespace

CheckedRegion::CheckedRegion(const detail::TensorRecord& record)
    : run_bytes_(size_of(record.dtype)),
      tensor_rank_(record.rank),
      dtype_(record.dtype),
      access_(record.access),
      buffer_(record.buffer) {
  const auto size = static_cast<std::int64_t>(size_of(record.dtype));
  auto begin = reinterpret_cast<std::uintptr_t>(record.data);
  bool empty = record.data == nullptr;
  for (int i = 0; i < tensor_rank_; ++i) {
    const std::int64_t extent = record.dims[i];
    const std::int64_t stride = record.dims[record.rank + i] * size;
    extents_[static_cast<std::size_t>(i)] = extent;
    empty = empty || extent == 0;
    if (extent <= 1 || stride == 0) continue;
    // From the other end, every stride is positive.
    if (stride < 0) {
      begin -= static_cast<std::uintptr_t>(-stride) * static_cast<std::uintptr_t>(extent - 1);
      backwards_[static_cast<std::size_t>(i)] = true;
    }
    elements_[static_cast<std::size_t>(sorted_rank_++)] = {
        .extent = static_cast<std::uint64_t>(extent),
        .stride = static_cast<std::uint64_t>(std::abs(stride)),
        .original = i};
  }
  begin_ = end_ = begin;
  if (empty) return;
  sort_dimensions();
  merge_dimensions();
}

/// Outermost first, with what lies inside each.
void CheckedRegion::sort_dimensions() {
  const auto begin = elements_.begin();
  std::stable_sort(begin, begin + sorted_rank_,
                   [](const Dimension& a, const Dimension& b) { return a.stride > b.stride; });
  std::uint64_t span = run_bytes_;
  for (int i = sorted_rank_; i-- > 0;) {
    Dimension& dimension = elements_[static_cast<std::size_t>(i)];
    dimension.span = span;
    nested_ = nested_ && dimension.stride >= span;
    span += dimension.stride * (dimension.extent - 1);
  }
  end_ = begin_ + span;
}

/// Dimensions whose steps follow each other without a gap become one, or a part of the run.
void CheckedRegion::merge_dimensions() {
  std::array<Dimension, kMaxRank> inside_first{};
  int count = 0;
  for (int i = sorted_rank_; i-- > 0;) {
    const Dimension& dimension = elements_[static_cast<std::size_t>(i)];
    if (count == 0 && dimension.stride == run_bytes_) {
      run_bytes_ *= dimension.extent;
      continue;
    }
    if (count > 0) {
      Dimension& last = inside_first[static_cast<std::size_t>(count - 1)];
      if (dimension.stride == last.stride * last.extent) {
        last.extent *= dimension.extent;
        continue;
      }
    }
    inside_first[static_cast<std::size_t>(count++)] = dimension;
  }
  rank_ = count;
  std::uint64_t span = run_bytes_;
  std::uint64_t dense = run_bytes_;
  for (int i = 0; i < count; ++i) {
    Dimension dimension = inside_first[static_cast<std::size_t>(i)];
    dimension.span = span;
    dimension.dense = nested_ ? dense : dimension.stride;
    span += dimension.stride * (dimension.extent - 1);
    dense *= dimension.extent;
    runs_[static_cast<std::size_t>(count - 1 - i)] = dimension;
  }
  countable_ = nested_ ? dense : span;
}

std::optional<CheckedRegion::Run> CheckedRegion::run_at(std::uintptr_t address) const noexcept {
  if (!spans(address)) return std::nullopt;
  return search(begin_, 0, 0, address);
}

std::optional<CheckedRegion::Run> CheckedRegion::search(std::uintptr_t base, std::uint64_t index,
                                                        int dimension,
                                                        std::uintptr_t address) const noexcept {
  const std::uint64_t offset = address - base;
  if (dimension == rank_) {
    if (offset >= run_bytes_) return std::nullopt;
    return Run{base, base + run_bytes_, index};
  }
  const Dimension& d = runs_[static_cast<std::size_t>(dimension)];
  // Step i holds the byte only if 0 <= offset - i * stride < span.
  const std::uint64_t last = std::min(offset / d.stride, d.extent - 1);
  const std::uint64_t first = offset < d.span ? 0 : (offset - d.span) / d.stride + 1;
  for (std::uint64_t i = last + 1; i-- > first;) {
    if (const auto run = search(base + i * d.stride, index + i * d.dense, dimension + 1, address)) {
      return run;
    }
  }
  return std::nullopt;
}

std::uint64_t CheckedRegion::element_before(std::uintptr_t address, Index& index) const noexcept {
  std::uint64_t offset = address - begin_;
  for (int i = 0; i < sorted_rank_; ++i) {
    const Dimension& d = elements_[static_cast<std::size_t>(i)];
    const std::uint64_t step = std::min(offset / d.stride, d.extent - 1);
    offset -= step * d.stride;
    const auto original = static_cast<std::size_t>(d.original);
    index[original] = backwards_[original]
                          ? extents_[original] - 1 - static_cast<std::int64_t>(step)
                          : static_cast<std::int64_t>(step);
  }
  return offset;
}

std::uint64_t CheckedRegion::distance(std::uintptr_t address) const noexcept {
  if (address < begin_) return begin_ - address;
  if (address >= end_) return address - end_ + 1;
  Index index{};
  const std::uint64_t offset = element_before(address, index);
  const std::uint64_t size = size_of(dtype_);
  return offset < size ? 0 : offset - size + 1;
}

std::string CheckedRegion::where(std::uintptr_t address, const std::string& name) const {
  const std::string of = name + " " + to_string();
  if (begin_ == end_) return "nowhere near an argument that has elements; the first is " + of;
  if (address < begin_) return bytes_text(begin_ - address) + " before the begin of " + of;
  if (address >= end_) return behind_text(address - end_) + " behind the end of " + of;
  Index index{};
  const std::uint64_t offset = element_before(address, index);
  const std::uint64_t size = size_of(dtype_);
  const std::span<const std::int64_t> all(index.data(), static_cast<std::size_t>(tensor_rank_));
  if (offset < size) return "in element " + index_text(all) + " of " + of;
  const std::string behind = behind_text(offset - size) + " behind the end of ";
  // Rows are those of the last dimension, as long as that is the one that lies together.
  const Dimension& inner = elements_[static_cast<std::size_t>(std::max(sorted_rank_, 1) - 1)];
  if (tensor_rank_ < 2 || inner.stride != size || inner.original != tensor_rank_ - 1) {
    return behind + "element " + index_text(all) + " of " + of + ", in the gap before the next";
  }
  const std::string row =
      tensor_rank_ == 2 ? fmt::format("{}", index[0]) : index_text(all.first(all.size() - 1));
  return behind + "row " + row + " of " + of + ", in the gap between rows";
}

std::string CheckedRegion::to_string() const {
  return fmt::format("'{}{}' ({})", name_of(dtype_),
                     index_text({extents_.data(), static_cast<std::size_t>(tensor_rank_)}),
                     base::name_of(access_));
}

WrittenBytes::WrittenBytes(std::uint64_t bytes)
    : words_(static_cast<Word*>(std::calloc(bytes / kBits + 1, sizeof(Word)))) {
  if (words_ == nullptr) throw std::bad_alloc();
}

void WrittenBytes::add(std::uint64_t first, std::uint64_t count) noexcept {
  while (count > 0) {
    const std::uint64_t bit = first % kBits;
    const std::uint64_t n = std::min(count, kBits - bit);
    const std::uint64_t mask = (n == kBits ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1)
                               << bit;
    // Order is not ours to give: blocks that share a byte order themselves, by waits of the kernel.
    words_.get()[first / kBits].fetch_or(mask, std::memory_order_relaxed);
    first += n;
    count -= n;
  }
}

std::uint64_t WrittenBytes::written(std::uint64_t first, std::uint64_t count) const noexcept {
  std::uint64_t found = 0;
  while (found < count) {
    const std::uint64_t at = first + found;
    const std::uint64_t bit = at % kBits;
    const std::uint64_t n = std::min(count - found, kBits - bit);
    const std::uint64_t word = words_.get()[at / kBits].load(std::memory_order_relaxed) >> bit;
    const auto ones = static_cast<std::uint64_t>(std::countr_one(word));
    if (ones < n) return found + ones;
    found += n;
  }
  return found;
}

}  // namespace strata::chip
