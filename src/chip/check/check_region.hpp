// CheckedRegion: the bytes that one tensor argument covers, to the byte, for checking mode.
// WrittenBytes: which bytes of an `out` argument its task has written.
//
// A region is a strided box of elements. Where its dimensions nest (the usual case) its contiguous
// runs do not overlap and are numbered; where they do not (windows that slide over each other), all
// candidates are looked at.
//
// Thread safety: CheckedRegion is constant once made. WrittenBytes may be used by any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "strata/task_context.hpp"

namespace strata::chip {

class CheckedRegion {
 public:
  explicit CheckedRegion(const detail::TensorRecord& record);

  /// A part of the region whose bytes lie one behind the other.
  struct Run {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::uint64_t index = 0;  ///< Of its first byte among those that WrittenBytes counts.
  };
  /// The run that holds the byte at `address`.
  [[nodiscard]] std::optional<Run> run_at(std::uintptr_t address) const noexcept;

  /// First byte and the one behind the last. Equal if there are no elements.
  [[nodiscard]] std::uintptr_t begin() const noexcept { return begin_; }
  [[nodiscard]] std::uintptr_t end() const noexcept { return end_; }
  [[nodiscard]] bool spans(std::uintptr_t address) const noexcept {
    return address >= begin_ && address < end_;
  }
  /// How many bytes WrittenBytes must count.
  [[nodiscard]] std::uint64_t countable() const noexcept { return countable_; }
  [[nodiscard]] Access access() const noexcept { return access_; }
  [[nodiscard]] BufferId buffer() const noexcept { return buffer_; }

  /// How far `address` is from a byte of the region: the one behind it, or the first of all. 0 for
  /// one of its own.
  [[nodiscard]] std::uint64_t distance(std::uintptr_t address) const noexcept;
  /// "12 bytes behind the end of row 3 of NAME 'float32[4, 8]' (in), in the gap between rows"; for
  /// an address of the region "in element [3, 1] of NAME ...".
  [[nodiscard]] std::string where(std::uintptr_t address, const std::string& name) const;
  /// "'float32[4, 8]' (in)"
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const CheckedRegion&, const CheckedRegion&) = default;

 private:
  struct Dimension {
    std::uint64_t extent = 1;
    std::uint64_t stride = 0;  ///< In bytes.
    std::uint64_t span = 0;    ///< Bytes from the first to the last of all dimensions inside it.
    std::uint64_t dense = 0;   ///< Of one step, in the numbering of WrittenBytes.
    int original = -1;         ///< Which dimension of the tensor.
    friend bool operator==(const Dimension&, const Dimension&) = default;
  };
  using Index = std::array<std::int64_t, kMaxRank>;

  void sort_dimensions();
  void merge_dimensions();
  [[nodiscard]] std::optional<Run> search(std::uintptr_t base, std::uint64_t index, int dimension,
                                          std::uintptr_t address) const noexcept;
  /// The last element that begins at or before `address`, which the region spans, and the bytes
  /// from its begin to `address`.
  [[nodiscard]] std::uint64_t element_before(std::uintptr_t address, Index& index) const noexcept;

  std::uintptr_t begin_ = 0;
  std::uintptr_t end_ = 0;
  std::uint64_t run_bytes_ = 0;
  std::uint64_t countable_ = 0;
  bool nested_ = true;
  int rank_ = 0;  ///< Of runs_.
  int tensor_rank_ = 0;
  int sorted_rank_ = 0;
  std::array<Dimension, kMaxRank> runs_{};      ///< Outermost first, merged as far as possible.
  std::array<Dimension, kMaxRank> elements_{};  ///< As given, outermost first.
  std::array<std::int64_t, kMaxRank> extents_{};
  std::array<bool, kMaxRank> backwards_{};
  DType dtype_ = DType::uint8;
  Access access_ = Access::in;
  BufferId buffer_{};
};

class WrittenBytes {
 public:
  explicit WrittenBytes(std::uint64_t bytes);

  void add(std::uint64_t first, std::uint64_t count) noexcept;
  /// How many of `count` bytes from `first` on were written, up to the first that was not.
  [[nodiscard]] std::uint64_t written(std::uint64_t first, std::uint64_t count) const noexcept;

 private:
  static constexpr std::uint64_t kBits = 64;
  using Word = std::atomic<std::uint64_t>;
  struct Free {
    void operator()(Word* words) const noexcept { std::free(words); }
  };
  std::unique_ptr<Word, Free> words_;  ///< Zeroed pages, which take no memory until touched.
};

}  // namespace strata::chip
