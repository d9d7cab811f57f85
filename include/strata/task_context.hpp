// What a running task sees: its tensors, scalars, place and cancellation token.
//
// Thread safety: belongs to the task that it was given to; valid until the body returns (for an
// external lane: until the completion is reported).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "strata/dtype.hpp"
#include "strata/ids.hpp"
#include "strata/task.hpp"

namespace strata {

namespace detail {
/// A tensor argument as it lies in the task's argument block.
struct TensorRecord {
  std::byte* data;           ///< Address of element (0, 0, ...); null for a buffer without address.
  const std::int64_t* dims;  ///< rank extents, then rank strides in elements.
  BufferId buffer;
  std::int64_t byte_offset;
  DType dtype;
  Access access;
  Tracking tracking;
  std::uint8_t rank;
  std::uint32_t flags;  ///< kDumped; the others are the engine's.
};
inline constexpr std::uint32_t kDumped = 2;  ///< TensorArg::dumped

/// One body's arguments.
struct ArgumentBlock {
  const TensorRecord* tensors = nullptr;
  const std::uint64_t* scalars = nullptr;  ///< Scalar::bits of each.
  std::uint32_t tensor_count = 0;
  std::uint32_t scalar_count = 0;
};
}  // namespace detail

/// A tensor argument of a running task.
class TensorView {
 public:
  explicit TensorView(const detail::TensorRecord& record) noexcept : record_(&record) {}
  [[nodiscard]] std::byte* data() const noexcept { return record_->data; }
  /// Address of element (0, 0, ...). No check of T against dtype() beyond its size is made.
  template <class T>
  [[nodiscard]] T* data_as() const noexcept {
    return reinterpret_cast<T*>(record_->data);
  }
  [[nodiscard]] BufferId buffer() const noexcept { return record_->buffer; }
  [[nodiscard]] std::int64_t byte_offset() const noexcept { return record_->byte_offset; }
  [[nodiscard]] DType dtype() const noexcept { return record_->dtype; }
  [[nodiscard]] Access access() const noexcept { return record_->access; }
  [[nodiscard]] int rank() const noexcept { return record_->rank; }
  [[nodiscard]] std::span<const std::int64_t> shape() const noexcept {
    return {record_->dims, record_->rank};
  }
  /// In elements.
  [[nodiscard]] std::span<const std::int64_t> strides() const noexcept {
    return {record_->dims + record_->rank, record_->rank};
  }
  [[nodiscard]] std::int64_t extent(int dim) const noexcept { return record_->dims[dim]; }
  [[nodiscard]] std::int64_t stride(int dim) const noexcept {
    return record_->dims[record_->rank + dim];
  }

 private:
  const detail::TensorRecord* record_;
};

class TaskContext {
 public:
  /// Where and as what the body runs.
  struct Place {
    TaskId task;
    std::string_view name;
    LaneId lane;
    std::uint32_t member = 0;   ///< Index within the group; 0 for a plain task.
    std::uint32_t members = 1;  ///< Size of the group; 1 for a plain task.
    /// The task asked for this very lane, or is a member of a group: no other lane may run it.
    bool named_lane = false;
  };
  TaskContext(const detail::ArgumentBlock& arguments, const Place& place,
              bool (*is_cancelled)(const void*), const void* token) noexcept
      : arguments_(arguments), place_(place), cancelled_(is_cancelled), token_(token) {}

  [[nodiscard]] std::size_t tensor_count() const noexcept { return arguments_.tensor_count; }
  [[nodiscard]] TensorView tensor(std::size_t i) const noexcept {
    return TensorView(arguments_.tensors[i]);
  }
  /// Address of element (0, 0, ...) of tensor argument i.
  template <class T>
  [[nodiscard]] T* data(std::size_t i) const noexcept {
    return reinterpret_cast<T*>(arguments_.tensors[i].data);
  }
  [[nodiscard]] std::size_t scalar_count() const noexcept { return arguments_.scalar_count; }
  template <class T>
  [[nodiscard]] T scalar(std::size_t i) const noexcept {
    static_assert(sizeof(T) <= 8, "a scalar argument has eight bytes");
    T value;
    std::memcpy(&value, &arguments_.scalars[i], sizeof(T));
    return value;
  }
  [[nodiscard]] TaskId task() const noexcept { return place_.task; }
  [[nodiscard]] std::string_view name() const noexcept { return place_.name; }
  [[nodiscard]] LaneId lane() const noexcept { return place_.lane; }
  [[nodiscard]] std::uint32_t member() const noexcept { return place_.member; }
  [[nodiscard]] std::uint32_t members() const noexcept { return place_.members; }
  /// The task asked for this very lane, or is a member of a group.
  [[nodiscard]] bool named_lane() const noexcept { return place_.named_lane; }
  /// The argument records themselves, for external lanes that send them on.
  [[nodiscard]] const detail::ArgumentBlock& arguments() const noexcept { return arguments_; }
  /// True once the run was cancelled, is past its deadline, or another member of the group failed:
  /// what the task still does is of no use to anyone.
  [[nodiscard]] bool cancelled() const noexcept { return cancelled_(token_); }

 private:
  detail::ArgumentBlock arguments_;
  Place place_;
  bool (*cancelled_)(const void*);
  const void* token_;
};

}  // namespace strata
