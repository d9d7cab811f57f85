// What a task is made of: a body, arguments with access modes, and where and how it runs.
//
//   run.submit(gemm, in(a), in(b), inout(c), scalar(0.5f), after(t), on(kind), named("gemm"));
//
// Everything after the body may come in any order and number; tensor and scalar arguments are
// numbered in the order given, tensors and scalars apart.
//
// Thread safety: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "strata/ids.hpp"
#include "strata/tensor.hpp"

namespace strata {

class TaskContext;

/// What a task does with a tensor argument.
enum class Access : std::uint8_t { in, out, inout };

/// One tensor argument; made by in(), out(), inout(). Refers to the tensor, which must live until
/// submit returns.
struct TensorArg {
  const Tensor* tensor = nullptr;
  Tensor* allocate = nullptr;  ///< Where the tensor without storage is written back to, or null.
  const void* fill =
      nullptr;  ///< One element's bytes: initial value of storage given by this task.
  Access access = Access::in;
  Tracking tracking = Tracking::full;  ///< The weaker of this and tensor->tracking() counts.
  bool dumped = false;                 ///< See dumped().
};

/// The task reads the tensor.
[[nodiscard]] inline TensorArg in(const Tensor& t) noexcept { return {.tensor = &t}; }
/// The task overwrites the tensor; it does not see what was there before.
[[nodiscard]] inline TensorArg out(const Tensor& t) noexcept {
  return {.tensor = &t, .access = Access::out};
}
/// As above; a tensor without storage is given memory from the engine's heap and `t` is updated.
[[nodiscard]] inline TensorArg out(Tensor& t) noexcept {
  return {.tensor = &t, .allocate = &t, .access = Access::out};
}
/// As above, with every element of the new storage set to the element at `fill` (of t's dtype)
/// first. `fill` must live until submit returns.
[[nodiscard]] inline TensorArg out(Tensor& t, const void* fill) noexcept {
  return {.tensor = &t, .allocate = &t, .fill = fill, .access = Access::out};
}
/// The task reads the tensor and writes it.
[[nodiscard]] inline TensorArg inout(const Tensor& t) noexcept {
  return {.tensor = &t, .access = Access::inout};
}
/// The argument with a weaker way of tracking.
[[nodiscard]] inline TensorArg creator_only(TensorArg arg) noexcept {
  arg.tracking = Tracking::creator_only;
  return arg;
}
[[nodiscard]] inline TensorArg no_dep(TensorArg arg) noexcept {
  arg.tracking = Tracking::no_dep;
  return arg;
}

/// The argument, to be written to a file in runs that ask for it (ChipRunOptions::dump_to). Nothing
/// else changes.
[[nodiscard]] inline TensorArg dumped(TensorArg arg) noexcept {
  arg.dumped = true;
  return arg;
}

/// One scalar argument: eight bytes, read back by TaskContext::scalar<T>().
struct Scalar {
  std::uint64_t bits = 0;
  std::int32_t parameter = -1;  ///< Set by Parameters::scalar(): bound at each replay.
  template <class T>
  static Scalar of(T value) noexcept {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8,
                  "a scalar argument is a trivially copyable value of at most eight bytes");
    Scalar s;
    std::memcpy(&s.bits, &value, sizeof(T));
    return s;
  }
};
template <class T>
[[nodiscard]] Scalar scalar(T value) noexcept {
  return Scalar::of(value);
}

/// An explicit edge: the task waits for `task`, and is skipped if it fails. No edge if `task` names
/// none.
struct After {
  TaskId task;
};
[[nodiscard]] inline After after(TaskId task) noexcept { return {task}; }

/// The same for each of the tasks; instead of single edges, once in a submission. The list must
/// live until submit returns.
struct AfterAll {
  std::span<const TaskId> tasks;
};
[[nodiscard]] inline AfterAll after(std::span<const TaskId> tasks) noexcept { return {tasks}; }

/// Where a task runs: on any lane of a kind, or on one exact lane.
struct Target {
  enum class By : std::uint8_t { kind, lane } by = By::kind;
  std::uint32_t index = 0;
};
[[nodiscard]] inline Target on(KindId kind) noexcept { return {Target::By::kind, kind.value}; }
[[nodiscard]] inline Target on(LaneId lane) noexcept { return {Target::By::lane, lane.value}; }

/// Higher runs earlier among the ready tasks of a kind; 0 by default.
struct Priority {
  std::int32_t value = 0;
};
/// Name of the task in messages, reports and graphs. Must live as long as the run's reports (a
/// string literal).
struct Named {
  std::string_view name;
};
[[nodiscard]] constexpr Named named(std::string_view name) noexcept { return {name}; }
/// A task for an exact lane that need not keep submission order with the lane's other tasks.
struct Unordered {};
inline constexpr Unordered unordered{};

/// A callable `void(TaskContext&)`, owned; small trivially copyable ones without allocation. An
/// empty body makes a task of edges only, which takes no lane.
class Body {
 public:
  static constexpr std::size_t kInlineBytes = 32;

  Body() = default;
  Body(std::nullptr_t) {}
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, Body> &&
           std::is_invocable_v<std::remove_cvref_t<F>&, TaskContext&>) Body(F&& f) {
    using Fn = std::decay_t<F>;  // a function decays to a pointer
    if constexpr (fits_inline<Fn>()) {
      if constexpr (!std::is_empty_v<Fn>) {
        words_ = (sizeof(Fn) + 7) / 8;
        if constexpr (sizeof(Fn) % 8 != 0) std::memset(storage_, 0, 8 * words_);
      }
      ::new (static_cast<void*>(storage_)) Fn(std::forward<F>(f));
      invoke_ = &invoke_inline<Fn>;
    } else {
      auto* owned = new Fn(std::forward<F>(f));
      std::memcpy(storage_, &owned, sizeof(void*));
      words_ = 1;
      invoke_ = &invoke_owned<Fn>;
      destroy_ = [](void* at) noexcept { delete *static_cast<Fn**>(at); };
    }
  }
  Body(Body&& other) noexcept { take(other); }
  Body& operator=(Body&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;
  ~Body() { reset(); }

  explicit operator bool() const noexcept { return invoke_ != nullptr; }
  void operator()(TaskContext& context) { invoke_(storage_, context); }
  /// The callable, if it is exactly an F; otherwise null. Bodies made in a library that keeps its
  /// symbols to itself are not recognised outside of it.
  template <class F>
  requires std::is_invocable_v<F&, TaskContext&>
  [[nodiscard]] const F* target() const noexcept {
    static_assert(std::is_same_v<F, std::decay_t<F>>, "what is stored is never a reference");
    if constexpr (fits_inline<F>()) {
      if (invoke_ != &invoke_inline<F>) return nullptr;
      return std::launder(reinterpret_cast<const F*>(storage_));
    } else {
      if (invoke_ != &invoke_owned<F>) return nullptr;
      const F* owned = nullptr;
      std::memcpy(&owned, storage_, sizeof(void*));
      return owned;
    }
  }
  void reset() noexcept {
    if (destroy_ != nullptr) destroy_(storage_);
    invoke_ = nullptr;
    destroy_ = nullptr;
  }

 private:
  template <class Fn>
  static constexpr bool fits_inline() {
    return sizeof(Fn) <= kInlineBytes && alignof(Fn) <= alignof(std::max_align_t) &&
           std::is_trivially_copyable_v<Fn> && std::is_trivially_destructible_v<Fn>;
  }
  // One of each per type: they also say what is stored.
  template <class Fn>
  static void invoke_inline(void* at, TaskContext& context) {
    (*static_cast<Fn*>(at))(context);
  }
  template <class Fn>
  static void invoke_owned(void* at, TaskContext& context) {
    (**static_cast<Fn**>(at))(context);
  }
  void take(Body& other) noexcept {
    // Relocation by bytes: what is stored is trivially copyable or a pointer. Word by word and only
    // as many as are used: loads wider than the stores just made would wait for those.
    words_ = other.words_;
    switch (words_) {
      case 4:
        std::memcpy(storage_ + 24, other.storage_ + 24, 8);
        [[fallthrough]];
      case 3:
        std::memcpy(storage_ + 16, other.storage_ + 16, 8);
        [[fallthrough]];
      case 2:
        std::memcpy(storage_ + 8, other.storage_ + 8, 8);
        [[fallthrough]];
      case 1:
        std::memcpy(storage_, other.storage_, 8);
        break;
      default:
        break;
    }
    invoke_ = std::exchange(other.invoke_, nullptr);
    destroy_ = std::exchange(other.destroy_, nullptr);
  }

  alignas(std::max_align_t) unsigned char storage_[kInlineBytes];
  void (*invoke_)(void* at, TaskContext& context) = nullptr;
  void (*destroy_)(void* at) noexcept = nullptr;
  std::uint64_t words_ = 0;  ///< Of storage_, in use.
};

/// A whole task, for callers that build their arguments at run time. Spans and names are read
/// during submit only, save `name` (see Named).
struct TaskSpec {
  Body body;
  std::string_view name = {};
  Target target = {};
  std::int32_t priority = 0;
  bool unordered = false;
  std::span<const TensorArg> tensors = {};
  std::span<const Scalar> scalars = {};
  std::span<const TaskId> after = {};
};

/// One member of a group: what runs on one lane.
struct GroupMember {
  LaneId lane;
  Body body;
  std::span<const TensorArg> tensors = {};
  std::span<const Scalar> scalars = {};
};

/// Tasks that run at the same time, each on its lane: all start together or not at all. One task id
/// stands for all; it is done when every member is. Conflicts between members are the members' own
/// affair: they meet through memory.
struct GroupSpec {
  std::span<GroupMember>
      members;  ///< At least one; each on a lane of its own. Bodies are moved from.
  std::string_view name = {};
  std::span<const TaskId> after = {};
};

namespace detail {

/// How many of Ts are T, or derived from it.
template <class T, class... Ts>
inline constexpr std::size_t kCountOf =
    (std::size_t{std::is_base_of_v<T, std::remove_cvref_t<Ts>>} + ... + 0);

/// Sorts the variadic arguments of submit into the arrays of a TaskSpec, on the stack.
template <class... Args>
class ArgumentPack {
 public:
  template <class F>
  ArgumentPack(F&& body, const Args&... args) {
    static_assert(kCountOf<AfterAll, Args...> + (kCountOf<After, Args...> != 0 ? 1 : 0) <= 1,
                  "a task has one list of edges, or single ones");
    spec_.body = Body(std::forward<F>(body));
    (add(args), ...);
    spec_.tensors = {tensors_.data(), tensor_count_};
    spec_.scalars = {scalars_.data(), scalar_count_};
    if constexpr (kCountOf<AfterAll, Args...> == 0) spec_.after = {after_.data(), after_count_};
  }
  ArgumentPack(const ArgumentPack&) = delete;
  ArgumentPack& operator=(const ArgumentPack&) = delete;
  TaskSpec& spec() noexcept { return spec_; }

 private:
  void add(const TensorArg& a) { tensors_[tensor_count_++] = a; }
  void add(const Scalar& a) { scalars_[scalar_count_++] = a; }
  void add(const After& a) { after_[after_count_++] = a.task; }
  void add(const AfterAll& a) { spec_.after = a.tasks; }
  void add(const Target& a) { spec_.target = a; }
  void add(const Priority& a) { spec_.priority = a.value; }
  void add(const Named& a) { spec_.name = a.name; }
  void add(const Unordered&) { spec_.unordered = true; }

  // The extra element keeps the arrays legal when there is no argument of that sort.
  std::array<TensorArg, kCountOf<TensorArg, Args...> + 1> tensors_;
  std::array<Scalar, kCountOf<Scalar, Args...> + 1> scalars_;
  std::array<TaskId, kCountOf<After, Args...> + 1> after_;
  std::size_t tensor_count_ = 0;
  std::size_t scalar_count_ = 0;
  std::size_t after_count_ = 0;
  TaskSpec spec_;
};

}  // namespace detail

}  // namespace strata
