// Kernel: what a kernel sees. The one header that a kernel's source includes.
//
//   #include <strata/kernel.hpp>
//
//   STRATA_KERNEL(add) {
//     const auto a = kernel.tensor(0), b = kernel.tensor(1), out = kernel.tensor(2);
//     for (std::int64_t i = 0; i < a.extent(0); ++i)
//       out.at<float>(i) = a.at<float>(i) + b.at<float>(i);
//   }
//
// A kernel runs on one core at a time and to its end. It may throw: its task fails with the text.
// It is linked against nothing of Strata: whatever it needs comes through the Kernel that it is
// given.
//
// Waiting. All waits below sleep after a short spin, give the CPU to another core meanwhile, are
// seen by reports ("core 7 (cluster 2, AIV 0) waits for its flag 3"), and end by throwing when the
// run is cancelled or past its deadline. What one side did before it sets, pushes, arrives or
// notifies happens before what the other does once its wait has returned.
//
// Thread safety: a Kernel belongs to the function it was given to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "strata/dtype.hpp"
#include "strata/task_context.hpp"

namespace strata {

/// What a core is for: matrix products (AIC, "cube") or vectors (AIV).
enum class CoreType : std::uint8_t { aic, aiv };

/// A place within a cluster: its AIC and its AIVs.
enum class ClusterLane : std::uint8_t { aic = 0, aiv0 = 1, aiv1 = 2 };

/// A word in a window that other chips see, for Kernel::notify and wait_until. Zero at first.
struct alignas(8) Signal {
  std::uint32_t value;
  std::uint32_t waiters;  ///< For the runtime.
};

enum class SignalOp : std::uint8_t { set, add };
/// A comparison of one integer with a constant.
enum class Compare : std::uint8_t {
  equal,
  not_equal,
  greater,
  greater_or_equal,
  less,
  less_or_equal
};

/// Pipes of a cluster are numbered from 0; so are the flags of a core.
inline constexpr unsigned kPipesPerCluster = 8;
inline constexpr unsigned kFlagsPerCore = 16;
/// Messages that a pipe holds; a push to a full pipe waits.
inline constexpr unsigned kPipeDepth = 4;

namespace detail {

struct KernelBlock;

/// What the runtime does for a kernel. Part of the binary interface of chip programs.
struct KernelServices {
  void (*set_flag)(const KernelBlock&, ClusterLane to, unsigned flag);
  void (*wait_flag)(const KernelBlock&, unsigned flag);
  void (*push)(const KernelBlock&, unsigned pipe, const void* data, std::size_t bytes);
  void (*pop)(const KernelBlock&, unsigned pipe, void* data, std::size_t bytes);
  void (*barrier)(const KernelBlock&);
  void (*notify)(const KernelBlock&, Signal* signal, SignalOp op, std::uint32_t value);
  void (*wait_signal)(const KernelBlock&, Signal* signal, Compare compare, std::uint32_t value);
  bool (*cancelled)(const KernelBlock&);
  void (*log)(const KernelBlock&, std::string_view text);
  void (*misuse)(const KernelBlock&, std::string_view text);  ///< Does not return: throws.
};

/// One block of a task on one core. Part of the binary interface of chip programs.
struct KernelBlock {
  const KernelServices* services = nullptr;
  ArgumentBlock arguments = {};
  std::uint32_t block = 0;
  std::uint32_t blocks = 1;
  std::uint32_t core = 0;
  std::uint32_t cluster = 0;
  ClusterLane lane = ClusterLane::aic;
  std::uint8_t lanes = 1;  ///< Lanes of the task: 1, or 2 and 3 for a mixed task.
};

}  // namespace detail

/// A tensor argument of a kernel.
class KernelTensor : public TensorView {
 public:
  using TensorView::TensorView;
  /// Element (i, j, ...); T is not checked against dtype() beyond its size.
  template <class T, class... Index>
  [[nodiscard]] T& at(Index... index) const noexcept {
    std::int64_t offset = 0;
    int dim = 0;
    ((offset += static_cast<std::int64_t>(index) * stride(dim++)), ...);
    return data_as<T>()[offset];
  }
  [[nodiscard]] std::int64_t elements() const noexcept {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape())
      count *= extent;
    return count;
  }
};

class Kernel {
 public:
  explicit Kernel(const detail::KernelBlock& block) noexcept : block_(&block) {}

  // --- Arguments, in the order of the submission; tensors and scalars are numbered apart ---

  [[nodiscard]] std::size_t tensor_count() const noexcept { return block_->arguments.tensor_count; }
  [[nodiscard]] KernelTensor tensor(std::size_t i) const {
    if (i >= tensor_count()) misuse("the kernel asks for a tensor argument that it was not given");
    return KernelTensor(block_->arguments.tensors[i]);
  }
  /// Address of element (0, 0, ...) of tensor argument i.
  template <class T>
  [[nodiscard]] T* data(std::size_t i) const {
    return tensor(i).data_as<T>();
  }
  [[nodiscard]] std::size_t scalar_count() const noexcept { return block_->arguments.scalar_count; }
  template <class T>
  [[nodiscard]] T scalar(std::size_t i) const {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>,
                  "a scalar argument is a trivially copyable value of at most eight bytes");
    if (i >= scalar_count()) misuse("the kernel asks for a scalar argument that it was not given");
    T value;
    std::memcpy(&value, &block_->arguments.scalars[i], sizeof(T));
    return value;
  }

  // --- Where it runs ---

  /// Which block of the task this is, from 0, and how many there are.
  [[nodiscard]] std::uint32_t block() const noexcept { return block_->block; }
  [[nodiscard]] std::uint32_t blocks() const noexcept { return block_->blocks; }
  /// The core's number on the chip, its cluster, and its place there.
  [[nodiscard]] std::uint32_t core() const noexcept { return block_->core; }
  [[nodiscard]] std::uint32_t cluster() const noexcept { return block_->cluster; }
  [[nodiscard]] ClusterLane lane() const noexcept { return block_->lane; }
  /// 0 for AIV 0 and for an AIC, 1 for AIV 1: which half of a mixed task's vector work this is.
  [[nodiscard]] std::uint32_t vector_lane() const noexcept {
    return block_->lane == ClusterLane::aiv1 ? 1U : 0U;
  }

  // --- Between the lanes of one block of a mixed task ---

  /// Raises flag `flag` of another lane by one.
  void set_flag(ClusterLane to, unsigned flag) const {
    block_->services->set_flag(*block_, to, flag);
  }
  /// Waits until this core's flag `flag` is above zero and lowers it by one.
  void wait_flag(unsigned flag) const { block_->services->wait_flag(*block_, flag); }
  /// Sends a copy of `data` through a pipe of the cluster; waits while it is full. One lane pushes
  /// into a pipe and one lane pops from it.
  template <class T, std::size_t Extent>
  void push(unsigned pipe, std::span<T, Extent> data) const {
    block_->services->push(*block_, pipe, data.data(), data.size_bytes());
  }
  /// Takes the next message from the pipe; waits while there is none. It must have the size of
  /// `data`.
  template <class T, std::size_t Extent>
  void pop(unsigned pipe, std::span<T, Extent> data) const {
    block_->services->pop(*block_, pipe, data.data(), data.size_bytes());
  }

  // --- Over all lanes and blocks of a task that was started together ---

  /// Waits until every lane of every block has come here.
  void barrier() const { block_->services->barrier(*block_); }

  // --- Between chips ---

  /// Changes the signal, and wakes who waits for it.
  void notify(Signal& signal, std::uint32_t value, SignalOp op = SignalOp::set) const {
    block_->services->notify(*block_, &signal, op, value);
  }
  void wait_until(Signal& signal, Compare compare, std::uint32_t value) const {
    block_->services->wait_signal(*block_, &signal, compare, value);
  }

  // --- Else ---

  /// True once what the kernel still does is of no use to anyone.
  [[nodiscard]] bool cancelled() const { return block_->services->cancelled(*block_); }
  /// A line in the chip's log, with the kernel's name in front.
  void log(std::string_view text) const { block_->services->log(*block_, text); }

  [[nodiscard]] const detail::KernelBlock& info() const noexcept { return *block_; }

 private:
  [[noreturn]] void misuse(std::string_view text) const {
    block_->services->misuse(*block_, text);
    __builtin_unreachable();
  }
  const detail::KernelBlock* block_;
};

}  // namespace strata

/// Defines a kernel. What follows is its body, with `kernel` as its argument. It may have the name
/// of a function of C ("exit", "read"): its symbol is another, and in C++ it is an overload.
#define STRATA_KERNEL(name) STRATA_DETAIL_KERNEL(name)  // A name that is a macro is replaced first.
#define STRATA_DETAIL_KERNEL(name)                                                          \
  __attribute__((visibility("default"))) void name(const ::strata::Kernel& kernel) __asm__( \
      "strata_entry_kernel_" #name);                                                        \
  void name([[maybe_unused]] const ::strata::Kernel& kernel)
