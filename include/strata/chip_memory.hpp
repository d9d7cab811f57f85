// ChipBuffer: memory of one chip. It stays from run to run, and is not this process's to touch:
// bytes get there and back by copies.
//
//   strata::ChipBuffer weights = worker.allocate_on(worker.chip(0), 1 << 20);
//   weights.copy_from_host(std::as_bytes(std::span(values)));
//   worker.run([&](strata::Orchestration& run) {
//     run.submit(strata::Call(program), in(weights.tensor(strata::DType::float32, {512, 512})),
//     ...,
//                on(worker.chip(0)));
//   });
//
// When the chip's process has died, or was closed, what was in its memory is lost: every later use
// throws ChipError (lost_memory) with the cause. A task that is not for this very chip can't use
// it: submitting one throws ChipError (foreign_memory).
//
// Thread safety: as a value. Copies wait for the tasks that were submitted before and use the same
// bytes; tasks that another thread submits meanwhile are not ordered against them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "strata/dtype.hpp"
#include "strata/ids.hpp"
#include "strata/tensor.hpp"

namespace strata {

namespace node {
struct ChipBufferState;
}  // namespace node

/// Bytes of one chip's memory.
struct ChipMemoryUsage {
  std::size_t total = 0;
  std::size_t used = 0;
  std::size_t peak = 0;  ///< The most that was used at once since the chip's process started.
};

/// Made by Worker::allocate_on. Movable, not copyable.
class ChipBuffer {
 public:
  ChipBuffer() noexcept = default;  ///< No memory.
  ChipBuffer(ChipBuffer&&) noexcept;
  ChipBuffer& operator=(ChipBuffer&&) noexcept;
  ChipBuffer(const ChipBuffer&) = delete;
  ChipBuffer& operator=(const ChipBuffer&) = delete;
  /// As release().
  ~ChipBuffer();

  /// Refuses new tasks from now on, and frees the memory once the last task that uses it has ended.
  /// Returns at once. Nothing happens if it was released before.
  void release() noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] BufferId id() const noexcept;
  [[nodiscard]] LaneId chip() const noexcept;
  /// What was in it is lost: its chip's process is gone.
  [[nodiscard]] bool lost() const noexcept;
  /// A row-major tensor at `byte_offset`. Throws InvalidArgument if it does not fit.
  [[nodiscard]] Tensor tensor(DType dtype, std::span<const std::int64_t> shape,
                              std::size_t byte_offset = 0) const;
  [[nodiscard]] Tensor tensor(DType dtype, std::initializer_list<std::int64_t> shape,
                              std::size_t byte_offset = 0) const {
    return tensor(dtype, std::span(shape.begin(), shape.size()), byte_offset);
  }

  /// Copies to the chip, after the tasks that use those bytes; from then on they are valid,
  /// whatever failed before. Throws ChipError (lost_memory), InvalidArgument if it does not fit,
  /// InvalidState from an orchestration where one more run could not be opened.
  void copy_from_host(std::span<const std::byte> bytes, std::size_t byte_offset = 0);
  /// Copies from the chip, after the tasks that write those bytes. Throws RunFailed, too, if one of
  /// them failed.
  void copy_to_host(std::span<std::byte> bytes, std::size_t byte_offset = 0) const;
  /// The same for elements, const or not: copy_from_host(std::span(vector)).
  template <class T, std::size_t Extent>
  requires(std::is_trivially_copyable_v<T> &&
           !std::is_same_v<std::remove_const_t<T>,
                           std::byte>) void copy_from_host(std::span<T, Extent> values,
                                                           std::size_t byte_offset = 0) {
    copy_from_host(std::span<const std::byte>(std::as_bytes(values)), byte_offset);
  }
  template <class T, std::size_t Extent>
  requires(std::is_trivially_copyable_v<T> && !std::is_const_v<T> &&
           !std::is_same_v<T, std::byte>) void copy_to_host(std::span<T, Extent> values,
                                                            std::size_t byte_offset = 0) const {
    copy_to_host(std::span<std::byte>(std::as_writable_bytes(values)), byte_offset);
  }

 private:
  friend class Worker;
  explicit ChipBuffer(std::shared_ptr<node::ChipBufferState> state) noexcept
      : state_(std::move(state)) {}
  std::shared_ptr<node::ChipBufferState> state_;
};

}  // namespace strata
