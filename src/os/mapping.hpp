// Mapping: owner of mapped memory, unmapped when the object is gone.
//
// Thread safety: a value; one thread at a time. The memory itself is anybody's.
#pragma once

#include <cstddef>
#include <utility>

namespace strata::os {

class Mapping {
 public:
  /// Whether the pages are made present at once: 0.3-1.6 us a page instead of a fault of 12 us at
  /// each first touch.
  enum class Populate : bool { no, yes };

  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  /// Memory that all who map the file share. The file must have that size: see require_sealed()
  /// for files of others. `offset` is a multiple of the page size. Throws SystemError.
  [[nodiscard]] static Mapping shared(int fd, std::size_t bytes, Populate populate = Populate::no,
                                      std::size_t offset = 0);
  /// The same, for reading only.
  [[nodiscard]] static Mapping shared_read_only(int fd, std::size_t bytes);
  /// Zeroed memory of this process. Throws SystemError.
  [[nodiscard]] static Mapping anonymous(std::size_t bytes, Populate populate = Populate::no);

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  Mapping(std::byte* data, std::size_t size) noexcept : data_(data), size_(size) {}
  static Mapping map(std::size_t bytes, int protection, int flags, int fd, std::size_t offset);

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace strata::os
