// Orchestration: what an orchestration function submits its tasks through.
//
// Thread safety: belongs to the orchestration function that it was given to, used by one thread.
// Tasks are ordered by their dependencies as if they ran one by one in the order of submission.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "strata/run.hpp"
#include "strata/task.hpp"
#include "strata/task_context.hpp"
#include "strata/tensor.hpp"

namespace strata {

class Engine;
class Orchestration;
class Recording;

namespace graph {
class EngineState;
class OrchestrationState;
struct HandleState;
}  // namespace graph

/// Keeps a runtime-allocated tensor alive beyond its scope, until destroyed. Move-only. Counts as a
/// holder that never lets go by itself when it is proved that a full heap can't drain.
class TensorHandle {
 public:
  TensorHandle() noexcept;  ///< Keeps nothing.
  TensorHandle(TensorHandle&&) noexcept;
  TensorHandle& operator=(TensorHandle&&) noexcept;
  TensorHandle(const TensorHandle&) = delete;
  TensorHandle& operator=(const TensorHandle&) = delete;
  ~TensorHandle();
  [[nodiscard]] const Tensor& tensor() const noexcept { return tensor_; }
  /// Address of element (0, 0, ...). The bytes are what the last writer made of them once the run
  /// has ended, or after Orchestration::wait(tensor). Null once the engine is gone.
  [[nodiscard]] std::byte* data() const noexcept;

 private:
  friend class Orchestration;
  Tensor tensor_;
  std::unique_ptr<graph::HandleState> state_;
};

struct ScopeOptions {
  std::string_view name = {};
  /// Infer no dependencies between the tasks of this scope, or of scopes in it, and any others:
  /// only after() orders them. They are not recorded as readers or writers either.
  bool manual = false;
};

/// A scope that ends with the object. Scopes nest; the one ended must be the innermost open one.
class Scope {
 public:
  Scope(Scope&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)), depth_(other.depth_) {}
  Scope& operator=(Scope&&) = delete;
  Scope(const Scope&) = delete;
  ~Scope();
  /// Ends the scope now. Tensors allocated in it are freed once their last user has ended.
  void close();

 private:
  friend class Orchestration;
  Scope(Orchestration* owner, std::size_t depth) noexcept : owner_(owner), depth_(depth) {}
  Orchestration* owner_;
  std::size_t depth_;
};

class Orchestration {
 public:
  explicit Orchestration(graph::OrchestrationState& state) noexcept : state_(&state) {}
  Orchestration(const Orchestration&) = delete;
  Orchestration& operator=(const Orchestration&) = delete;

  /// Submits a task: a body (anything callable with TaskContext&, or nullptr for edges only) and,
  /// in any order, in() / out() / inout() tensors, scalar()s, after() edges, on() a kind or lane,
  /// Priority, named(), unordered. Blocks while window or heap is full; throws InvalidArgument for
  /// bad input (nothing is submitted, the run can go on), CapacityError if the wait could never
  /// end, Cancelled if the run was ended meanwhile.
  template <class F, class... Args>
  TaskId submit(F&& body, Args&&... args) {
    detail::ArgumentPack<std::remove_cvref_t<Args>...> pack(std::forward<F>(body), args...);
    return submit_task(pack.spec());
  }
  /// The same for arguments built at run time. The body is moved from on success.
  TaskId submit_task(TaskSpec& spec);
  /// Submits tasks that start together, each on its lane.
  TaskId submit_group(const GroupSpec& spec);

  /// Memory from the heap without a task: the tensor gets storage that lives as this scope does.
  [[nodiscard]] Tensor allocate(DType dtype, std::span<const std::int64_t> shape,
                                const void* fill = nullptr);
  [[nodiscard]] Tensor allocate(DType dtype, std::initializer_list<std::int64_t> shape,
                                const void* fill = nullptr) {
    return allocate(dtype, std::span(shape.begin(), shape.size()), fill);
  }

  /// Opens a scope. Runtime-allocated tensors live until the scope in which they were allocated has
  /// ended and their last user is done. The run itself is the outermost scope.
  [[nodiscard]] Scope scope(ScopeOptions options = {});

  /// Keeps the storage of a runtime-allocated tensor beyond its scope and this run.
  [[nodiscard]] TensorHandle keep(const Tensor& tensor);

  /// Waits for the tasks that write the tensor, and for nothing else. Throws RunFailed if what they
  /// should have written is invalid.
  void wait(const Tensor& tensor);
  /// Waits for one task.
  void wait(TaskId task);
  /// Reads one element, after the tasks that write it.
  template <class T>
  [[nodiscard]] T read(const Tensor& tensor, std::initializer_list<std::int64_t> index = {}) {
    T value;
    read_element(tensor, std::span(index.begin(), index.size()), dtype_of<T>, &value);
    return value;
  }
  /// Writes one element, after the tasks that read or write it. The element is valid afterwards.
  template <class T>
  void write(const Tensor& tensor, std::initializer_list<std::int64_t> index, T value) {
    write_element(tensor, std::span(index.begin(), index.size()), dtype_of<T>, &value);
  }
  /// Waits for all readers and writers of the tensor, then declares it overwritten by the host: its
  /// bytes are valid again whatever failed before.
  void overwrite(const Tensor& tensor);

  /// Submits the tasks of a recording with these tensors and scalars bound to its parameters, as if
  /// they were submitted here one by one. Returns the last of them; none for an empty recording.
  /// Throws InvalidArgument if they are not of the recorded dtype, shape and strides.
  TaskId replay(const Recording& recording, std::span<const Tensor> tensors,
                std::span<const Scalar> scalars = {});
  TaskId replay(const Recording& recording, std::initializer_list<Tensor> tensors,
                std::initializer_list<Scalar> scalars = {}) {
    return replay(recording, std::span(tensors.begin(), tensors.size()),
                  std::span(scalars.begin(), scalars.size()));
  }

  /// True once the run was cancelled or is past its deadline.
  [[nodiscard]] bool cancelled() const noexcept;
  /// The run that this orchestration belongs to. Not while recording.
  [[nodiscard]] Run run() const;

 private:
  friend class Engine;
  friend class Scope;
  void close_scope(std::size_t depth);
  void read_element(const Tensor& tensor, std::span<const std::int64_t> index, DType dtype,
                    void* value);
  void write_element(const Tensor& tensor, std::span<const std::int64_t> index, DType dtype,
                     const void* value);
  graph::OrchestrationState* state_;
};

}  // namespace strata
