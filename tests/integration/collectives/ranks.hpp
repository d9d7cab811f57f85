// Ranks: a Worker with some chips and a domain of them all, and tensors of each rank in any memory
// that a collective may use.
//
// Thread safety: belongs to one thread.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/collectives.hpp"
#include "strata/strata.hpp"
#include "support/node_test.hpp"
#include "unit/comm/elements.hpp"

namespace strata::test {

using Bytes = std::vector<std::byte>;

/// Where a tensor lies.
enum class Place : std::uint8_t { buffer, heap, chip, window };
inline constexpr std::array kPlaces = {Place::buffer, Place::heap, Place::chip, Place::window};

inline constexpr std::uint64_t kWindowElements = 8192;  ///< Of each slice, mostly.

/// "float32 in": the slice of the windows for inputs of a type.
inline std::string slice_name(DType dtype, std::string_view side) {
  return std::string(name_of(dtype)) + " " + std::string(side);
}

inline WorkerOptions chips(std::size_t count, const std::string& platform = "cpu:clusters=1") {
  WorkerOptions options;
  options.chips.assign(count, {.platform = platform});
  return options;
}

/// A tensor that a test fills before a task and looks at after it.
class Array {
 public:
  /// At most window_elements() if it lies in a window; `side` says which slice.
  Array(Worker& worker, const Domain& domain, Place place, std::uint32_t rank, DType dtype,
        std::uint64_t count, std::string_view side, Orchestration& run)
      : domain_(&domain), place_(place), rank_(rank), bytes_(count * size_of(dtype)) {
    const std::array shape = {static_cast<std::int64_t>(count)};
    switch (count == 0 ? Place::buffer : place) {
      case Place::buffer:
        buffer_ = worker.create_buffer(std::max<std::size_t>(bytes_, 1));
        tensor_ = buffer_.tensor(dtype, shape);
        break;
      case Place::heap:
        tensor_ = run.allocate(dtype, shape);
        heap_ = run.keep(tensor_);
        break;
      case Place::chip:
        chip_ = worker.allocate_on(domain.chip(rank), bytes_);
        tensor_ = chip_.tensor(dtype, shape);
        break;
      case Place::window:
        slice_ = slice_name(dtype, side);
        tensor_ = domain.slice(rank, slice_).slice(0, 0, shape[0]);
        break;
    }
    place_ = count == 0 ? Place::buffer : place;
  }

  [[nodiscard]] const Tensor& tensor() const noexcept { return tensor_; }

  /// From within the orchestration, before any task uses it.
  void write(const Bytes& bytes) {
    if (bytes.empty()) return;
    if (std::byte* const data = address(); data != nullptr) {
      std::memcpy(data, bytes.data(), bytes.size());
    } else if (place_ == Place::chip) {
      chip_.copy_from_host(bytes);
    } else {
      const_cast<Domain*>(domain_)->copy_from_host(rank_, slice_, bytes);
    }
  }
  /// After the run.
  [[nodiscard]] Bytes read() const {
    Bytes bytes(bytes_);
    if (bytes.empty()) return bytes;
    if (const std::byte* const data = address(); data != nullptr) {
      std::memcpy(bytes.data(), data, bytes.size());
    } else if (place_ == Place::chip) {
      chip_.copy_to_host(bytes);
    } else {
      domain_->copy_to_host(rank_, slice_, bytes);
    }
    return bytes;
  }

 private:
  [[nodiscard]] std::byte* address() const noexcept {
    return place_ == Place::buffer ? buffer_.data()
           : place_ == Place::heap ? heap_.data()
                                   : nullptr;
  }

  const Domain* domain_;
  Place place_;
  std::uint32_t rank_;
  std::size_t bytes_;
  std::string slice_;
  Buffer buffer_;
  TensorHandle heap_;
  ChipBuffer chip_;
  Tensor tensor_{DType::uint8, {0}};
};

/// How many elements the slice for one side has; 0 if there is none.
inline std::uint64_t window_elements(const Domain& domain, DType dtype, std::string_view side) {
  try {
    return static_cast<std::uint64_t>(domain.slice(0, slice_name(dtype, side)).elements());
  } catch (const InvalidArgument&) {
    return 0;
  }
}

class Ranks {
 public:
  explicit Ranks(std::uint32_t size, std::uint64_t elements = kWindowElements,
                 std::span<const DType> dtypes = comm::kReducible)
      : worker_(chips(size)) {
    worker_.init();
    DomainOptions options{.name = "test"};
    for (std::uint32_t rank = 0; rank < size; ++rank)
      options.chips.push_back(worker_.chip(rank));
    for (const DType dtype : dtypes) {
      for (const char* const side : {"in", "out"})
        options.slices.push_back({slice_name(dtype, side), dtype, elements});
    }
    domain_ = worker_.create_domain(options);
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return domain_.size(); }
  [[nodiscard]] Worker& worker() noexcept { return worker_; }
  [[nodiscard]] Domain& domain() noexcept { return domain_; }

 private:
  Worker worker_;
  Domain domain_;
};

}  // namespace strata::test
