// Chip orchestrations: what submits the kernels of a chip program. The one header that an
// orchestration's source includes.
//
//   #include <strata/chip.hpp>
//   using namespace strata;
//
//   STRATA_CHIP_ORCHESTRATION(sum_of_three) {
//     Tensor partial(DType::float32, chip.tensor(0).shape());
//     chip.submit(chip.aiv("add"), in(chip.tensor(0)), in(chip.tensor(1)), out(partial));
//     chip.submit(chip.aiv("add"), in(partial), in(chip.tensor(2)), out(chip.tensor(3)));
//   }
//
// Tensors, their views, access modes, scalars and explicit edges are those of every orchestration
// (strata/tensor.hpp, strata/task.hpp): dependencies are found from the tensors.
//
// An orchestration that submits nothing has succeeded. What it throws ends the run.
//
// Thread safety: belongs to the orchestration function that it was given to, used by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "strata/chip_error.hpp"
#include "strata/kernel.hpp"
#include "strata/log_level.hpp"
#include "strata/orchestration.hpp"

namespace strata {

namespace chip {
struct KernelSet;
class OrchestrationState;
}  // namespace chip

/// Names a kernel of the program by its function id.
struct KernelId {
  static constexpr std::uint16_t kNone = 0xffff;
  std::uint16_t value = kNone;
  friend constexpr auto operator<=>(KernelId, KernelId) = default;
};

/// What a task runs on the chip: which kernels, on which lanes, how many blocks. Made by
/// ChipOrchestration::aic(), aiv() and mixed(); the body of a task.
class Launch {
 public:
  /// As many blocks; there may be more than cores. Every block is one call of each kernel.
  [[nodiscard]] Launch blocks(std::uint32_t count) const noexcept {
    Launch copy = *this;
    copy.blocks_ = count;
    return copy;
  }
  /// All blocks start at the same time, each on a core of its own: needed for Kernel::barrier over
  /// more than one block. A count that the chip has no room for is refused.
  [[nodiscard]] Launch together() const noexcept {
    Launch copy = *this;
    copy.flags_ |= kTogether;
    return copy;
  }
  /// As dumped() of every argument of the task.
  [[nodiscard]] Launch dumped() const noexcept {
    Launch copy = *this;
    copy.flags_ |= kDumped;
    return copy;
  }

  // --- For the runtime ---
  static constexpr std::uint8_t kTogether = 1;
  static constexpr std::uint8_t kPredicated = 2;  ///< The last tensor argument is the condition.
  static constexpr std::uint8_t kDumped = 4;
  /// Kernels by ClusterLane; KernelId::kNone where the lane is not used.
  [[nodiscard]] std::span<const std::uint16_t, 3> kernels() const noexcept { return kernels_; }
  [[nodiscard]] std::uint32_t block_count() const noexcept { return blocks_; }
  [[nodiscard]] bool starts_together() const noexcept { return (flags_ & kTogether) != 0; }
  [[nodiscard]] bool predicated() const noexcept { return (flags_ & kPredicated) != 0; }
  [[nodiscard]] bool all_dumped() const noexcept { return (flags_ & kDumped) != 0; }
  [[nodiscard]] Compare compare() const noexcept { return compare_; }
  [[nodiscard]] std::int64_t operand() const noexcept { return operand_; }
  [[nodiscard]] const chip::KernelSet* set() const noexcept { return set_; }
  [[nodiscard]] Launch only_if(Compare compare, std::int64_t operand) const noexcept {
    Launch copy = *this;
    copy.flags_ |= kPredicated;
    copy.compare_ = compare;
    copy.operand_ = operand;
    return copy;
  }
  /// Which outputs (bit i: tensor argument i; the first 32) were given an initial value: in
  /// checking mode the kernel may read those before it has written them.
  [[nodiscard]] std::uint32_t initial_values() const noexcept { return initial_values_; }
  [[nodiscard]] Launch with_initial_values(std::uint32_t arguments) const noexcept {
    Launch copy = *this;
    copy.initial_values_ = arguments;
    return copy;
  }
  Launch(const chip::KernelSet& set, std::array<std::uint16_t, 3> kernels) noexcept
      : set_(&set), kernels_{kernels[0], kernels[1], kernels[2]} {}
  /// Throws InvalidState: only the lanes of a chip can run it.
  void operator()(TaskContext& context) const;

 private:
  const chip::KernelSet* set_;
  std::uint16_t kernels_[3];
  Compare compare_ = Compare::equal;
  std::uint8_t flags_ = 0;
  std::uint32_t blocks_ = 1;
  std::uint32_t initial_values_ = 0;
  std::int64_t operand_ = 0;
};
static_assert(sizeof(Launch) <= Body::kInlineBytes);

namespace detail {
/// The launch as a task's body, made where the runtime knows it again: a program may be built so
/// that it keeps its symbols to itself.
[[nodiscard]] Body body_of(const Launch& launch);
[[nodiscard]] inline Body body_of(std::nullptr_t) { return {}; }
}  // namespace detail

/// The task runs only if element (0, 0, ...) of `tensor`, an integer, compares so with `operand`
/// when all that the task waits for has ended; otherwise it is done without running. Goes behind
/// the tensor arguments; the kernel does not see it.
struct When : TensorArg {
  Compare compare = Compare::equal;
  std::int64_t operand = 0;
};
[[nodiscard]] inline When when(const Tensor& tensor, Compare compare,
                               std::int64_t operand) noexcept {
  return {TensorArg{.tensor = &tensor}, compare, operand};
}

/// One tensor of ChipOrchestration::allocate.
struct NewTensor {
  DType dtype = DType::uint8;
  std::vector<std::int64_t> shape = {};
  const void* fill = nullptr;  ///< One element's bytes, or null.
};
struct Allocation {
  TaskId task;  ///< For after().
  std::vector<Tensor> tensors;
};

/// What a recorded sub-graph is called with.
class GraphArguments {
 public:
  [[nodiscard]] std::size_t tensor_count() const noexcept { return tensors_.size(); }
  [[nodiscard]] const Tensor& tensor(std::size_t i) const;
  [[nodiscard]] std::size_t scalar_count() const noexcept { return scalars_.size(); }
  /// Scalar i, to be passed on to tasks: carried, bound anew at each call.
  [[nodiscard]] Scalar scalar(std::size_t i) const;
  /// The value of scalar i, to compute or decide with. The recording then holds for this value
  /// alone: another value records anew.
  template <class T>
  [[nodiscard]] T value(std::size_t i) const {
    const std::uint64_t bits = value_bits(i);
    T value;
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }

 private:
  friend class chip::OrchestrationState;
  [[nodiscard]] std::uint64_t value_bits(std::size_t i) const;
  std::vector<Tensor> tensors_ = {};
  std::vector<Scalar> scalars_ = {};      ///< As tasks get them.
  std::vector<std::uint64_t> bits_ = {};  ///< Their values.
  std::vector<bool>* read_ = nullptr;     ///< Which values were read, while recording.
};

class ChipOrchestration {
 public:
  explicit ChipOrchestration(chip::OrchestrationState& state) noexcept : state_(&state) {}
  ChipOrchestration(const ChipOrchestration&) = delete;
  ChipOrchestration& operator=(const ChipOrchestration&) = delete;

  // --- Arguments of the run ---

  [[nodiscard]] std::size_t tensor_count() const noexcept;
  [[nodiscard]] const Tensor& tensor(std::size_t i) const;
  [[nodiscard]] std::size_t scalar_count() const noexcept;
  template <class T>
  [[nodiscard]] T scalar(std::size_t i) const {
    const std::uint64_t bits = scalar_bits(i);
    T value;
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }

  // --- Kernels ---

  /// Throws ChipError (unknown_kernel) that names those there are.
  [[nodiscard]] KernelId kernel(std::string_view name) const;
  /// One call on an AIC or an AIV. Throws ChipError (wrong_core) if the kernel is for the other.
  [[nodiscard]] Launch aic(KernelId kernel) const;
  [[nodiscard]] Launch aiv(KernelId kernel) const;
  [[nodiscard]] Launch aic(std::string_view name) const { return aic(kernel(name)); }
  [[nodiscard]] Launch aiv(std::string_view name) const { return aiv(kernel(name)); }
  /// Calls on the lanes of one cluster, started together: an AIC and one or two AIVs. A lane that
  /// is not used is KernelId{}; at least two are.
  [[nodiscard]] Launch mixed(KernelId aic, KernelId aiv0, KernelId aiv1 = {}) const;

  // --- Tasks ---

  /// Submits a task: a Launch (or nullptr, for a task of edges only, which may also allocate) and
  /// what Orchestration::submit takes, and when().
  template <class F, class... Args>
  TaskId submit(const F& body, const Args&... args) {
    static_assert(std::is_same_v<F, Launch> || std::is_null_pointer_v<F>,
                  "the body of a chip's task is aic(), aiv() or mixed(), or nullptr");
    static_assert(detail::kCountOf<Target, Args...> == 0,
                  "the chip chooses the cores; a task has no on()");
    constexpr std::size_t kConditions = detail::kCountOf<When, Args...>;
    static_assert(kConditions <= 1, "a task has one condition at most");
    if constexpr (kConditions == 0) {
      detail::ArgumentPack<Args...> pack(detail::body_of(body), args...);
      return submit_task(pack.spec());
    } else {
      static_assert(std::is_same_v<F, Launch>, "a task of edges only has no condition");
      static_assert(when_is_last_tensor<Args...>(), "when() goes behind the tensor arguments");
      const When& condition = find_when(args...);
      detail::ArgumentPack<Args...> pack(
          detail::body_of(body.only_if(condition.compare, condition.operand)), args...);
      return submit_task(pack.spec());
    }
  }
  /// The same for arguments built at run time.
  TaskId submit_task(TaskSpec& spec);

  /// Storage for several tensors at once, for as long as this scope; with a task to depend on.
  [[nodiscard]] Allocation allocate(std::span<const NewTensor> tensors);
  [[nodiscard]] Allocation allocate(std::initializer_list<NewTensor> tensors) {
    return allocate(std::span(tensors.begin(), tensors.size()));
  }
  /// Memory of this process as a tensor, row-major. It must live until the run has ended. Memory
  /// that is part of an argument, or of what was named before, is followed as that.
  [[nodiscard]] Tensor external(void* data, DType dtype, std::span<const std::int64_t> shape);
  [[nodiscard]] Tensor external(void* data, DType dtype,
                                std::initializer_list<std::int64_t> shape) {
    return external(data, dtype, std::span(shape.begin(), shape.size()));
  }

  /// As in Orchestration.
  [[nodiscard]] Scope scope(ScopeOptions options = {});

  // --- Recorded sub-graphs ---

  /// Submits all that `function` submits as one task: it is recorded at the first call and replayed
  /// at later ones with the same function, construction parameters `config` (compared by their
  /// bytes), dtypes, shapes, strides and overlaps of the tensors, and values of the scalars that it
  /// reads; otherwise it is recorded anew. Returns a task that is done when all are.
  template <class... Config>
  TaskId graph(void (*function)(ChipOrchestration&, const GraphArguments&, Config...),
               std::span<const Tensor> tensors, std::span<const Scalar> scalars, Config... config) {
    static_assert((std::is_trivially_copyable_v<Config> && ...),
                  "construction parameters are plain values");
    std::string key;
    (key.append(reinterpret_cast<const char*>(&config), sizeof(config)), ...);
    return submit_graph(reinterpret_cast<const void*>(function), key, tensors, scalars,
                        [&](ChipOrchestration& chip, const GraphArguments& arguments) {
                          function(chip, arguments, config...);
                        });
  }
  template <class... Config>
  TaskId graph(void (*function)(ChipOrchestration&, const GraphArguments&, Config...),
               std::initializer_list<Tensor> tensors, std::initializer_list<Scalar> scalars,
               Config... config) {
    return graph(function, std::span(tensors.begin(), tensors.size()),
                 std::span(scalars.begin(), scalars.size()), config...);
  }

  // --- Values ---

  /// Waits for the tasks that write the tensor, or for one task, and for nothing else.
  void wait(const Tensor& tensor);
  void wait(TaskId task);
  /// Reads one element after the tasks that write it; writes one after those that use it.
  template <class T>
  [[nodiscard]] T read(const Tensor& tensor, std::initializer_list<std::int64_t> index = {}) {
    T value;
    read_element(tensor, std::span(index.begin(), index.size()), dtype_of<T>, &value);
    return value;
  }
  /// Reads all elements, row by row, after the tasks that write them.
  template <class T>
  [[nodiscard]] std::vector<T> read_all(const Tensor& tensor) {
    static_assert(!std::is_same_v<T, bool>, "read it as std::uint8_t, of tensor.as(DType::uint8)");
    std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
    read_elements(tensor, dtype_of<T>, values.data());
    return values;
  }
  template <class T>
  void write(const Tensor& tensor, std::initializer_list<std::int64_t> index, T value) {
    write_element(tensor, std::span(index.begin(), index.size()), dtype_of<T>, &value);
  }

  // --- The chip, and else ---

  [[nodiscard]] unsigned clusters() const noexcept;
  [[nodiscard]] unsigned aics() const noexcept;
  [[nodiscard]] unsigned aivs() const noexcept;
  [[nodiscard]] std::string_view platform() const noexcept;

  /// Gives up: throws OrchestrationFailed, which the caller of the run gets. Tasks in flight are
  /// cancelled.
  [[noreturn]] void fail(std::int32_t code, const std::string& text) const;
  /// True once the run was cancelled or is past its deadline.
  [[nodiscard]] bool cancelled() const noexcept;
  /// A line in the chip's log, if the log takes lines of that level.
  void log(LogLevel level, std::string_view text) const;
  void log(std::string_view text) const { log(LogLevel::info, text); }

 private:
  using GraphBody = std::function<void(ChipOrchestration&, const GraphArguments&)>;
  TaskId submit_graph(const void* function, const std::string& config,
                      std::span<const Tensor> tensors, std::span<const Scalar> scalars,
                      const GraphBody& body);
  [[nodiscard]] std::uint64_t scalar_bits(std::size_t i) const;
  void read_element(const Tensor& tensor, std::span<const std::int64_t> index, DType dtype,
                    void* value);
  void read_elements(const Tensor& tensor, DType dtype, void* values);
  void write_element(const Tensor& tensor, std::span<const std::int64_t> index, DType dtype,
                     const void* value);

  template <class... Args>
  static const When& find_when(const Args&... args) noexcept {
    const When* found = nullptr;
    const auto look = [&](const auto& arg) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(arg)>, When>) found = &arg;
    };
    (look(args), ...);
    return *found;
  }
  template <class... Args>
  static constexpr bool when_is_last_tensor() {
    bool seen = false;
    bool good = true;
    const auto look = [&](bool condition, bool tensor) {
      if (tensor && seen) good = false;
      seen = seen || condition;
    };
    (look(std::is_same_v<Args, When>, std::is_same_v<Args, TensorArg>), ...);
    return good;
  }

  chip::OrchestrationState* state_;
};

}  // namespace strata

/// Defines a chip orchestration. What follows is its body, with `chip` as its argument. Its name is
/// as free as that of a kernel (see STRATA_KERNEL).
#define STRATA_CHIP_ORCHESTRATION(name) STRATA_DETAIL_CHIP_ORCHESTRATION(name)
#define STRATA_DETAIL_CHIP_ORCHESTRATION(name)                                                 \
  __attribute__((visibility("default"))) void name(::strata::ChipOrchestration& chip) __asm__( \
      "strata_entry_orchestration_" #name);                                                    \
  void name([[maybe_unused]] ::strata::ChipOrchestration& chip)
